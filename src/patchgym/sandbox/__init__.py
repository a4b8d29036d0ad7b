"""Isolated execution: the contract, and the kinds of sandbox that keep it."""

from patchgym.sandbox.namespace import NamespaceSandbox, NamespaceSandboxes, check_namespace
from patchgym.sandbox.protocol import (
    WORKSPACE,
    Ending,
    ExecResult,
    ResourceLimits,
    Sandbox,
    SandboxFactory,
    SandboxSpec,
)

__all__ = [
    "WORKSPACE",
    "Ending",
    "ExecResult",
    "NamespaceSandbox",
    "NamespaceSandboxes",
    "ResourceLimits",
    "Sandbox",
    "SandboxFactory",
    "SandboxSpec",
    "check_namespace",
]
