"""Files that are written whole or not at all."""

import os
from pathlib import Path

from patchgym.content import disk_errors


def write_whole(path: Path, data: bytes) -> None:
    """Write a file in place of what was there, on disk before it returns; killed at any instant, it leaves the old one.

    Raises:
        StorageError: the disk is full or not writable.
    """
    scratch = path.with_name(path.name + ".tmp")
    with disk_errors(path):
        with scratch.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
