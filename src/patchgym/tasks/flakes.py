"""The ledger of a task set: what gradings of one patch did not agree on, noted when it is seen.

::

    SET/flakes.jsonl   one Flake a line, beside the tasks, which stay as they are
"""

from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import ClassVar

from patchgym.records import VersionedRecord
from patchgym.store.jsonl import append_line, cut_torn_line, read_lines

_FILE = "flakes.jsonl"


class Flake(VersionedRecord):
    """A ``test`` of a task (None: the verdict alone) that came out as each of ``seen`` in gradings of one patch, by the
    grader of ``grader_version``, found ``at`` that time."""

    VERSION: ClassVar[int] = 1

    schema_version: int = 1
    task_id: str
    test: str | None
    seen: tuple[str, ...]
    grader_version: str
    at: datetime


def note_flakes(taskset: Path, flakes: Iterable[Flake]) -> None:
    """Add to the ledger of the task set at ``taskset``.

    Raises:
        StorageError: the disk is full or not writable.
    """
    path = taskset / _FILE
    cut_torn_line(path)
    for flake in flakes:
        append_line(path, flake.to_line())


def read_flakes(taskset: Path) -> tuple[Flake, ...]:
    """The ledger, oldest first; empty where nothing was noted.

    Raises:
        DataError: a line is broken, or of another schema version.
    """
    path = taskset / _FILE
    return tuple(Flake.from_line(line, where=f"{path}, byte {at}") for at, line in read_lines(path))
