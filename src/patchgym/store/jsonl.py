"""Append-only JSON lines that survive a kill at any instant."""

import os
from pathlib import Path

from patchgym.content import disk_errors


def append_line(path: Path, line: str) -> None:
    """Append one line and wait until it is on disk. A write that the disk refuses leaves the file as it was.

    Raises:
        StorageError: the disk is full or not writable.
    """
    data = line.encode("utf-8") + b"\n"
    with disk_errors(path), path.open("ab", buffering=0) as file:
        size = file.tell()
        try:
            written = 0
            while written < len(data):
                written += file.write(data[written:])
            os.fsync(file.fileno())
        except OSError:
            file.truncate(size)
            raise


def read_lines(path: Path) -> list[bytes]:
    """Every whole line, without its newline; what follows the last newline was never finished and is left out."""
    return path.read_bytes().split(b"\n")[:-1] if path.is_file() else []


def cut_torn_line(path: Path) -> bytes:
    """Remove what follows the last newline, left by a write that was killed, and return it."""
    if not path.is_file():
        return b""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
    return data[end:]
