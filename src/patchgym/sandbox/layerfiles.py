"""Single files and folders of a layer, as the kernel lays them down: read without following anything, made, removed."""

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

OPAQUE = ("user.overlay.opaque", "trusted.overlay.opaque")
LONGEST = 3500
OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def make_whiteout(path: str | Path) -> None:
    """Mark a name as gone. The kernel lets anyone do so, on any file system but an overlay.

    Raises:
        OSError: this file system does not allow it.
    """
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(0, 0))


def remove_tree(folder: Path) -> None:
    """Remove a directory that untrusted code wrote into: any depth, any permissions. An absent one is fine.

    Each folder is moved up beside the first before it is emptied, so that no path grows long and nothing recurses.
    """
    if not folder.is_dir():
        return
    count, pending = 0, [str(folder)]
    for place in pending:
        os.chmod(place, 0o700)
        with os.scandir(place) as entries:
            found = list(entries)
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                count += 1
                pending.append(f"{folder}/.{count}-{secrets.token_hex(4)}")
                os.chmod(entry.path, 0o700)
                os.rename(entry.path, pending[-1])
            else:
                os.unlink(entry.path)
    for place in reversed(pending):
        os.rmdir(place)


@contextmanager
def opened(name: str | Path, folder: int | None = None) -> Iterator[int]:
    """A descriptor of a folder, by its name in an open one: no symbolic link is followed, whatever takes its place
    meanwhile. One that the sandbox's user locked against itself is unlocked.

    Raises:
        FileNotFoundError, NotADirectoryError: it is gone, or something else by now.
    """
    place = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(place).st_mode
        if not os.access(".", os.R_OK | os.X_OK, dir_fd=place):
            os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(mode) | stat.S_IRWXU)
        found = os.open(".", OPEN_FOLDER, dir_fd=place)
    finally:
        os.close(place)
    try:
        yield found
    finally:
        os.close(found)


def listed(folder: int) -> list[tuple[str, os.stat_result]]:
    """The names in an open folder with what lstat says."""
    found = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                found.append((entry.name, entry.stat(follow_symlinks=False)))
    return found


@contextmanager
def readable(folder: int, name: str, info: os.stat_result) -> Iterator[None]:
    """Lend ourselves the permission to read a file that the sandbox's user took away from itself."""
    if not stat.S_ISREG(info.st_mode) or os.access(name, os.R_OK, dir_fd=folder, follow_symlinks=False):
        yield
        return
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    try:
        mode = os.fstat(place).st_mode
        lend = stat.S_ISREG(mode)
        if lend:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(mode) | stat.S_IRUSR)
        yield
        if lend:
            os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(mode))
    finally:
        os.close(place)


def is_whiteout(info: os.stat_result) -> bool:
    """Whether an entry of a layer says that a name is gone."""
    return stat.S_ISCHR(info.st_mode) and info.st_rdev == 0


def is_opaque(place: str | int) -> bool:
    """Whether nothing below a folder shows through."""
    for name in OPAQUE:
        try:
            if os.getxattr(place, name) == b"y":
                return True
        except OSError:
            continue
    return False
