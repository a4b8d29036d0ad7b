"""The sandboxes that attempts are made in."""

from tests.sandbox.conftest import box, boxes, engine, environment, factory, tree

__all__ = ["box", "boxes", "engine", "environment", "factory", "tree"]
