"""The kinds of sandbox that are installed, by name: ours and those of other distributions.

A distribution adds one by an entry point of the group ``patchgym.sandboxes`` that names a ``SandboxKind``.
"""

from importlib.metadata import entry_points
from typing import Protocol

from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.sandbox.protocol import SandboxFactory

GROUP = "patchgym.sandboxes"


class ClosingFactory(SandboxFactory, Protocol):
    """A factory that holds something."""

    def close(self) -> None:
        """Release it. Sandboxes must be closed before."""
        ...


class SandboxKind(Protocol):
    """What an entry point names: the class of a factory."""

    isolates: bool
    """Whether it keeps code away from this machine. One that does not is used with ``--unsafe`` alone."""

    @staticmethod
    def check() -> None:
        """Whether this machine can make such sandboxes; quick.

        Raises:
            PrerequisiteError: it cannot; the error says what to do.
        """
        ...

    def __call__(self, objects: ObjectStore) -> ClosingFactory:
        """A factory over a store."""
        ...


def sandbox_kind(name: str) -> SandboxKind:
    """The kind of this name.

    Raises:
        UsageError: there is none.
    """
    found = {point.name: point for point in entry_points(group=GROUP)}
    if name not in found:
        raise UsageError(f"There is no kind of sandbox called {name}", mend=f"Kinds: {', '.join(sorted(found))}.")
    kind: SandboxKind = found[name].load()
    return kind
