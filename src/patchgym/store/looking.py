"""A run directory looked at from outside: while it is written to, where it is damaged, where it is of another version.

``RunDirectory.read`` reads every trajectory before it answers. This reads what it is asked for: one line by its offset,
the lines that came since, the beginnings that are in the making. It never writes.
"""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import RunManifest, Task
from patchgym.store.jsonl import read_line_at, read_lines
from patchgym.store.lock import is_locked

Kind = Literal["trajectories", "trees"]
_MOST_DOCUMENT = 64 << 20


class Beginning(NamedTuple):
    """A trajectory in the making, or one that a killed run left."""

    id: str
    steps: int
    interrupted: bool
    changed_at: datetime


class RunFiles:
    """The files of a run. ``manifest`` is None where it cannot be read; ``trouble`` then says why."""

    def __init__(self, path: Path) -> None:
        """Look at the run at ``path``.

        Raises:
            UsageError: there is none.
        """
        if not (path / "run.json").is_file():
            raise UsageError(f"There is no run at {path}", mend="Name a directory that holds a run.json.")
        self.path = path
        self.manifest: RunManifest | None = None
        self.trouble = ""
        try:
            self.manifest = RunManifest.from_line((path / "run.json").read_bytes(), where="run.json")
        except (DataError, OSError) as error:
            self.trouble = str(error)

    @property
    def in_progress(self) -> bool:
        """Whether a process is writing to it now; False where that cannot be told."""
        try:
            return is_locked(self.path)
        except OSError:
            return False

    @property
    def objects(self) -> ObjectStore | None:
        """Its object store; None where it has none."""
        return ObjectStore(self.path / "objects") if (self.path / "objects").is_dir() else None

    def size(self, kind: Kind) -> int:
        """Bytes of one of the two big files; 0 where there is none."""
        try:
            return self._lines(kind).stat().st_size
        except FileNotFoundError:
            return 0

    def lines(self, kind: Kind, start: int) -> Iterator[tuple[int, bytes]]:
        """The whole lines from an offset on, each with its own."""
        return read_lines(self._lines(kind), start)

    def line(self, kind: Kind, offset: int) -> bytes:
        """The line that begins at an offset.

        Raises:
            DataError: it is no longer there.
        """
        try:
            found = read_line_at(self._lines(kind), offset)
        except OSError as error:
            raise DataError(f"{self.path}/{kind}.jsonl cannot be read", why=str(error)) from error
        if not found:
            raise DataError(
                f"{self.path}/{kind}.jsonl has no line at {offset}",
                why="The run was changed while it was looked at.",
                mend="Load the page again.",
            )
        return found

    def metrics(self) -> tuple[list[dict[str, JsonValue]], int]:
        """Every object of ``metrics.jsonl``, and how many lines are none."""
        found, bad = [], 0
        for _, line in read_lines(self.path / "metrics.jsonl"):
            value = _json(line)
            if isinstance(value, dict):
                found.append(value)
            else:
                bad += 1
        return found, bad

    def tasks(self) -> tuple[dict[str, Task], list[str]]:
        """The tasks that it works on, by id, and what could not be read of them."""
        found: dict[str, Task] = {}
        problems = []
        for number, (_, line) in enumerate(read_lines(self.path / "tasks.jsonl"), start=1):
            try:
                task = Task.from_line(line, where=f"tasks.jsonl, line {number}")
            except DataError as error:
                problems.append(str(error))
            else:
                found[task.id] = task
        return found, problems

    def document(self, name: str) -> dict[str, JsonValue] | None:
        """A JSON object that a command left in the run (``report.json``, say); None where there is no such."""
        path = self.path / name
        if not path.is_file() or path.stat().st_size > _MOST_DOCUMENT:
            return None
        value = _json(path.read_bytes())
        return value if isinstance(value, dict) else None

    def evaluations(self) -> dict[str, dict[str, JsonValue]]:
        """The evaluations that it keeps, by phase: those of ``eval/``, and those of ``report.json`` beside them."""
        names = sorted(path.stem for path in (self.path / "eval").glob("*.json"))
        kept = {name: self.document(f"eval/{name}.json") for name in names}
        of_report = (self.document("report.json") or {}).get("evaluations")
        told = of_report if isinstance(of_report, dict) else {}
        found = {name: value for name, value in told.items() if isinstance(value, dict)}
        return found | {name: value for name, value in kept.items() if value is not None}

    def rows(self, name: str) -> list[dict[str, JsonValue]]:
        """The JSON objects of a file of lines that a command left in the run; other lines are left out."""
        values = (_json(line) for _, line in read_lines(self.path / name))
        return [value for value in values if isinstance(value, dict)]

    def beginnings(self) -> list[Beginning]:
        """What is in the making, or was when the run was killed, the latest first."""
        found = []
        for path in (self.path / "journal").glob("*"):
            if path.suffix not in (".jsonl", ".interrupted"):
                continue
            try:
                changed = datetime.fromtimestamp(path.stat().st_mtime, UTC)
                steps = sum(1 for _ in read_lines(path))
            except FileNotFoundError:  # it became final meanwhile
                continue
            found.append(Beginning(path.stem, steps, path.suffix == ".interrupted", changed))
        return sorted(found, key=lambda one: one.changed_at, reverse=True)

    def _lines(self, kind: Kind) -> Path:
        return self.path / f"{kind}.jsonl"


def find_runs(folder: Path, *, depth: int = 3) -> list[Path]:
    """Every run directory at or below ``folder``, at most ``depth`` levels down, sorted; none is searched inside a run.

    Raises:
        UsageError: there is no such folder.
    """
    if not folder.is_dir():
        raise UsageError(f"There is no folder {folder}", mend="Name the folder that your runs are in.")
    if (folder / "run.json").is_file():
        return [folder]
    if not depth:
        return []
    try:
        inner = sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.is_symlink())
    except PermissionError:
        return []
    return [run for entry in inner for run in find_runs(entry, depth=depth - 1)]


def _json(data: bytes) -> JsonValue:
    try:
        value: JsonValue = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value
