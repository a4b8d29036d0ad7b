"""Sandboxes whose workspace is a stack of layers on this machine: everything but how commands run in them."""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from typing import Self, TypeVar

from patchgym.content import ObjectStore, diff_trees, disk_errors
from patchgym.errors import SandboxError
from patchgym.sandbox.command import settled
from patchgym.sandbox.protocol import WORKSPACE, Ending, ExecResult, SandboxSpec
from patchgym.sandbox.scratch import Scratch
from patchgym.sandbox.services import Company, Network
from patchgym.sandbox.stack import Below, Frozen, Layer, merge_upper
from patchgym.sandbox.step import Step

_T = TypeVar("_T")
_S = TypeVar("_S", bound="LayeredSandbox")
_WORKERS = 4
_FIRST_LOOK_S, _LOOKS = 0.5, 20.0
_VARIABLES = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}


class Room:
    """What all sandboxes of a factory share: the scratch folder, and threads of their own, so that file work never
    queues behind anybody else's."""

    def __init__(self, scratch: Scratch) -> None:
        self.scratch = scratch
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="patchgym-sandbox")

    def close(self) -> None:
        """End the threads and remove the scratch folder."""
        self.workers.shutdown()
        self.scratch.close()


class LayeredSandbox(ABC):
    """A workspace of layers. ``fork`` takes the same time whatever was written: what was written until then becomes a
    layer that both share. Where processes were kept running it is copied instead, which leaves them in peace."""

    kind: str

    def __init__(self, room: Room, objects: ObjectStore, spec: SandboxSpec, below: Below) -> None:
        """``below`` is the sandbox's to release. ``network`` is the one that it shares with others (None: one of its
        own), ``company`` the services beside it; both are set before its first command."""
        self.spec = spec
        self._objects = objects
        self._room = room
        self._name = room.scratch.new_name()
        self._lock = asyncio.Lock()
        self._retired: list[Future[None]] = []
        self._closed = self._removed = False
        self.network: Network | None = None
        self.company: Company | None = None
        self._overlay = self._layer(self._name, below)

    def locate(self, inside: str) -> str:
        """The place itself."""
        return inside

    async def read(self, path: str) -> bytes:
        """The bytes of a workspace file; see ``Sandbox.read``."""
        return await self._exclusively(lambda: self._overlay.read(path))

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a workspace file; see ``Sandbox.write``. Raises StorageError when the disk is full."""
        await self._exclusively(lambda: self._overlay.write(path, data))

    async def snapshot(self) -> str:
        """Tree id of the workspace now; see ``Sandbox.snapshot``. Only files that changed since the last are read."""
        return await self._exclusively(self._snapshot)

    async def diff(self) -> str:
        """The patch from the tree that the sandbox was made from to now."""
        return await self._exclusively(lambda: diff_trees(self._objects, self.spec.tree, self._snapshot()))

    async def fork(self) -> Self:
        """An independent sandbox whose workspace starts as this one's is now."""
        async with self._lock:
            self._check_open()
            twin = await kept(asyncio.get_running_loop().run_in_executor(self._room.workers, self.fork_now))
        return await twin.joined(self.company.another()) if self.company is not None else twin

    async def joined(self, company: "Company") -> Self:
        """Itself, with services beside it that are started now. When they cannot be, it is closed.

        Raises:
            SandboxError, PrerequisiteError: as ``Company.start``.
        """
        try:
            self.network = await company.start()
        except BaseException:
            await self.close()
            raise
        self.company = company
        return self

    async def rest(self) -> None:
        """End every process. What is written stays, and the next command begins anew."""
        await self._exclusively(self._stop)

    async def close(self) -> None:
        """End a running command and remove every trace. May be called twice."""
        self._closed = True
        self._interrupt()
        async with self._lock:
            await self._in_worker(self.discard)
        if self.company is not None:
            await self.company.close()

    # What a kind adds.

    @abstractmethod
    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
        report: bool = False,
        keep: bool = False,
    ) -> ExecResult:
        """Run a command; see ``Sandbox.exec``."""

    @abstractmethod
    def _twin(self, below: Below) -> Self:
        """A new sandbox like this one over ``below``."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End a running command, if there is one."""

    @abstractmethod
    def _let_go(self) -> Callable[[], None] | None:
        """Forget what has the layers mounted; what ends it and waits for that. None where nothing has."""

    @abstractmethod
    def _release(self) -> None:
        """Give back what else the sandbox holds, once its layers are removed."""

    @property
    @abstractmethod
    def _keeps(self) -> bool:
        """Whether processes were kept running."""

    # What the kinds use.

    async def _exclusively(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            self._check_open()
            return await self._in_worker(work)

    async def _in_worker(self, work: Callable[[], _T]) -> _T:
        """Run blocking work and wait for it whatever happens, so that nothing goes on behind the lock's back."""
        return await settled(asyncio.get_running_loop().run_in_executor(self._room.workers, work))

    async def _watch(self, step: Step, *, in_memory: bool) -> None:
        """End a command that fills the disk. Where what is written is memory, the limit of memory holds it."""
        pause = _FIRST_LOOK_S
        while not in_memory:
            await asyncio.sleep(pause)
            began = time.monotonic()
            size = await self._in_worker(self._overlay.size)
            if size > self.spec.limits.disk_bytes:
                step.kill(Ending.DISK_FULL)
                return
            pause = max(_FIRST_LOOK_S, _LOOKS * (time.monotonic() - began))

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("The sandbox is closed", why="It was closed before, or while, this was asked of it.")

    def _retire(self) -> None:
        """End what has the layers mounted, in the background."""
        end = self._let_go()
        if end is not None:
            self._retired.append(self._room.workers.submit(end))

    def _stop(self) -> None:
        """End what has the layers mounted and wait until it is gone."""
        end = self._let_go()
        if end is not None:
            end()
        for retired in self._retired:
            retired.result()
        self._retired.clear()

    def _snapshot(self) -> str:
        return self._overlay.tree(self._objects)

    def _layer(self, name: str, below: Below) -> Layer:
        return Layer(self._room.scratch.path / name, below)

    def fork_now(self) -> Self:
        """As ``fork``, without services, for who holds this sandbox alone. Blocking."""
        if self._keeps:
            return self._copied()
        frozen = Frozen(self._overlay)
        if frozen.crowded:
            self._stop()  # before what is mounted goes away
            whole = frozen.merged(self._room.scratch.path / self._room.scratch.new_name())
            frozen.release()
            frozen = whole
        self._retire()
        self._overlay = self._layer(self._room.scratch.new_name(), frozen)
        return self._twin(frozen.share())

    def _copied(self) -> Self:
        twin = self._twin(self._overlay.below.share())
        with ExitStack() as undo, disk_errors(twin._overlay.upper):
            undo.callback(twin.discard)
            merge_upper(self._overlay.upper, twin._overlay.upper)
            undo.pop_all()
        return twin

    def discard(self) -> None:
        """Remove every trace, for who holds this sandbox alone. Blocking; may be called twice."""
        if not self._removed:
            self._removed = True
            self._stop()
            self._overlay.remove()
            self._release()


async def kept(making: "asyncio.Future[_S]") -> _S:
    """The sandbox that is being made; when cancelled meanwhile, it is closed again."""
    try:
        return await settled(making)
    except asyncio.CancelledError:
        if making.exception() is None:
            await making.result().close()
        raise


def variables_of(spec: SandboxSpec, path: str = "/usr/bin:/bin") -> dict[str, str]:
    """The variables of every command in a sandbox whose own programs lie in ``path``."""
    if spec.environment is not None:
        path = f"{spec.environment.absolute()}/bin:{path}"
    roots = ":".join(os.path.normpath(os.path.join(WORKSPACE, root)) for root in spec.pythonpath)
    return {"PATH": path, **_VARIABLES, **({"PYTHONPATH": roots} if roots else {}), **spec.variables}


def place_of(cwd: str) -> str:
    """Where a command's folder lies inside."""
    return os.path.normpath(os.path.join(WORKSPACE, cwd))
