"""The default sandbox: Linux namespaces by bubblewrap, a workspace overlay, control groups or rlimits."""

import asyncio
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from patchgym.content import ObjectStore, cache_root, diff_trees, disk_errors
from patchgym.errors import PatchgymError, PrerequisiteError, SandboxError, StorageError
from patchgym.sandbox.bwrap import (
    environment_arguments,
    find_bwrap,
    isolation_arguments,
    make_etc,
    mount_arguments,
    overlay_arguments,
    system_arguments,
)
from patchgym.sandbox.command import Command, settled
from patchgym.sandbox.layers import workspace_layers
from patchgym.sandbox.limits import Limiter, Mechanism, find_mechanism
from patchgym.sandbox.overlay import Overlay, remove_tree
from patchgym.sandbox.protocol import WORKSPACE, Ending, ExecResult, SandboxSpec
from patchgym.sandbox.scratch import Scratch, folders

_T = TypeVar("_T")
_WORKERS = 4
_VARIABLES = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
}
_SIGNALS = frozenset((*range(1, 17), 24, 25, 26, 27, 29, 30, 31))
_NOT_RUN = (b"bwrap: execvp ", b"bwrap: Can't chdir to ", b"bwrap: Exceeded maximum number of arguments")
_NO_OVERLAY = ("Can't make overlay mount", "No extended attributes in ")
_FORBIDDEN = (
    "No permissions to create a new namespace",
    "Creating new namespace failed",
    "setting up uid map",
    "setting up gid map",
    "error writing to setgroups",
    "unshare user ns",
    "loopback: Failed",
    "Can't mount proc",
    "Failed to make / slave",
    "Failed to mount tmpfs",
)


def check_namespace(scratch: Path | None = None) -> None:
    """Run one command in a namespace with an overlay, as every sandbox will; quick. ``scratch`` as for
    ``NamespaceSandboxes``.

    Raises:
        PrerequisiteError: this machine cannot; it quotes the reason and says what to do.
    """
    _scratch_parent(find_bwrap(), scratch.absolute() if scratch else None)


class NamespaceSandboxes:
    """Makes namespace sandboxes (a ``SandboxFactory``).

    ``objects`` holds the trees and takes in snapshots. ``cache`` (default: patchgym's cache) keeps checkouts by tree
    id. ``scratch`` takes what sandboxes write, on a file system that an overlay can write to (another overlay is none).
    Its default is ``$TMPDIR`` where that is set, else ``/dev/shm`` where it has a gigabyte to spare (what a sandbox
    writes then counts as its memory), else the temporary directory.
    """

    kind = "namespace"

    def __init__(self, objects: ObjectStore, *, cache: Path | None = None, scratch: Path | None = None) -> None:
        self.objects = objects
        self._cache = (cache or cache_root()).absolute() / "workspaces"
        self._parent = scratch.absolute() if scratch else None
        self._ready: _Machine | None = None
        self._lock = threading.Lock()

    async def create(self, spec: SandboxSpec) -> "NamespaceSandbox":
        """A new sandbox; the first one of a tree makes the checkout that later ones share.

        Raises:
            SandboxError: the environment or a mount of ``spec`` cannot be used.
            PrerequisiteError: this machine cannot make namespace sandboxes.
            StorageError: the disk is full.
        """
        return await _kept(asyncio.get_running_loop().run_in_executor(None, self._create, spec))

    def close(self) -> None:
        """Remove the scratch folder. Sandboxes must be closed before. Happens by itself at exit."""
        with self._lock:
            if self._ready is not None:
                self._ready.close()
                self._ready = None

    def _create(self, spec: SandboxSpec) -> "NamespaceSandbox":
        with self._lock:
            machine = self._ready = self._ready or _Machine(self._parent)
            lowers = workspace_layers(self.objects, self._cache, spec.tree, spec.base)
        return NamespaceSandbox(machine, self.objects, spec, lowers)


class _Machine:
    """What all sandboxes of a factory share: the program, the limit mechanism, the scratch folder with ``/etc``, and
    threads of their own, so that file work never queues behind anybody else's."""

    def __init__(self, scratch: Path | None) -> None:
        self.bwrap = find_bwrap()
        self.mechanism: Mechanism = find_mechanism()
        self.scratch = Scratch(_scratch_parent(self.bwrap, scratch), self.mechanism)
        self.workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix="patchgym-sandbox")
        self.etc = self.scratch.path / "etc"
        with disk_errors(self.etc):
            make_etc(self.etc)

    def close(self) -> None:
        """Remove the scratch folder and end the threads."""
        self.workers.shutdown()
        self.scratch.close()


