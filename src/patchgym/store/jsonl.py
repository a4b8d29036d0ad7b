"""Append-only JSON lines that survive a kill at any instant."""

import os
from collections.abc import Iterator
from pathlib import Path

from patchgym.content import disk_errors

_BLOCK = 1 << 16


def append_line(path: Path, line: str) -> int:
    """Append one line and wait until it is on disk; the offset at which it begins. A write that the disk refuses leaves
    the file as it was.

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
    return size


def read_lines(path: Path, start: int = 0) -> Iterator[tuple[int, bytes]]:
    """Every whole line without its newline, one at a time, with the offset at which it begins; what follows the last
    newline was never finished and is left out. ``start`` is the offset of the line to begin with."""
    if path.is_file():
        with path.open("rb") as file:
            at = file.seek(start)
            for line in file:
                if line.endswith(b"\n"):
                    yield at, line[:-1]
                at += len(line)


def read_line_at(path: Path, offset: int) -> bytes:
    """The line that begins at an offset, without its newline."""
    with path.open("rb") as file:
        file.seek(offset)
        return file.readline().removesuffix(b"\n")


def cut_torn_line(path: Path) -> bytes:
    """Remove what follows the last newline, left by a write that was killed, and return it."""
    if not path.is_file():
        return b""
    with path.open("rb") as file:
        size = end = file.seek(0, os.SEEK_END)
        torn = b""
        while end and b"\n" not in torn:
            start = max(0, end - _BLOCK)
            file.seek(start)
            torn, end = file.read(end - start) + torn, start
    torn = torn.rpartition(b"\n")[2]
    if torn:
        os.truncate(path, size - len(torn))
    return torn
