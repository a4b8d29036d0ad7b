"""A benchmark's file or folder as tasks. Whatever is no task is counted under a name, and the rest is imported."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import Foreign, Task
from patchgym.tasks.formats import FORMATS, harbor, r2egym, swebench, swebench5, swesmith
from patchgym.tasks.formats.benchmark import has_files
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.folders import read_folder
from patchgym.tasks.formats.reading import read_rows
from patchgym.tasks.formats.refused import Refused, Row

_TASKS = "tasks"


class RowFormat(Protocol):
    """A module of rows."""

    def from_row(self, row: Row, objects: ObjectStore, clones: Clones | None = None) -> Task:
        """The task of a row.

        Raises:
            Refused: it is none.
        """
        ...

    def to_row(self, task: Task, objects: ObjectStore) -> dict[str, JsonValue]:
        """The row of a task.

        Raises:
            Refused: the format cannot hold it.
        """
        ...


ROW_FORMATS: dict[str, RowFormat] = {swebench.NAME: swebench, swesmith.NAME: swesmith, r2egym.NAME: r2egym}


@dataclass(frozen=True)
class Refusal:
    """What was not imported (or exported): its place, the name it is counted under, and more in one line."""

    where: str
    reason: str
    why: str


@dataclass
class Import:
    """What became of a file or folder. ``notes`` count what is worth knowing of the tasks that were imported."""

    format: str
    tasks: list[Task] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    notes: Counter[str] = field(default_factory=Counter)

    @property
    def without_files(self) -> int:
        """How many tasks are known by their rows alone, and so cannot be run."""
        return sum(not has_files(task) for task in self.tasks)

    @property
    def without_environment(self) -> int:
        """How many tasks have files and no locked environment, and so run in a container of theirs only."""
        return sum(has_files(task) and not task.environment.python for task in self.tasks)

    @property
    def funnel(self) -> dict[str, int]:
        """Candidates by what became of them: ``candidates`` is the sum of all others."""
        reasons = Counter(refusal.reason for refusal in self.refused)
        found = len(self.tasks) + len(self.refused)
        return {"candidates": found, "written": len(self.tasks), **dict(sorted(reasons.items()))}


def import_tasks(
    path: Path,
    format_name: str,
    objects: ObjectStore,
    *,
    clones: Clones | None = None,
    strict: bool = False,
    on_progress: Callable[[int], None] = lambda found: None,
) -> Import:
    """Read every task of a file or folder, its files into ``objects``. ``format_name`` ``auto`` is guessed.

    Raises:
        UsageError: there is nothing at ``path``, or nothing that tells the format.
        DataError: with ``strict``, the first thing that is no task.
        PrerequisiteError: a Parquet file, and DuckDB is not installed.
    """
    name = guess_format(path) if format_name == "auto" else format_name
    if name not in FORMATS:
        raise UsageError(f"There is no format {name}", mend=f"Formats: {', '.join(FORMATS)}.")
    found = Import(name)
    seen: dict[str, str] = {}
    for where, make in _candidates(path, name, objects, clones, found.notes):
        try:
            task = make()
            if task.id in seen:
                raise Refused("second_of_one_id", f"{seen[task.id]} has the id {task.id} too.")
            seen[task.id] = where
            found.tasks.append(task)
        except Refused as error:
            if strict:
                mend = "Mend or remove it, or import the others without --strict."
                raise DataError(f"{where}: {error.reason.replace('_', ' ')}", why=error.why, mend=mend) from error
            found.refused.append(Refusal(where, error.reason, error.why))
        on_progress(len(found.tasks) + len(found.refused))
    if clones is not None:
        found.notes.update(clones.missing)
        found.notes.update({"submodules left out": clones.submodules} if clones.submodules else {})
    return found


def guess_format(path: Path) -> str:
    """The format of a file or folder by what is in it.

    Raises:
        UsageError: there is nothing, or nothing that tells.
        PrerequisiteError: a Parquet file, and DuckDB is not installed.
    """
    if path.is_dir():
        if (path / swebench5.CONFIG).is_file() or any(path.glob(f"{_TASKS}/*/task.yaml")):
            return swebench5.NAME
        if (path / harbor.CONFIG).is_file() or any(path.glob(f"*/{harbor.CONFIG}")):
            return harbor.NAME
    for found in read_rows(path):
        if isinstance(found.row, Refused):
            continue
        keys = found.row.keys()
        if "commit_hash" in keys and ("expected_output_json" in keys or "parsed_commit_content" in keys):
            return r2egym.NAME
        if "instance_id" in keys and "base_commit" in keys:
            return swebench.NAME
        if "instance_id" in keys and "patch" in keys:
            return swesmith.NAME
        break
    raise UsageError(f"Nothing in {path} tells its format", mend=f"Name it: {', '.join(FORMATS)}.")


Candidate = tuple[str, Callable[[], Task]]


def _candidates(
    path: Path, name: str, objects: ObjectStore, clones: Clones | None, notes: Counter[str]
) -> Iterator[Candidate]:
    if name == swebench5.NAME:
        yield from _task_repository(path, objects, clones, notes)
    elif name == harbor.NAME:
        yield from _harbor_folders(path, objects)
    else:
        for found in read_rows(path):
            yield found.where, _row_maker(name, found.row, objects, clones)


def _row_maker(name: str, row: Row | Refused, objects: ObjectStore, clones: Clones | None) -> Callable[[], Task]:
    def make() -> Task:
        if isinstance(row, Refused):
            raise row
        return ROW_FORMATS[name].from_row(row, objects, clones)

    return make


def _task_repository(
    path: Path, objects: ObjectStore, clones: Clones | None, notes: Counter[str]
) -> Iterator[Candidate]:
    root = path / _TASKS
    if not root.is_dir():
        raise UsageError(f"{path} is no SWE-bench 5 task repository", why=f"It has no {_TASKS} folder.")
    config_file = path / swebench5.CONFIG
    config = config_file.read_text("utf-8", "replace") if config_file.is_file() else ""
    others = [entry.name for entry in path.iterdir() if entry.name not in (_TASKS, swebench5.CONFIG, ".git")]
    if others:
        notes[f"files of the repository beside its tasks, not kept: {', '.join(sorted(others))}"] = len(others)
    for folder in _folders(root):

        def make(folder: Path = folder) -> Task:
            if not (folder / "task.yaml").is_file():
                raise Refused("no_task", "It has no task.yaml.")
            task = swebench5.from_files(read_folder(folder), objects, clones)
            if task.id != folder.name:
                raise Refused("bad_id", f"task.yaml says that it is {task.id}.")
            return _with_config(task, config)

        yield str(folder), make


def _with_config(task: Task, config: str) -> Task:
    """The task with its repository's ``sweb.yaml``, where that is not what a new one would be."""
    if config == swebench5.NEW_CONFIG:
        return task
    fields = task.foreign.fields if task.foreign is not None else {"files": {}, "absent": []}
    return task.model_copy(
        update={"foreign": Foreign(format=swebench5.NAME, fields={**fields, swebench5.CONFIG: config})}
    )


def _harbor_folders(path: Path, objects: ObjectStore) -> Iterator[Candidate]:
    if not path.is_dir():
        raise UsageError(f"There is no folder {path}", mend="A Harbor task is a directory with a task.toml.")
    for folder in [path] if (path / harbor.CONFIG).is_file() else _folders(path):

        def make(folder: Path = folder) -> Task:
            if not (folder / harbor.CONFIG).is_file():
                raise Refused("no_task", f"It has no {harbor.CONFIG}.")
            return harbor.from_files(folder.resolve().name, read_folder(folder), objects)

        yield str(folder), make


def _folders(root: Path) -> list[Path]:
    found = sorted(entry for entry in root.iterdir() if entry.is_dir() and not entry.name.startswith("."))
    if not found:
        raise UsageError(f"{root} holds no task folders")
    return found
