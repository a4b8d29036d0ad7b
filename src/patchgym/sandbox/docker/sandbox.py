"""Sandboxes in containers: the same layers as in namespaces, mounted by a Docker engine of this machine."""

import asyncio
import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore, cache_root, disk_errors
from patchgym.errors import SandboxError
from patchgym.sandbox.command import settled
from patchgym.sandbox.docker.command import Channel, DockerStep
from patchgym.sandbox.docker.container import WAITS, WAITS_UNREAD, Container, Kept, bind
from patchgym.sandbox.docker.leases import labels
from patchgym.sandbox.docker.machine import Image, Machine, check_docker
from patchgym.sandbox.docker.network import DockerNetwork
from patchgym.sandbox.layered import LayeredSandbox, kept, place_of, variables_of
from patchgym.sandbox.layers import workspace_layers
from patchgym.sandbox.limits import is_memory
from patchgym.sandbox.protocol import WORKSPACE, Ending, ExecResult, SandboxSpec
from patchgym.sandbox.seccomp import seccomp_profile
from patchgym.sandbox.services import Company
from patchgym.sandbox.stack import Below, Checkouts, Layer
from patchgym.sandbox.system import Empty, Shown

_INSIDE = "/run/patchgym/channel"
_FIRST_LOOK_S, _LAST_LOOK_S, _SLOWER = 0.01, 0.25, 1.5
_PATIENCE_S, _DRAIN_S, _GLANCE_S = 10.0, 5.0, 0.1
_KILLED = 128 + signal.SIGKILL
_OPEN_FILES = 4096
_READ_ONLY = [f"/proc/{name}" for name in ("bus", "fs", "irq", "sys", "sysrq-trigger")] + ["/dev"]
_SERVICE_USER = "1000:1000"
_LONGEST = 32 * 4096  # MAX_ARG_STRLEN: the kernel takes no longer argument


class DockerSandboxes:
    """Makes sandboxes in containers (a ``SandboxFactory``).

    ``objects`` holds the trees and takes in snapshots; ``cache`` and ``scratch`` as for ``NamespaceSandboxes``.
    ``host`` is the engine's ``unix://`` address (default: ``DOCKER_HOST``, or the usual one).
    """

    kind = "docker"
    isolates = True

    def __init__(
        self, objects: ObjectStore, *, cache: Path | None = None, scratch: Path | None = None, host: str | None = None
    ) -> None:
        self.objects = objects
        self._cache = (cache or cache_root()).absolute() / "workspaces"
        self._parent = scratch.absolute() if scratch else None
        self._host = host
        self._ready: Machine | None = None
        self._lock = threading.Lock()

    @staticmethod
    def check() -> None:
        """See ``SandboxKind.check``."""
        check_docker()

    async def create(self, spec: SandboxSpec) -> "DockerSandbox":
        """A new sandbox; the first one of a tree makes the checkout that later ones share, the first one of an image
        pulls or builds it.

        Raises:
            SandboxError: the environment, the image or a mount of ``spec`` cannot be used.
            PrerequisiteError: there is no engine that can make sandboxes.
            StorageError: the disk is full.
        """
        made = await kept(asyncio.get_running_loop().run_in_executor(None, self._create, spec))
        if not spec.services:
            return made
        return await made.joined(Company(spec.services, made.machine.templates, made.machine.new_network))

    def close(self) -> None:
        """Remove the scratch folder. Sandboxes must be closed before. Happens by itself at exit."""
        with self._lock:
            if self._ready is not None:
                self._ready.close()
                self._ready = None

    def _service(self, spec: SandboxSpec) -> "DockerSandbox":
        """A sandbox for a service, which does not run as root: many a server refuses that."""
        made = self._create(spec)
        if os.geteuid() == 0:
            made.user = _SERVICE_USER
        return made

    def _create(self, spec: SandboxSpec) -> "DockerSandbox":
        with self._lock:
            machine = self._ready = self._ready or Machine(self._parent, self._host, self.objects, self._service)
            lowers = workspace_layers(self.objects, self._cache, spec.tree, spec.base)
            image = machine.image_of(spec)
        return DockerSandbox(machine, self.objects, spec, image, Checkouts(spec.tree, lowers))


