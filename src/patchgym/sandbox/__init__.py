"""Isolated execution: the contract, and the kinds of sandbox that keep it."""

from patchgym.sandbox.kinds import ClosingFactory, SandboxKind, sandbox_kind
from patchgym.sandbox.namespace import NamespaceSandbox, NamespaceSandboxes
from patchgym.sandbox.prerequisites import check_namespace
from patchgym.sandbox.process import ProcessSandbox, ProcessSandboxes
from patchgym.sandbox.protocol import (
    WORKSPACE,
    Cut,
    Ending,
    ExecResult,
    ResourceLimits,
    Sandbox,
    SandboxFactory,
    SandboxSpec,
    ServiceSpec,
)

__all__ = [
    "WORKSPACE",
    "ClosingFactory",
    "Cut",
    "Ending",
    "ExecResult",
    "NamespaceSandbox",
    "NamespaceSandboxes",
    "ProcessSandbox",
    "ProcessSandboxes",
    "ResourceLimits",
    "Sandbox",
    "SandboxFactory",
    "SandboxKind",
    "SandboxSpec",
    "ServiceSpec",
    "check_namespace",
    "sandbox_kind",
]
