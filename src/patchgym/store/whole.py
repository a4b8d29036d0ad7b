"""Files and folders that are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patchgym.content import disk_errors
from patchgym.errors import UsageError


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


@contextmanager
def beside(out: Path) -> Iterator[Path]:
    """A folder next to ``out`` to make it in and rename it from; gone afterwards.

    Raises:
        UsageError: ``out`` is there already, or cannot be there.
        StorageError: the disk is full or not writable.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(f"{out} is there already", mend="Name a new place, or remove it first.")
    with disk_errors(out.parent):
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            scratch = tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent)
        except (FileExistsError, FileNotFoundError, NotADirectoryError) as error:
            raise UsageError(f"Nothing can be written at {out}", why=str(error), mend="Name another place.") from error
        with scratch as folder:
            yield Path(folder)