class DockerSandbox(LayeredSandbox):
    """One isolated workspace in a container, which lives from the first command to the end.

    Covered, each by a test, is what the namespace kind covers (see there): no network but a loopback, no host file but
    ``/usr``, the environment and its interpreter, all read-only; a read-only root; no capabilities and none to gain; no
    system call of ``patchgym.sandbox.seccomp``; the same limits. With an image of the task's own its files take the
    place of this machine's.

    Not covered, besides what the namespace kind does not cover: there is no user namespace of its own, so that code
    runs as the user that runs patchgym (root, for root) without capabilities; the engine itself runs as root. Where
    that user is not root, code inside can read the memory of the container's first process, which knows nothing. An
    exit code of 128 and more is taken for the signal of that number, as the engine does not tell the two apart.
    Arguments and variables must be UTF-8. A runner that is killed leaves its containers until the next start sweeps
    them.

    The workspace is at ``/workspace`` and, in an image that names another working folder, there as well.
    """

    kind = "docker"

    def __init__(self, machine: Machine, objects: ObjectStore, spec: SandboxSpec, image: Image, below: Below) -> None:
        super().__init__(machine, objects, spec, below)
        self.machine, self._image = machine, image
        self._container: Container | None = None
        self._running: DockerStep | None = None
        self._left: tuple[Kept, ...] = ()
        self.user = machine.user
        self._channels = machine.scratch.path / f"{self._name}-channel"
        with ExitStack() as undo, disk_errors(self._channels):
            undo.callback(self._overlay.remove)
            self._channels.mkdir(0o755)
            undo.pop_all()

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
        """Run a command; see ``Sandbox.exec``. ``not_found`` covers every command that could not be started."""
        told = {**self._variables(), **(variables or {})}
        async with self._lock:
            self._check_open()
            refused = _refusal(argv, told)
            if refused:
                step = DockerStep(self.spec.limits, self._overlay.folder, None)
                step.not_run = refused
                return await self._in_worker(lambda: step.result(self._objects, "none"))
            container = await self._in_worker(self._alive)
            self._check_open()  # it may have been closed meanwhile
            with disk_errors(self._channels):
                channel = Channel(self._channels, _INSIDE) if report else None
            step = DockerStep(self.spec.limits, self._overlay.folder, channel)
            try:
                line = channel.wrap(argv) if channel is not None else list(argv)
                told = {**told, **(channel.variables if channel is not None else {})}
                await self._run(step, container, line, place_of(cwd), told, timeout_s, stdin=stdin, keep=keep)
            except SandboxError as error:
                lost = container.lost
                await self._in_worker(self._stop)
                if lost:  # whatever the engine made of that
                    raise SandboxError(
                        "The sandbox was lost", why="Its first process was ended from outside."
                    ) from error
                raise
            finally:
                step.close()
            self._check_open()
            return await self._in_worker(lambda: step.result(self._objects, container.limits_by))

    async def _run(
        self,
        step: DockerStep,
        container: Container,
        argv: list[str],
        cwd: str,
        variables: Mapping[str, str],
        timeout_s: float,
        *,
        stdin: bytes,
        keep: bool,
    ) -> None:
        killed_before, began = container.oom_kills, time.monotonic()
        self._running = step  # whose end may be asked for before it has begun
        name, attached = await self._in_worker(lambda: container.begin(argv, cwd, variables))
        step.listen(attached, stdin)
        watching = asyncio.ensure_future(self._watch(step, in_memory=is_memory(self._overlay.upper)))
        ending = asyncio.ensure_future(self._end(step, container, name, began + timeout_s, keep=keep))
        try:
            code, begun = await asyncio.shield(ending)
        except asyncio.CancelledError:
            step.kill()
            await settled(ending)
            raise
        finally:
            watching.cancel()
            self._running = None
        step.seconds = time.monotonic() - began
        step.settle(code, begun=begun)
        if container.oom_kills > killed_before and code != 0 and step.ended_by is None:
            step.ended_by = Ending.OUT_OF_MEMORY

    async def _end(
        self, step: DockerStep, container: Container, name: str, until: float, *, keep: bool
    ) -> tuple[int, bool]:
        """Wait for the end of a command, and end all that may not go on."""
        pause, patience = _FIRST_LOOK_S, _PATIENCE_S
        while True:
            code, begun = await self._in_worker(lambda: container.state(name))
            if container.lost:
                raise SandboxError("The sandbox was lost", why="Its first process ended.")
            if code is not None:
                break
            if time.monotonic() >= until:
                step.kill(Ending.TIMED_OUT)
            if step.unwanted.is_set():
                living = await self._in_worker(lambda: container.end_others(self._left))
                if begun and not living and patience < _PATIENCE_S / 2:
                    # Nothing is left of it, and the engine does not notice: it misses ends when many come at once.
                    code = _KILLED
                    break
                patience -= _FIRST_LOOK_S
                pause = _FIRST_LOOK_S
            if patience < 0:
                raise SandboxError("The sandbox was lost", why="A command could not be ended.")
            for event in (step.quiet, step.unwanted):
                if not event.is_set():
                    with suppress(TimeoutError):
                        await asyncio.wait_for(event.wait(), max(0.0, min(pause, until - time.monotonic())))
                    break
            else:
                await asyncio.sleep(_FIRST_LOOK_S)
            pause = min(_LAST_LOOK_S, pause * _SLOWER)
        if keep and step.ended_by is None:
            self._left = tuple(await self._in_worker(container.living))
        else:
            await self._in_worker(lambda: self._clear(container))
        with suppress(TimeoutError):  # who goes on may hold a stream
            await asyncio.wait_for(step.quiet.wait(), _GLANCE_S if self._left else _DRAIN_S)
        return code, begun

    def _clear(self, container: Container) -> None:
        until = time.monotonic() + _PATIENCE_S
        while container.end_others(self._left):
            if time.monotonic() > until:
                raise SandboxError("The sandbox was lost", why="What a command left running could not be ended.")
            time.sleep(0.0005)

    def _variables(self) -> dict[str, str]:
        told = variables_of(self.spec)
        if not self._image.ours:
            del told["PATH"]  # the image's own
        return told

    def _alive(self) -> Container:
        """The container, begun where there is none. Blocking."""
        if self._container is None:
            layer = self._overlay
            if self.user != self.machine.user:
                os.chown(layer.upper, *map(int, self.user.split(":")))
            self._container = Container(self.machine.engine, layer.folder.name, self._options(layer))
            layer.mounted = self._container.root
        return self._container

    def _options(self, layer: Layer) -> dict[str, Any]:
        """What the engine is told of the container."""
        machine, image, limits = self.machine, self._image, self.spec.limits
        mine = labels(machine.scratch.path)
        return {
            "Image": image.name,
            "Entrypoint": WAITS_UNREAD if image.ours and os.geteuid() == 0 else WAITS,
            "Cmd": [],
            "OpenStdin": True,
            "User": self.user,
            "WorkingDir": WORKSPACE,
            **({"Hostname": "sandbox", "NetworkDisabled": True} if self.network is None else {}),
            "Labels": mine,
            "Healthcheck": {"Test": ["NONE"]},
            "HostConfig": {
                "NetworkMode": f"container:{self.network.id}" if isinstance(self.network, DockerNetwork) else "none",
                "ReadonlyRootfs": True,
                "CapDrop": ["ALL"],
                "ReadonlyPaths": _READ_ONLY,
                "SecurityOpt": ["no-new-privileges", f"seccomp={seccomp_profile()}"],
                "Memory": limits.memory_bytes,
                "MemorySwap": limits.memory_bytes,
                "PidsLimit": limits.processes,
                "ShmSize": limits.memory_bytes,
                "Ulimits": [
                    {"Name": name, "Soft": most, "Hard": most}
                    for name, most in {
                        "cpu": limits.cpu_seconds,
                        "fsize": limits.file_bytes,
                        "core": 0,
                        "nofile": _OPEN_FILES,
                    }.items()
                ],
                "Tmpfs": {
                    "/tmp": f"exec,nosuid,nodev,mode=1777,size={limits.memory_bytes}",
                    "/sys": "ro,size=4k",
                    **{part.place: "ro,size=4k" for part in image.parts if isinstance(part, Empty)},
                },
                "Mounts": [
                    *(bind(part.source, part.place) for part in image.parts if isinstance(part, Shown)),
                    bind(self._channels, _INSIDE),
                    *(_workspace(layer, place, mine) for place in image.workspaces),
                ],
            },
        }

    def _twin(self, below: Below) -> "DockerSandbox":
        twin = DockerSandbox(self.machine, self._objects, self.spec, self._image, below)
        twin.user = self.user
        return twin

    def _interrupt(self) -> None:
        if self._running is not None:
            self._running.kill()

    def _let_go(self) -> Callable[[], None] | None:
        container, self._container = self._container, None
        self._overlay.mounted = -1
        self._left = ()
        if container is None:
            return None
        volume = self._overlay.folder.name

        def end() -> None:
            container.stop()
            self.machine.engine.call("DELETE", f"/volumes/{volume}", absent=True)

        return end

    def _release(self) -> None:
        self._channels.rmdir()

    @property
    def _keeps(self) -> bool:
        return bool(self._left)


