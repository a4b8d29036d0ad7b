"""Sandboxes in containers: the same layers as in namespaces, mounted by a Docker engine of this machine."""

import asyncio
import errno
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore, cache_root, disk_errors
from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.sandbox.command import settled
from patchgym.sandbox.docker.command import Channel, DockerStep
from patchgym.sandbox.docker.container import WAITS, WAITS_UNREAD, Container, Kept, bind
from patchgym.sandbox.docker.engine import Engine
from patchgym.sandbox.docker.images import bare_image, built_image, named_image
from patchgym.sandbox.docker.leases import labels, sweep
from patchgym.sandbox.docker.network import DockerNetwork
from patchgym.sandbox.layered import LayeredSandbox, Room, kept, place_of, variables_of
from patchgym.sandbox.layerfiles import make_whiteout
from patchgym.sandbox.layers import workspace_layers
from patchgym.sandbox.limits import Mechanism, is_memory
from patchgym.sandbox.protocol import WORKSPACE, Ending, ExecResult, SandboxSpec
from patchgym.sandbox.scratch import Scratch, folders
from patchgym.sandbox.seccomp import seccomp_profile
from patchgym.sandbox.services import Company, Templates
from patchgym.sandbox.stack import Below, Checkouts, Layer
from patchgym.sandbox.system import Empty, Link, Part, Shown, environment_parts, make_etc, mounted_parts, system_parts

_INSIDE = "/run/patchgym/channel"
_FIRST_LOOK_S, _LAST_LOOK_S, _SLOWER = 0.01, 0.25, 1.5
_PATIENCE_S, _DRAIN_S, _GLANCE_S = 10.0, 5.0, 0.1
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
        self._ready: _Machine | None = None
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
            machine = self._ready = self._ready or _Machine(self._parent, self._host, self)
            lowers = workspace_layers(self.objects, self._cache, spec.tree, spec.base)
            image = machine.image_of(spec)
        return DockerSandbox(machine, self.objects, spec, image, Checkouts(spec.tree, lowers))


def check_docker(host: str | None = None) -> None:
    """Ask the engine whether it is there and can make sandboxes; quick.

    Raises:
        PrerequisiteError: it cannot.
    """
    engine = Engine(host)
    try:
        _user(engine.check())
    finally:
        engine.close()


class _Image:
    """An image and what of this machine shows in it."""

    def __init__(self, name: str, parts: Sequence[Part], settings: Mapping[str, Any], *, ours: bool) -> None:
        self.name, self.parts, self.ours = name, parts, ours
        folder = str(settings.get("WorkingDir") or "/")
        self.workspaces = [WORKSPACE] if folder in ("/", WORKSPACE) else [WORKSPACE, folder]


class _Machine(Room):
    """What all sandboxes of a factory share: besides, the engine, and an ``/etc``."""

    def __init__(self, scratch: Path | None, host: str | None, factory: DockerSandboxes) -> None:
        self.engine = Engine(host)
        self.user = _user(self.engine.check())
        sweep(self.engine)
        super().__init__(Scratch(_scratch_parent(scratch), Mechanism("docker")))
        self.etc = self.scratch.path / "etc"
        with disk_errors(self.etc):
            make_etc(self.etc)
        self.templates = Templates(factory.objects.write_tree({}), factory._service)

    def new_network(self) -> "DockerNetwork":
        """A network for several containers. Blocking."""
        mine = labels(self.scratch.path)
        return DockerNetwork(self.engine, f"{self.scratch.new_name()}-network", mine, system_parts(self.etc))

    def image_of(self, spec: SandboxSpec) -> _Image:
        """The image of a spec: the one that it names, that of its Dockerfile, or one that shows this machine's system
        and the environment."""
        mounted = mounted_parts(spec.mounts)
        if spec.dockerfile is not None or spec.image is not None:
            made = (
                built_image(self.engine, spec.dockerfile)
                if spec.dockerfile is not None
                else named_image(self.engine, spec.image or "")
            )
            made = (
                built_image(self.engine, spec.dockerfile)
                if spec.dockerfile
                else named_image(self.engine, spec.image or "")
            )
            settings = self.engine.call("GET", f"/images/{made}/json")["Config"]
            return _Image(made, mounted, settings or {}, ours=False)
        parts = system_parts(self.etc)
        if spec.environment is not None:
            parts += environment_parts(spec.environment)
        bare = bare_image(self.engine, [part for part in parts if isinstance(part, Link)])
        return _Image(bare, [*parts, *mounted], {}, ours=True)

    def close(self) -> None:
        """Let go of the engine, and the rest."""
        self.templates.close()
        super().close()
        self.engine.close()


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

    def __init__(self, machine: _Machine, objects: ObjectStore, spec: SandboxSpec, image: _Image, below: Below) -> None:
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
            except SandboxError:
                await self._in_worker(self._stop)
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
                raise SandboxError("The sandbox was lost", why="Its first process was ended from outside.")
            if code is not None:
                break
            if time.monotonic() >= until:
                step.kill(Ending.TIMED_OUT)
            if step.unwanted.is_set():
                await self._in_worker(lambda: container.end_others(self._left))
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


def _user(info: Mapping[str, Any]) -> str:
    """Who runs inside: this user, so that what is written belongs to us.

    Raises:
        PrerequisiteError: the engine gives users other numbers.
    """
    options = " ".join(info.get("SecurityOptions") or ())
    if "name=rootless" in options:
        return "0:0"  # which is this user outside
    if "name=userns" in options:
        raise PrerequisiteError(
            "The Docker engine maps users (userns-remap)",
            why="What a container writes would not belong to this user.",
            mend="Use an engine without userns-remap, or a rootless one.",
        )
    return f"{os.geteuid()}:{os.getegid()}"


def _scratch_parent(scratch: Path | None) -> Path:
    """The first folder whose file system an overlay can write to.

    Raises:
        PrerequisiteError: there is none.
    """
    refused = ""
    for parent in [scratch] if scratch is not None else folders():
        with disk_errors(parent):
            parent.mkdir(parents=True, exist_ok=True)
        probe = parent / f".patchgym-check-{os.getpid()}"
        try:
            make_whiteout(probe)
            os.setxattr(parent, "user.patchgym", b"y")
            os.removexattr(parent, "user.patchgym")
        except OSError as error:
            refused = str(error)
        else:
            return parent
        finally:
            probe.unlink(missing_ok=True)
    raise PrerequisiteError(
        "There is no folder for sandboxes to write to",
        why=refused or "The temporary directory and /dev/shm are not writable.",
        mend="Set TMPDIR to a folder on ext4, xfs, btrfs or tmpfs (not inside a container's own overlay).",
    )