class NamespaceSandbox:
    """One isolated workspace. Each command runs in fresh namespaces; the workspace alone lives on between them.

    Covered, each by a test: no network but a loopback of its own; no host file but ``/usr``, the environment and its
    interpreter, all read-only, without the packages that are installed for the system's or that interpreter's Python;
    no host process, no host environment variable; an unprivileged user without capabilities, who cannot gain any and
    cannot make user namespaces; memory, processes, file size, wall time and kept output bounded; nothing that a command
    starts outlives it; nothing is left after ``close``.

    Not covered: bugs of the kernel, side channels (time, caches, load), a system call filter, CPU time, total disk use
    (each file is bounded, their number is not), and what the read-only system itself tells (its version, its
    programs, host paths in ``/proc/self/mountinfo``). With ``rlimit`` instead of control groups the memory bound holds
    for each process, not for their sum, running out of it is no ``out_of_memory`` but whatever the program makes of a
    failed allocation, and root's process count is not bounded.

    An exit code of 128+n is given as signal n where n ends processes: bubblewrap reports both alike. Each command has
    its own ``/tmp``. Files deeper than 100 folders, or with paths beyond 3,500 bytes, are no part of snapshots.

    A runner that is killed takes its commands along; one killed in the few milliseconds in which a command starts may
    leave that command running until the next start sweeps.
    """

    kind = "namespace"

    def __init__(self, machine: _Machine, objects: ObjectStore, spec: SandboxSpec, lowers: list[Path]) -> None:
        self.spec = spec
        self._machine, self._objects = machine, objects
        self._name = machine.scratch.new_name()
        self._folder = machine.scratch.path / self._name
        self._overlay = Overlay(self._folder / "upper", lowers)
        self._arguments = [
            *_outside(machine, spec),
            *overlay_arguments(lowers, self._overlay.upper, self._folder / "work"),
        ]
        self._arguments += ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]
        self._lock = asyncio.Lock()
        self._running: Command | None = None
        self._closed = False
        with disk_errors(self._folder):
            for folder in (self._folder, self._folder / "upper", self._folder / "work"):
                folder.mkdir(0o755)
        try:
            self._limiter = Limiter(machine.mechanism, self._name, spec.limits)
        except OSError as error:
            remove_tree(self._folder)
            raise SandboxError("A sandbox's control group could not be made", why=str(error)) from error

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
        report: bool = False,
    ) -> ExecResult:
        """Run a command; see ``Sandbox.exec``. ``not_found`` covers every command that could not be started: no such
        program or folder, not executable, a line too long or with a NUL in it; ``stderr`` then says which."""
        async with self._lock:
            self._check_open()
            command = Command(self._limiter.hold, stream_bytes=self.spec.limits.stream_bytes)
            killed_before = self._limiter.oom_kills()
            folder = os.path.normpath(os.path.join(WORKSPACE, cwd))
            arguments = [*self._limiter.launcher(), *self._arguments, *_set(variables or {}), "--chdir", folder]
            try:
                command.start(arguments, argv, stdin=stdin, report=report)
            except (OSError, ValueError) as error:
                command.stderr.add(f"{error}\n".encode())
                return self._result(command, Ending.NOT_FOUND)
            self._running = command
            try:
                timed_out = await command.wait(timeout_s)
            finally:
                self._running = None
            self._check_open()
            return self._result(command, self._ending(command, timed_out, self._limiter.oom_kills() > killed_before))

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

    async def fork(self) -> "NamespaceSandbox":
        """An independent sandbox whose workspace starts as this one's is now: the upper layer is copied."""
        async with self._lock:
            self._check_open()
            return await _kept(asyncio.get_running_loop().run_in_executor(self._machine.workers, self._fork))

    async def close(self) -> None:
        """End a running command and remove every trace. May be called twice."""
        self._closed = True
        if self._running is not None:
            self._running.kill()
        async with self._lock:
            await self._in_worker(self._discard)

    async def _exclusively(self, work: Callable[[], _T]) -> _T:
        async with self._lock:
            self._check_open()
            return await self._in_worker(work)

    async def _in_worker(self, work: Callable[[], _T]) -> _T:
        """Run blocking work and wait for it whatever happens, so that nothing goes on behind the lock's back."""
        return await settled(asyncio.get_running_loop().run_in_executor(self._machine.workers, work))

    def _check_open(self) -> None:
        if self._closed:
            raise SandboxError("The sandbox is closed", why="It was closed before, or while, this was asked of it.")

    def _snapshot(self) -> str:
        return self._objects.update_tree(self.spec.tree, self._overlay.changes(self._objects))

    def _fork(self) -> "NamespaceSandbox":
        twin = NamespaceSandbox(self._machine, self._objects, self.spec, self._overlay.lowers)
        try:
            self._overlay.copy_upper(twin._overlay.upper)
        except (OSError, StorageError):
            twin._discard()
            raise
        return twin

    def _discard(self) -> None:
        remove_tree(self._folder)
        self._limiter.close()

    def _ending(self, command: Command, timed_out: bool, out_of_memory: bool) -> Ending:
        if timed_out:
            return Ending.TIMED_OUT
        if out_of_memory and command.exit_code != 0:
            return Ending.OUT_OF_MEMORY
        if command.exit_code is None:
            said = command.stderr.kept
            if said.startswith(_NOT_RUN):
                return Ending.NOT_FOUND
            raise _refusal(said.decode(errors="replace"))
        return Ending.SIGNALLED if command.exit_code - 128 in _SIGNALS else Ending.EXITED

    def _result(self, command: Command, ending: Ending) -> ExecResult:
        code = command.exit_code
        return ExecResult(
            ending=ending,
            exit_code=code if ending is Ending.EXITED else None,
            signal=code - 128 if ending is Ending.SIGNALLED and code is not None else None,
            stdout=command.stdout.kept,
            stderr=command.stderr.kept,
            stdout_size=command.stdout.size,
            stderr_size=command.stderr.size,
            report=command.report,
            seconds=command.seconds,
            limits_by=self._limiter.kind,
        )