def _workspace(layer: Layer, place: str, mine: Mapping[str, str]) -> dict[str, Any]:
    """The layers as a volume, which goes by the name of the one that is written to.

    Raises:
        SandboxError: a path holds what the option of a mount cannot.
    """
    paths = [str(path) for path in (*layer.lowers, layer.upper, layer.work)]
    if any(mark in path for path in paths for mark in ",:\\"):
        raise SandboxError(
            "A workspace's folders cannot be mounted",
            why=f"One of these has a comma, a colon or a backslash in its path: {' '.join(paths)}",
            mend="Set TMPDIR and PATCHGYM_CACHE to folders without them.",
        )
    *lowers, upper, work = paths
    options = f"lowerdir={':'.join(lowers)},upperdir={upper},workdir={work},userxattr"
    driver = {"Name": "local", "Options": {"type": "overlay", "device": "overlay", "o": options}}
    return {
        "Type": "volume",
        "Source": layer.folder.name,
        "Target": place,
        "VolumeOptions": {"NoCopy": True, "Labels": dict(mine), "DriverConfig": driver},
    }


def _refusal(argv: Sequence[str], variables: Mapping[str, str]) -> str:
    """Why a command cannot be asked for; empty where it can."""
    if not argv:
        return "There is no command."
    for text in (*argv, *variables, *variables.values()):
        if "\0" in text:
            return "embedded null byte"
        try:
            size = len(text.encode())
        except UnicodeEncodeError as error:
            return f"The engine takes nothing but UTF-8: {error}"
        if size >= _LONGEST:  # an exit code of 1 is all that the engine makes of it
            return f"{argv[0]}: {os.strerror(errno.E2BIG)}"
    return ""
