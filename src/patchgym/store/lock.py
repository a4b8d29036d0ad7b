"""One process at a time works in a folder."""

import fcntl
import os
from pathlib import Path

from patchgym.errors import UsageError


def lock_folder(path: Path) -> int:
    """Lock a folder by its file ``lock`` until the returned descriptor is closed, at the latest when the process ends.

    Raises:
        UsageError: another process works there.
        OSError: the file cannot be made.
    """
    lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise UsageError(f"Another process writes to {path}", mend="Wait for it, or choose another --out.") from None
    return lock


def is_locked(path: Path) -> bool:
    """Whether a process works in a folder at this moment.

    Raises:
        OSError: its lock cannot be read.
    """
    try:
        lock = os.open(path / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
