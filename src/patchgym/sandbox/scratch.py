"""Folders for upper layers, private to this process, and the removal of what a killed process left.

The owner of a scratch folder holds a lock on it. The kernel drops the lock when the owner is gone, however it ended and
in whatever pid namespace it ran: a folder whose lock is free belongs to nobody.
"""

import fcntl
import os
import re
import secrets
import shutil
import signal
import tempfile
import time
import weakref
from contextlib import suppress
from pathlib import Path

from patchgym.content import disk_errors
from patchgym.sandbox.layerfiles import remove_tree
from patchgym.sandbox.limits import Mechanism, remove_group

_OURS = re.compile(r"patchgym-[0-9]+-[0-9a-f]{8}")
_GROUPS = "groups"
_PATIENCE_S = 5.0
_ROOM = 1024**3


class Scratch:
    """One locked folder ``patchgym-<pid>-<random>`` under ``parent``, removed by ``close``, when nothing refers to it
    any more, or at exit. Control groups of its sandboxes carry its name, and it records where they are made."""

    def __init__(self, parent: Path, mechanism: Mechanism) -> None:
        """Make the folder; what dead processes left beside it is swept away first.

        Raises:
            StorageError: the disk is full or not writable.
        """
        sweep(parent)
        self._count = 0
        with disk_errors(parent):
            self.path, lock = _make_locked(parent)
            groups = "\n".join(os.fspath(folder) for folder in mechanism.parents)
            (self.path / _GROUPS).write_text(groups, encoding="utf-8", errors="surrogateescape")
        self._finalizer = weakref.finalize(self, _discard, self.path, lock, os.getpid())

    def new_name(self) -> str:
        """A name for one sandbox, unique on this machine."""
        self._count += 1
        return f"{self.path.name}-{self._count}"

    def close(self) -> None:
        """Remove the folder. May be called twice."""
        self._finalizer()


def folders() -> list[Path]:
    """Where scratch folders may go, best first: ``$TMPDIR`` where it is set, memory with room, the temporary directory.

    Memory first, because the end of a command writes all that waits for the file system below it to its disk.
    """
    memory = "/dev/shm"
    roomy = os.path.ismount(memory) and shutil.disk_usage(memory).free >= _ROOM
    named = [os.environ.get("TMPDIR"), memory if roomy else None, tempfile.gettempdir()]
    named += [memory, os.environ.get("XDG_RUNTIME_DIR")]
    return [Path(name).absolute() for name in dict.fromkeys(named) if name and os.access(name, os.W_OK | os.X_OK)]


def sweep(parent: Path) -> None:
    """Remove the scratch folders and control groups under ``parent`` whose owner is gone."""
    for folder in parent.glob("patchgym-*"):
        lock = _lock(folder) if _OURS.fullmatch(folder.name) else None
        if lock is not None:
            with suppress(OSError):
                if (folder / _GROUPS).exists():
                    _remove(folder)
                else:
                    folder.rmdir()  # its owner died before it put anything there
            os.close(lock)


def is_abandoned(folder: Path) -> bool:
    """Whether nobody holds a scratch folder any more, or it is gone."""
    if not folder.exists():
        return True
    lock = _lock(folder)
    if lock is not None:
        os.close(lock)
    return lock is not None


def _make_locked(parent: Path) -> tuple[Path, int]:
    while True:
        path = parent / f"patchgym-{os.getpid()}-{secrets.token_hex(4)}"
        path.mkdir(mode=0o700)
        lock = _lock(path)
        if lock is not None:
            return path, lock


def _lock(folder: Path) -> int | None:
    """A descriptor that holds the folder's lock; None when another has it, or removed the folder meanwhile."""
    try:
        if folder.lstat().st_uid != os.geteuid():
            return None
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), folder.stat()):
            return lock
    os.close(lock)
    return None


def _discard(folder: Path, lock: int, owner: int) -> None:
    if os.getpid() == owner:  # a forked child inherits the object, not the folder
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    until = time.monotonic() + _PATIENCE_S
    quiet = 0
    # A process that dies while the list of all is gone through may have had a child that is not on it: look twice.
    while quiet < 2 and time.monotonic() < until:
        running = _running_in(folder)
        quiet = 0 if running else quiet + 1
        for pid in running:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.001)
    with suppress(FileNotFoundError):
        for parent in (folder / _GROUPS).read_text(encoding="utf-8", errors="surrogateescape").splitlines():
            for group in Path(parent).glob(f"{folder.name}-*"):
                remove_group(group)
    remove_tree(folder)


def _running_in(folder: Path) -> list[int]:
    """The bubblewrap processes that work on a scratch folder, told by their command lines. The first process of each
    sandbox is among them, and everything inside ends with it.

    They die with the runner; only one killed in the few milliseconds in which a command starts can leave them."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            program, *arguments = (process / "cmdline").read_bytes().split(b"\0")
            inside = os.fsencode(folder) + b"/"
            if program.endswith(b"bwrap") and any(argument.startswith(inside) for argument in arguments):
                found.append(int(process.name))
    return found
