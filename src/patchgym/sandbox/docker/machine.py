"""What all sandboxes of one engine share: the engine itself, who runs inside, images, a scratch folder."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import PrerequisiteError
from patchgym.sandbox.docker.engine import Engine
from patchgym.sandbox.docker.images import bare_image, built_image, named_image
from patchgym.sandbox.docker.leases import labels, sweep
from patchgym.sandbox.docker.network import DockerNetwork
from patchgym.sandbox.layered import LayeredSandbox, Room
from patchgym.sandbox.layerfiles import make_whiteout
from patchgym.sandbox.limits import Mechanism
from patchgym.sandbox.protocol import WORKSPACE, SandboxSpec
from patchgym.sandbox.scratch import Scratch, folders
from patchgym.sandbox.services import Templates
from patchgym.sandbox.system import Link, Part, environment_parts, make_etc, mounted_parts, system_parts


def check_docker(host: str | None = None) -> None:
    """Ask the engine whether it is there and can make sandboxes; quick.

    Raises:
        PrerequisiteError: it cannot.
    """
    engine = Engine(host)
    try:
        user_of(engine.check())
    finally:
        engine.close()


class Image:
    """An image and what of this machine shows in it."""

    def __init__(self, name: str, parts: Sequence[Part], settings: Mapping[str, Any], *, ours: bool) -> None:
        self.name, self.parts, self.ours = name, parts, ours
        folder = str(settings.get("WorkingDir") or "/")
        self.workspaces = [WORKSPACE] if folder in ("/", WORKSPACE) else [WORKSPACE, folder]


class Machine(Room):
    """What all sandboxes of a factory share: besides, the engine, and an ``/etc``."""

    def __init__(
        self,
        scratch: Path | None,
        host: str | None,
        objects: ObjectStore,
        service: Callable[[SandboxSpec], LayeredSandbox],
    ) -> None:
        """``service`` makes a sandbox for a service of an empty workspace in ``objects``."""
        self.engine = Engine(host)
        self.user = user_of(self.engine.check())
        sweep(self.engine)
        super().__init__(Scratch(_scratch_parent(scratch), Mechanism("docker")))
        self.etc = self.scratch.path / "etc"
        with disk_errors(self.etc):
            make_etc(self.etc)
        self.templates = Templates(objects.write_tree({}), service)

    def new_network(self) -> DockerNetwork:
        """A network for several containers. Blocking."""
        mine = labels(self.scratch.path)
        return DockerNetwork(self.engine, f"{self.scratch.new_name()}-network", mine, system_parts(self.etc))

    def image_of(self, spec: SandboxSpec) -> Image:
        """The image of a spec: the one that it names, that of its Dockerfile, or one that shows this machine's system
        and the environment."""
        mounted = mounted_parts(spec.mounts)
        if spec.dockerfile is not None or spec.image is not None:
            made = (
                built_image(self.engine, spec.dockerfile)
                if spec.dockerfile is not None
                else named_image(self.engine, spec.image or "")
            )
            settings = self.engine.call("GET", f"/images/{made}/json")["Config"]
            return Image(made, mounted, settings or {}, ours=False)
        parts = system_parts(self.etc)
        if spec.environment is not None:
            parts += environment_parts(spec.environment)
        bare = bare_image(self.engine, [part for part in parts if isinstance(part, Link)])
        return Image(bare, [*parts, *mounted], {}, ours=True)

    def close(self) -> None:
        """Let go of the engine, and the rest."""
        self.templates.close()
        super().close()
        self.engine.close()


def user_of(info: Mapping[str, Any]) -> str:
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
