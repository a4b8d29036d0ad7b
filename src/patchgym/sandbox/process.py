"""Commands on this machine itself: no isolation at all. For debugging, and where there are no namespaces."""

import asyncio
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar

from patchgym.content import ObjectStore, diff_trees, disk_errors
from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.sandbox.command import settled
from patchgym.sandbox.protocol import WORKSPACE, Ending, ExecResult, SandboxSpec, refuse_images
from patchgym.sandbox.step import CHANNEL, Step

_T = TypeVar("_T")
_CHUNK = 1 << 16
_LOOK_S = 0.02


class ProcessSandboxes:
    """Makes workspaces in temporary folders (a ``SandboxFactory``). ``objects`` holds the trees."""

    kind = "process"
    isolates = False

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects

    @staticmethod
    def check() -> None:
        """Every machine can."""

    async def create(self, spec: SandboxSpec) -> "ProcessSandbox":
        """A new workspace.

        Raises:
            PrerequisiteError: ``spec`` asks for an image or for services.
            StorageError: the disk is full.
        """
        refuse_images(spec, self.kind)
        if spec.services:
            raise PrerequisiteError(
                "The environment has services",
                why="Processes without isolation have no network of their own to run them in.",
                mend="Leave --sandbox process out.",
            )
        return await asyncio.to_thread(ProcessSandbox, self.objects, spec, None)

    def close(self) -> None:
        """There is nothing to release: every workspace removes itself."""


