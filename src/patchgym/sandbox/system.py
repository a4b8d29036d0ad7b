"""What of this machine a sandbox sees: the read-only system, a built environment, what else a task brings along.

It is said in parts that every isolating kind can lay out in its own way: folders and files that show through,
symbolic links, and empty folders that cover what must not show.
"""

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchgym.errors import PrerequisiteError, SandboxError
from patchgym.sandbox.protocol import WORKSPACE

_ROOT_FOLDERS = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_SYSTEM = tuple(Path("/", name) for name in ("usr", *_ROOT_FOLDERS))
_ETC_FILES = {
    "passwd": "root:x:0:0:root:/:/usr/sbin/nologin\nuser:x:1000:1000:user:/tmp:/bin/sh\n",
    "group": "root:x:0:\nuser:x:1000:\n",
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
    "hostname": "sandbox\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\nservices: files\nprotocols: files\n",
    "resolv.conf": "",
}
_ETC_COPIES = ("ld.so.cache", "localtime", "services", "protocols", "os-release", "debian_version")


@dataclass(frozen=True)
class Shown:
    """A file or folder of this machine, read-only at ``place``."""

    source: Path
    place: str


@dataclass(frozen=True)
class Link:
    """A symbolic link at ``place``."""

    target: str
    place: str


@dataclass(frozen=True)
class Empty:
    """An empty read-only folder over ``place``."""

    place: str


Part = Shown | Link | Empty
"""One part of what is seen. A later one lies over an earlier one."""


def system_parts(etc: Path) -> list[Part]:
    """``/usr`` without the packages of its Pythons, what leads into it, and our own ``/etc``."""
    usr = Path("/usr")
    parts: list[Part] = [Shown(usr, "/usr"), *_without_packages(usr), *_without_packages(usr / "local")]
    for name in _ROOT_FOLDERS:
        path = f"/{name}"
        if os.path.islink(path):
            parts.append(Link(os.readlink(path), path))
        elif os.path.isdir(path):
            parts.append(Shown(Path(path), path))
    return [*parts, Shown(etc, "/etc")]


def mounted_parts(mounts: Mapping[str, Path]) -> list[Part]:
    """Further read-only files and folders.

    Raises:
        SandboxError: one is asked for inside the workspace, where it would leave a trace, or does not exist.
    """
    parts: list[Part] = []
    for inside, host in mounts.items():
        place = os.path.normpath(inside)
        if not place.startswith("/") or place == "/" or f"{place}/".startswith(f"{WORKSPACE}/"):
            raise SandboxError(f"Cannot mount {host} at {inside!r}", why="The place is not outside the workspace.")
        if not host.exists():
            raise SandboxError(f"Cannot mount {host} at {inside}", why="There is no such file or folder.")
        parts.append(Shown(host.absolute(), place))
    return parts


def make_etc(folder: Path) -> None:
    """Fill an ``/etc`` with what programs need to resolve users, names and libraries, and nothing of this machine's;
    and with the program of the first process, which nobody may read (``patchgym.sandbox.living``).

    Raises:
        PrerequisiteError: there is no ``cat``.
    """
    folder.mkdir()
    waits = shutil.which("cat", path=os.defpath)
    if waits is None:
        raise PrerequisiteError("There is no cat on this machine", mend="Install coreutils.")
    (folder / "first").mkdir()
    shutil.copyfile(waits, folder / "first" / "cat")
    (folder / "first" / "cat").chmod(0o111)
    for name, text in _ETC_FILES.items():
        (folder / name).write_text(text, encoding="ascii")
    for name in _ETC_COPIES:
        host = Path("/etc", name)
        if host.is_file() and os.access(host, os.R_OK):
            shutil.copyfile(host, folder / name)
    alternatives = Path("/etc/alternatives")
    if alternatives.is_dir():
        (folder / "alternatives").mkdir()
        for link in alternatives.iterdir():
            if link.is_symlink():
                (folder / "alternatives" / link.name).symlink_to(os.readlink(link))


def environment_parts(environment: Path) -> list[Part]:
    """A virtual environment read-only at its own path, with the interpreter that it was made from.

    Of the folder that the interpreter lives in (a home directory, at times) only the interpreter's own prefix is shown,
    without the packages installed there, and the symbolic links that lead to it are made again.

    Raises:
        SandboxError: the directory is no virtual environment, or its interpreter is not to be found.
    """
    environment = environment.absolute()
    home = _home(environment)
    links, ends = [], []
    for start in (environment / "bin" / "python", home):
        hop = start.parent / os.readlink(start) if start.is_symlink() and start != home else start
        passed, end = _trail(hop)
        links += passed
        ends.append(end)
    shown = [environment]
    python = ends[0]
    if not _is_inside(python, [*_SYSTEM, *shown]):
        shown.append(_prefix(python.parent))
    if not _is_inside(ends[1], [*_SYSTEM, *shown]):
        shown.append(_prefix(ends[1]))
    parts: list[Part] = [Shown(folder, str(folder)) for folder in shown]
    for prefix in shown[1:]:
        parts += _without_packages(prefix)
    for link, target in dict(links).items():
        if not _is_inside(link, [*_SYSTEM, *shown]) and not any(folder.is_relative_to(link) for folder in shown):
            parts.append(Link(target, str(link)))
    return parts


def _home(environment: Path) -> Path:
    try:
        lines = (environment / "pyvenv.cfg").read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SandboxError(f"{environment} is no virtual environment", why=str(error)) from error
    for line in lines:
        key, _, value = line.partition("=")
        if key.strip().lower() == "home":
            return Path(value.strip())
    raise SandboxError(f"{environment} is no virtual environment", why="Its pyvenv.cfg names no home.")


def _trail(path: Path) -> tuple[list[tuple[Path, str]], Path]:
    """The symbolic links that ``path`` passes through, each with its target, and where it ends."""
    links: list[tuple[Path, str]] = []
    current, pending = Path("/"), list(path.parts[1:])
    while pending and len(links) < 40:
        part = pending.pop(0)
        step = current / part
        if part == "..":
            current = current.parent
        elif step.is_symlink():
            target = os.readlink(step)
            links.append((step, target))
            current = Path("/") if target.startswith("/") else current
            pending[:0] = [piece for piece in target.split("/") if piece not in ("", ".")]
        else:
            current = step
    return links, current


def _prefix(folder: Path) -> Path:
    """The prefix of the Python whose programs lie in ``folder``; refuses one that is no Python of its own."""
    prefix = folder.parent
    if next(_landmarks(prefix), None) is None:
        raise SandboxError(
            f"Cannot tell which Python the programs in {folder} belong to",
            why=f"{prefix} holds no standard library.",
            mend="Make the environment from a complete interpreter (the system's, pyenv's or uv's).",
        )
    return prefix


def _without_packages(prefix: Path) -> list[Part]:
    """Empty folders in the place of those that a Python's own packages lie in: the package under test may be among
    them, mended."""
    patterns = ("lib*/python3*/site-packages", "lib*/python3*/dist-packages")
    folders = sorted({folder for pattern in patterns for folder in prefix.glob(pattern) if not folder.is_symlink()})
    return [Empty(str(folder)) for folder in folders]


def _landmarks(prefix: Path) -> Iterator[Path]:
    return prefix.glob("lib*/python3*/os.py")


def _is_inside(path: Path, folders: list[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)