async def _kept(making: "asyncio.Future[NamespaceSandbox]") -> "NamespaceSandbox":
    """The sandbox that is being made; when cancelled meanwhile, it is closed again."""
    try:
        return await settled(making)
    except asyncio.CancelledError:
        if making.exception() is None:
            await making.result().close()
        raise


def _outside(machine: _Machine, spec: SandboxSpec) -> list[str]:
    """The command line up to the workspace: isolation, system, environment, mounts, variables."""
    arguments = [str(machine.bwrap), *isolation_arguments(), *system_arguments(machine.etc, spec.limits.memory_bytes)]
    path = "/usr/bin:/bin"
    if spec.environment is not None:
        arguments += environment_arguments(spec.environment)
        path = f"{spec.environment.absolute()}/bin:{path}"
    return [*arguments, *mount_arguments(spec.mounts), *_set({"PATH": path, **_VARIABLES, **spec.variables})]


def _set(variables: Mapping[str, str]) -> list[str]:
    return [part for name, value in variables.items() for part in ("--setenv", name, value)]


def _scratch_parent(bwrap: Path, scratch: Path | None) -> Path:
    """The first folder whose file system an overlay can write to, found by doing it."""
    if scratch is not None:
        with disk_errors(scratch):
            scratch.mkdir(parents=True, exist_ok=True)
    refused: PatchgymError | None = None
    for parent in [scratch] if scratch is not None else folders():
        said = _try_overlay(bwrap, parent)
        if not said:
            return parent
        refused = _refusal(said)
        if not any(phrase in said for phrase in _NO_OVERLAY):
            break
    raise refused or PrerequisiteError(
        "There is no folder for sandboxes to write to",
        why="The temporary directory and /dev/shm are not writable.",
        mend="Set TMPDIR to a writable folder.",
    )


def _try_overlay(bwrap: Path, parent: Path) -> str:
    """What bubblewrap says against an overlay under ``parent``; empty when it works."""
    with disk_errors(parent), tempfile.TemporaryDirectory(prefix=".patchgym-check-", dir=parent) as name:
        layers = [Path(name, part) for part in ("lower", "upper", "work")]
        for layer in layers:
            layer.mkdir()
        try:
            os.setxattr(layers[1], "user.patchgym", b"y")
        except OSError as error:
            return f"No extended attributes in {parent}: {error}"
        anything = Path("/usr")  # in the place of /etc, which the check does without
        command = [str(bwrap), *isolation_arguments(), *system_arguments(anything, 1 << 20)]
        command += [*overlay_arguments(layers[:1], *layers[1:]), "--", "true"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return done.stderr.decode(errors="replace").strip() or "It failed silently." if done.returncode else ""


def _refusal(said: str) -> PrerequisiteError | SandboxError:
    """bubblewrap's own error as ours, with what to do about it."""
    said = said.strip()[-500:]
    if any(phrase in said for phrase in _NO_OVERLAY):
        return PrerequisiteError(
            "The sandbox's overlay was refused",
            why=said,
            mend="Set TMPDIR to a folder on ext4, xfs, btrfs or tmpfs (not inside a container's own overlay).",
        )
    if any(phrase in said for phrase in _FORBIDDEN):
        return PrerequisiteError(
            "User namespaces are forbidden on this machine",
            why=said,
            mend="Run as root: sysctl -w kernel.unprivileged_userns_clone=1 "
            "kernel.apparmor_restrict_unprivileged_userns=0 (whichever exists), or run patchgym as root.",
        )
    return SandboxError("The sandbox could not run a command", why=said or "bubblewrap was killed from outside.")
