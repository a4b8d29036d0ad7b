"""Sampling of actions: a local model, an OpenAI-compatible endpoint, a script. Heavy libraries load late."""

from patchgym.policy.plaintext import ProtocolError, parse_action, render_action
from patchgym.policy.protocol import Policy

__all__ = ["Policy", "ProtocolError", "parse_action", "render_action"]