class ProcessSandbox:
    """A folder, and commands that run in it as this user.

    Nothing is covered: a command reads, changes and sends what this user can. Wall time and kept output are bounded;
    memory, processes, CPU time and disk are not. What a command leaves running is ended where it stayed in its process
    group. Each command is told a home and a temporary folder of its own, the environment's programs first.
    """

    kind = "process"
    isolates = False

    def __init__(self, objects: ObjectStore, spec: SandboxSpec, copied: Path | None) -> None:
        self.spec = spec
        self.objects = objects
        self.folder = Path(tempfile.mkdtemp(prefix="patchgym-process-")).resolve()
        self._workspace = self.folder / "workspace"
        self._lock = asyncio.Lock()
        self._groups: list[int] = []
        self._closed = False
        with ExitStack() as undo, disk_errors(self.folder):
            undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
            (self.folder / "home").mkdir()
            if copied is not None:
                shutil.copytree(copied, self._workspace, symlinks=True)
            else:
                self._workspace.mkdir()
                objects.checkout(spec.tree, self._workspace)
            undo.pop_all()

    def locate(self, inside: str) -> str:
        """The place on this machine that stands for a place of an isolating sandbox."""
        for place, host in {WORKSPACE: self._workspace, **self.spec.mounts}.items():
            path = PurePosixPath(inside)
            if path.is_relative_to(place):
                return str(host / path.relative_to(place))
        return inside

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
        async with self._lock:
            self._check_open()
            variables = {**self._variables(), **(variables or {})}
            run = _Run(self, argv, self._workspace / cwd, variables, stdin, report=report, keep=keep)
            running = asyncio.ensure_future(asyncio.to_thread(run.go, timeout_s))
            try:
                return await asyncio.shield(running)
            except asyncio.CancelledError:
                run.kill()
                await settled(running)
                raise

    def keep(self, group: int) -> None:
        """Remember a process group to end at the end."""
        self._groups.append(group)

    async def read(self, path: str) -> bytes:
        """The bytes of a workspace file; see ``Sandbox.read``."""
        return await self._exclusively(lambda: self._place(path).read_bytes())

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a workspace file; see ``Sandbox.write``."""

        def put() -> None:
            place = self._place(path)
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

        await self._exclusively(put)

    async def snapshot(self) -> str:
        """Tree id of the workspace now. Every file is read."""
        return await self._exclusively(lambda: self.objects.ingest(self._workspace))

    async def diff(self) -> str:
        """The patch from the tree that the sandbox was made from to now."""
        return diff_trees(self.objects, self.spec.tree, await self.snapshot())

    async def fork(self) -> "ProcessSandbox":
        """A workspace that starts as a copy of this one."""
        return await self._exclusively(lambda: ProcessSandbox(self.objects, self.spec, self._workspace))

    async def close(self) -> None:
        """End what was kept running and remove the folder. May be called twice."""
        self._closed = True
        while self._groups:
            _end_group(self._groups.pop())
        await asyncio.to_thread(shutil.rmtree, self.folder, ignore_errors=True)

    async def _exclusively(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            self._check_open()
            return await asyncio.to_thread(work)

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("The sandbox is closed")

    def _place(self, path: str) -> Path:
        relative = path.removeprefix(f"{WORKSPACE}/")
        place = (self._workspace / relative).resolve()
        if not place.is_relative_to(self._workspace):
            raise PermissionError(1, "it leaves the workspace", path)
        return place

    def _variables(self) -> dict[str, str]:
        programs = [f"{self.spec.environment.absolute()}/bin"] if self.spec.environment is not None else []
        fixed = {
            "PATH": os.pathsep.join([*programs, os.environ.get("PATH", os.defpath)]),
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "home"),
            "LANG": "C.UTF-8",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "PYTHONHASHSEED": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        roots = os.pathsep.join(os.path.normpath(self._workspace / root) for root in self.spec.pythonpath)
        return {**fixed, **({"PYTHONPATH": roots} if roots else {}), **self.spec.variables}


class _Run(Step):
    """One command, in a thread of its own."""

    def __init__(
        self,
        sandbox: ProcessSandbox,
        argv: Sequence[str],
        cwd: Path,
        variables: Mapping[str, str],
        stdin: bytes,
        *,
        report: bool,
        keep: bool,
    ) -> None:
        super().__init__(sandbox.spec.limits, sandbox.folder)
        self._unwanted = threading.Event()
        self._sandbox, self._argv, self._cwd, self._variables = sandbox, list(argv), cwd, dict(variables)
        self._stdin, self._keep = stdin, keep
        self._channel = os.pipe() if report else None

    def go(self, timeout_s: float) -> ExecResult:
        """Run it to its end, or end it."""
        began = time.monotonic()
        channel = self._channel
        try:
            process = subprocess.Popen(
                self._argv,
                cwd=self._cwd,
                env=self._variables | ({CHANNEL: str(channel[1])} if channel else {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=[channel[1]] if channel else [],
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            for descriptor in channel or ():
                os.close(descriptor)
            self.not_run = str(error)
            return self.result(self._sandbox.objects, "none")
        work: list[Callable[[], None]] = [
            lambda: _pump(process.stdout, self.stdout.add),
            lambda: _pump(process.stderr, self.stderr.add),
            lambda: _feed(process.stdin, self._stdin),
        ]
        if channel:
            os.close(channel[1])
            work.append(lambda: _pump(os.fdopen(channel[0], "rb"), self._take_report))
        threads = [threading.Thread(target=one, daemon=True) for one in work]
        for thread in threads:
            thread.start()
        self._wait(process, began + timeout_s)
        if self._keep and self.ended_by is None:
            self._sandbox.keep(process.pid)
        else:
            _end_group(process.pid)
        code = process.wait()
        for thread in threads:  # who was kept may hold a stream, and nobody waits for that
            thread.join(0.1 if self._keep else 5.0)
        self.exit_code, self.signal = (code, None) if code >= 0 else (None, -code)
        self.seconds = time.monotonic() - began
        return self.result(self._sandbox.objects, "none")

    def kill(self, why: Ending | None = None) -> None:
        """Have it ended; see ``Step.kill``."""
        self.ended_by = self.ended_by or why
        self._unwanted.set()

    def _drown(self) -> None:
        self.kill(Ending.OUTPUT_CUT)

    def _wait(self, process: "subprocess.Popen[bytes]", until: float) -> None:
        """Wait until it ends, or is to be ended."""
        while not self._unwanted.is_set():
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LOOK_S)
                return
            if time.monotonic() > until:
                self.kill(Ending.TIMED_OUT)


def _pump(stream: IO[bytes] | None, take: Callable[[bytes], None]) -> None:
    assert stream is not None
    with stream:
        while data := os.read(stream.fileno(), _CHUNK):
            take(data)


def _feed(stream: IO[bytes] | None, data: bytes) -> None:
    assert stream is not None
    with suppress(BrokenPipeError), stream:
        stream.write(data)


def _end_group(leader: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
