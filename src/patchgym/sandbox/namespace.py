"""The default sandbox: Linux namespaces by bubblewrap, a workspace overlay, control groups or rlimits."""

import asyncio
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patchgym.content import ObjectStore, cache_root, disk_errors
from patchgym.errors import SandboxError
from patchgym.sandbox.bwrap import find_bwrap, fresh_arguments, isolation_arguments, overlay_arguments, part_arguments
from patchgym.sandbox.command import Command, NeverBegun, Process
from patchgym.sandbox.layered import LayeredSandbox, Room, kept, place_of, variables_of
from patchgym.sandbox.layers import workspace_layers
from patchgym.sandbox.limits import Limiter, Mechanism, find_mechanism, is_memory
from patchgym.sandbox.living import Living, Spawner
from patchgym.sandbox.network import NamespaceNetwork
from patchgym.sandbox.prerequisites import check_namespace, refusal, scratch_parent
from patchgym.sandbox.protocol import Ending, ExecResult, SandboxSpec, refuse_images
from patchgym.sandbox.scratch import Scratch
from patchgym.sandbox.services import Company, Templates
from patchgym.sandbox.stack import Below, Checkouts
from patchgym.sandbox.system import Part, environment_parts, make_etc, mounted_parts, system_parts


class NamespaceSandboxes:
    """Makes namespace sandboxes (a ``SandboxFactory``).

    ``objects`` holds the trees and takes in snapshots. ``cache`` (default: patchgym's cache) keeps checkouts by tree
    id. ``scratch`` takes what sandboxes write, on a file system that an overlay can write to (another overlay is none).
    Its default is ``$TMPDIR`` where that is set, else ``/dev/shm`` where it has a gigabyte to spare (what a sandbox
    writes then counts as its memory), else the temporary directory.
    """

    kind = "namespace"
    isolates = True

    def __init__(self, objects: ObjectStore, *, cache: Path | None = None, scratch: Path | None = None) -> None:
        self.objects = objects
        self._cache = (cache or cache_root()).absolute() / "workspaces"
        self._parent = scratch.absolute() if scratch else None
        self._ready: _Machine | None = None
        self._lock = threading.Lock()

    @staticmethod
    def check() -> None:
        """See ``SandboxKind.check``."""
        check_namespace()

    async def create(self, spec: SandboxSpec) -> "NamespaceSandbox":
        """A new sandbox; the first one of a tree makes the checkout that later ones share.

        Raises:
            SandboxError: the environment or a mount of ``spec`` cannot be used.
            PrerequisiteError: this machine cannot make namespace sandboxes, or ``spec`` asks for an image.
            StorageError: the disk is full.
        """
        made = await kept(asyncio.get_running_loop().run_in_executor(None, self._create, spec))
        return await made.joined(self._company(made.machine, spec)) if spec.services else made

    def close(self) -> None:
        """Remove the scratch folder. Sandboxes must be closed before. Happens by itself at exit."""
        with self._lock:
            if self._ready is not None:
                self._ready.close()
                self._ready = None

    def _company(self, machine: "_Machine", spec: SandboxSpec) -> Company:
        return Company(spec.services, machine.templates, lambda: NamespaceNetwork(machine.bwrap, machine.scratch.path))

    def _create(self, spec: SandboxSpec) -> "NamespaceSandbox":
        refuse_images(spec, self.kind)
        with self._lock:
            machine = self._ready = self._ready or _Machine(self._parent, self)
            lowers = workspace_layers(self.objects, self._cache, spec.tree, spec.base)
        return NamespaceSandbox(machine, self.objects, spec, Checkouts(spec.tree, lowers))


class _Machine(Room):
    """What all sandboxes of a factory share: besides, the program, the limit mechanism, what starts commands, and an
    ``/etc``."""

    def __init__(self, scratch: Path | None, factory: NamespaceSandboxes) -> None:
        self.bwrap = find_bwrap()
        self.mechanism: Mechanism = find_mechanism()
        self.spawner = Spawner()
        super().__init__(Scratch(scratch_parent(self.bwrap, scratch), self.mechanism))
        self.holds_files = self.mechanism.kind != "rlimit" and is_memory(self.scratch.path)
        self.etc = self.scratch.path / "etc"
        with disk_errors(self.etc):
            make_etc(self.etc)
        self.templates = Templates(factory.objects.write_tree({}), factory._create)
        self.system = system_parts(self.etc)
        self._environments: dict[Path, list[Part]] = {}

    def environment(self, folder: Path | None) -> list[Part]:
        """What shows of a built environment, looked up once: it does not change under a run.

        Raises:
            SandboxError: it cannot be used.
        """
        if folder is None:
            return []
        if folder not in self._environments:
            self._environments[folder] = environment_parts(folder)
        return self._environments[folder]

    def close(self) -> None:
        """End what starts commands, and the rest."""
        self.templates.close()
        self.spawner.close()
        super().close()


