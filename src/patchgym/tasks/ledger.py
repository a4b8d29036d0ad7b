"""What became of every candidate of a build, kept as it is found out: a build that was interrupted goes on from there.

::

    .NAME.build/recipe.json    the recipe that it is for
    .NAME.build/ledger.jsonl   one settled candidate a line
    .NAME.build/objects/       every tree of the work
    .NAME.build/suites/        what is known of healthy suites
    .NAME.build/lock
"""

import json
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from pydantic import JsonValue

from patchgym.config import differing_keys
from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import ConfigError
from patchgym.records import Record, Task
from patchgym.store.jsonl import append_line, cut_torn_line, read_lines
from patchgym.store.lock import lock_folder
from patchgym.store.whole import write_whole


class Settled(Record):
    """The end of one candidate: its ``task``, or the ``reason`` for which it was dropped, the ``stage`` at which, and
    what was ``said``. ``seconds`` is how long its build had been going on by then, over all sittings."""

    candidate: str
    task: Task | None = None
    reason: str | None = None
    stage: str | None = None
    said: str = ""
    seconds: float


class Ledger:
    """The settled candidates of one build. Open it, use it as a context manager, and ``clear`` it once the task set is
    written."""

    def __init__(self, folder: Path, recipe: Mapping[str, JsonValue]) -> None:
        """Open the folder of a build, made where it is absent.

        Raises:
            UsageError: another build is at work there.
            ConfigError: it is a build of another recipe; the keys that differ are named.
            StorageError: the disk is full or not writable.
        """
        self.folder = folder
        self._started = time.monotonic()
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(folder)
        with ExitStack() as undo:
            undo.callback(os.close, self._lock)
            self._check(dict(recipe))
            path = folder / "ledger.jsonl"
            cut_torn_line(path)
            lines = (Settled.model_validate_json(line) for _, line in read_lines(path))
            self.settled = {line.candidate: line for line in lines}
            self._before = max((line.seconds for line in self.settled.values()), default=0.0)
            self.objects = ObjectStore(folder / "objects")
            undo.pop_all()

    def _check(self, recipe: dict[str, JsonValue]) -> None:
        """Make the folder that of ``recipe``, if it is nobody's yet."""
        kept = self.folder / "recipe.json"
        if kept.is_file():
            differ = differing_keys(json.loads(kept.read_bytes()), recipe)
            if differ:
                raise ConfigError(
                    f"{self.folder} holds an unfinished build of another recipe",
                    why=f"These keys differ: {', '.join(differ[:8])}{' ...' if len(differ) > 8 else ''}.",
                    mend=f"Use that recipe, choose another --out, or remove {self.folder} to begin again.",
                )
        else:
            write_whole(kept, json.dumps(recipe).encode())

    @property
    def seconds(self) -> float:
        """How long the build has been going on, over all sittings."""
        return self._before + time.monotonic() - self._started

    def settle(
        self,
        candidate: str,
        *,
        task: Task | None = None,
        reason: str | None = None,
        stage: str | None = None,
        said: str = "",
    ) -> Settled:
        """Note the end of a candidate, on disk before it returns.

        Raises:
            StorageError: the disk is full or not writable.
        """
        line = Settled(candidate=candidate, task=task, reason=reason, stage=stage, said=said, seconds=self.seconds)
        append_line(self.folder / "ledger.jsonl", line.model_dump_json())
        self.settled[candidate] = line
        return line

    def clear(self) -> None:
        """Remove the folder: its build is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)
