"""Sandboxes with something wrong in them, around real ones."""

from collections.abc import Sequence
from typing import Any

from patchgym.errors import SandboxError
from patchgym.sandbox import ExecResult, Sandbox, SandboxFactory, SandboxSpec


class _Around:
    """A factory of sandboxes that behave otherwise."""

    def __init__(self, factory: SandboxFactory) -> None:
        self._factory = factory
        self.kind = factory.kind

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return await self._factory.create(spec)


class Slow(_Around):
    """Every command waits for seconds before it starts, as on a machine with too much to do."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return _Waiting(await self._factory.create(spec))


class Lagging(_Around):
    """Snapshots are those of one action ago."""

    async def create(self, spec: SandboxSpec) -> Sandbox:
        return _Late(await self._factory.create(spec), spec.tree)


class Failing(_Around):
    """Every third sandbox cannot be made."""

    count = 0

    async def create(self, spec: SandboxSpec) -> Sandbox:
        Failing.count += 1
        if Failing.count % 3 == 0:
            raise SandboxError("No sandbox could be made", why="The disk of the machine was gone.")
        return await self._factory.create(spec)


class _Box:
    """A sandbox that hands everything on."""

    def __init__(self, inner: Sandbox) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _Waiting(_Box):
    async def exec(self, argv: Sequence[str], **options: Any) -> ExecResult:
        waiting = ["/bin/sh", "-c", 'sleep 2.5; exec "$@"', "sh", *argv]
        return await self._inner.exec(waiting, **options)


class _Late(_Box):
    def __init__(self, inner: Sandbox, tree: str) -> None:
        super().__init__(inner)
        self._last = tree

    async def snapshot(self) -> str:
        last, self._last = self._last, await self._inner.snapshot()
        return last
