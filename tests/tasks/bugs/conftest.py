"""Fixtures of the tests of planted bugs."""

from pathlib import Path

import pytest

from patchgym.content import ObjectStore


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    """An empty object store."""
    return ObjectStore(tmp_path / "objects")