class NamespaceSandbox(LayeredSandbox):
    """One isolated workspace. Its namespaces live from the first command to the end; each command is a process in them.

    Covered, each by a test: no network but a loopback of its own; no host file but ``/usr``, the environment and its
    interpreter, all read-only, without the packages that are installed for the system's or that interpreter's Python;
    no host process, no host environment variable; an unprivileged user without capabilities, who cannot gain any and
    cannot make user namespaces; no system call of ``patchgym.sandbox.seccomp``; memory, processes, file size, disk,
    wall time, output and each process's CPU time bounded; nothing that a command starts outlives it, save with
    ``keep``; what starts commands is outside and out of reach, and the first process inside cannot be stopped, traced
    or read; nothing is left after ``close``.

    Not covered: bugs of the kernel, side channels (time, caches, load), and what the read-only system itself tells (its
    version, its programs, host paths in ``/proc/self/mountinfo``). Run by root, code inside is the host's root without
    capabilities: what nothing but the permissions of a file keeps from others, a read-only mount must keep from it.
    With ``rlimit`` instead of control groups the memory bound holds for each process, not for their sum, running out of
    it is no ``out_of_memory`` but whatever the program makes of a failed allocation, and root's process count is not
    bounded. On machines other than x86-64 and arm64 no system call is filtered.

    ``/tmp`` lives as long as the sandbox. Files deeper than 100 folders, or with paths beyond 3,500 bytes, are no part
    of snapshots. ``fork`` takes the same time whatever was written: what was written until then becomes a layer that
    both share. With processes kept running it is copied instead.

    A runner that is killed takes its commands along; one killed in the few milliseconds in which a sandbox starts may
    leave it running until the next start sweeps.
    """

    kind = "namespace"

    def __init__(self, machine: _Machine, objects: ObjectStore, spec: SandboxSpec, below: Below) -> None:
        super().__init__(machine, objects, spec, below)
        self.machine = machine
        self._running: Command | None = None
        self._living: Living | None = None
        self._left: tuple[Process, ...] = ()
        try:
            self._outside = _outside(machine, spec)
            self._limiter = Limiter(machine.mechanism, self._name, spec.limits)
        except SandboxError:
            self._overlay.remove()
            raise
        except OSError as error:
            self._overlay.remove()
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
        keep: bool = False,
    ) -> ExecResult:
        """Run a command; see ``Sandbox.exec``. ``not_found`` covers every command that could not be started: no such
        program or folder, not executable, a line too long or with a NUL in it; ``stderr`` then says which."""
        given, refused = [], "There is no command."
        try:
            given = [os.fsencode(part).hex() for part in argv]
        except UnicodeEncodeError as error:
            refused = str(error)
        request = {
            "argv": given,
            "cwd": place_of(cwd),
            "variables": {**variables_of(self.spec), **(variables or {})},
            "limits": self._limiter.bounds(),
            "keep": keep,
        }
        async with self._lock:
            self._check_open()
            command = Command(self.spec.limits, self._overlay.folder)
            if not given:
                command.not_run = refused
                return command.result(self._objects, self._limiter.kind)
            try:
                await self._run(command, request, timeout_s, stdin=stdin, report=report)
            except NeverBegun:
                command = Command(self.spec.limits, self._overlay.folder)
                await self._run(command, request, timeout_s, stdin=stdin, report=report)
            if not (command.stdout.is_cut or command.stderr.is_cut):  # nothing to store, and a thread costs its time
                return command.result(self._objects, self._limiter.kind)
            return await self._in_worker(lambda: command.result(self._objects, self._limiter.kind))

    async def _run(
        self, command: Command, request: Mapping[str, object], timeout_s: float, *, stdin: bytes, report: bool
    ) -> None:
        living = await self._alive()
        killed_before = self._limiter.oom_kills()
        request = {**request, "kept": self._left}
        self._running = command
        watching = asyncio.ensure_future(self._watch(command, in_memory=self.machine.holds_files))
        try:
            command.start(living, request, self._limiter, stdin=stdin, report=report)
            await command.wait(timeout_s)
            if living.lost:
                raise SandboxError("The sandbox was lost", why="Its first process was ended from outside.")
        except SandboxError:  # nobody ends what it started but the end of all
            await self._in_worker(self._stop)
            raise
        finally:
            watching.cancel()
            self._running = None
            self._left = command.kept
        self._check_open()
        if self._limiter.oom_kills() > killed_before and command.exit_code != 0 and command.ended_by is None:
            command.ended_by = Ending.OUT_OF_MEMORY

    async def _alive(self) -> Living:
        """The sandbox's namespaces, begun where there are none.

        Raises:
            SandboxError, PrerequisiteError: they cannot be.
        """
        if self._living is None:
            layers = overlay_arguments(self._overlay.lowers, self._overlay.upper, self._overlay.work)
            sealed = ["--remount-ro", "/proc", "--remount-ro", "/dev", "--remount-ro", "/"]
            network = self.network if isinstance(self.network, NamespaceNetwork) else None
            entering, sharing = (network.enter, ["--share-net"]) if network is not None else ([], [])
            arguments = [*entering, *self._outside, *sharing, *layers, *sealed]
            self._living = Living(self.machine.spawner, arguments, network.namespaces if network is not None else ())
        said = await self._living.ready()
        if said:
            self._retire()
            raise refusal(said)
        self._overlay.mounted = self._living.root
        return self._living

    def _twin(self, below: Below) -> "NamespaceSandbox":
        return NamespaceSandbox(self.machine, self._objects, self.spec, below)

    def _interrupt(self) -> None:
        if self._running is not None:
            self._running.kill()

    def _let_go(self) -> Callable[[], None] | None:
        living, self._living = self._living, None
        self._overlay.mounted = -1
        if living is None:
            return None
        living.kill()
        return living.stop

    def discard(self) -> None:
        """See ``LayeredSandbox.discard``. The control groups go while the kernel takes the namespaces apart."""
        end = self._let_go()
        self._limiter.close()
        if end is not None:
            end()
        super().discard()

    def _release(self) -> None:
        """Nothing else is held."""

    @property
    def _keeps(self) -> bool:
        return bool(self._left)


def _outside(machine: _Machine, spec: SandboxSpec) -> list[str]:
    """The command line up to the workspace: isolation, system, environment, mounts."""
    system = [*part_arguments(machine.system), *fresh_arguments(spec.limits.memory_bytes)]
    parts = [*machine.environment(spec.environment), *mounted_parts(spec.mounts)]
    return [str(machine.bwrap), *isolation_arguments(), *system, *part_arguments(parts)]
