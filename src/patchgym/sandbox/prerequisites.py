"""Whether this machine can make namespace sandboxes, and where they may write."""

import os
import subprocess
import tempfile
from pathlib import Path

from patchgym.content import disk_errors
from patchgym.errors import PatchgymError, PrerequisiteError, SandboxError
from patchgym.sandbox.bwrap import find_bwrap, fresh_arguments, isolation_arguments, overlay_arguments, part_arguments
from patchgym.sandbox.scratch import folders
from patchgym.sandbox.system import system_parts

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
    scratch_parent(find_bwrap(), scratch.absolute() if scratch else None)


def scratch_parent(bwrap: Path, scratch: Path | None) -> Path:
    """The first folder whose file system an overlay can write to, found by doing it."""
    if scratch is not None:
        with disk_errors(scratch):
            scratch.mkdir(parents=True, exist_ok=True)
    refused: PatchgymError | None = None
    for parent in [scratch] if scratch is not None else folders():
        said = _try_overlay(bwrap, parent)
        if not said:
            return parent
        refused = refusal(said)
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
        command = [str(bwrap), *isolation_arguments(), *part_arguments(system_parts(anything))]
        command += [*fresh_arguments(1 << 20), *overlay_arguments(layers[:1], *layers[1:]), "--", "true"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        return done.stderr.decode(errors="replace").strip() or "It failed silently." if done.returncode else ""


def refusal(said: str) -> PrerequisiteError | SandboxError:
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
