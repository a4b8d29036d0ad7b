"""Tasks as a file or folder of another format, and what the format cannot hold.

What was dropped is found by reading back what was written: every part of a task that does not come back the same is
named. No list in the code says what a format can hold.
"""

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.records import Task
from patchgym.store.whole import beside
from patchgym.tasks.formats import FORMATS, harbor, swebench5
from patchgym.tasks.formats.folders import Folder, is_own, write_folder
from patchgym.tasks.formats.importing import ROW_FORMATS, Refusal
from patchgym.tasks.formats.refused import Refused, strings
from patchgym.tasks.taskset import TaskSet

_WHY = {
    "workspace": "a row names a commit; --repos finds its files again",
    "validation": "patchgym's own proof: patchgym validate makes it again",
    "probes": "calls with known results: patchgym tasks probe makes them again",
    "foreign": "a field of the format that it was imported from",
    "environment": "a row has no place for it; SWE-bench 5 has it in the Dockerfile only",
    "gold_patch": "the format does not hold its very text",
    "limits": "patchgym's own",
    "tests.fail_to_pass": "R2E-Gym does not say which tests failed before",
    "tests.pass_to_pass": "R2E-Gym names tests without their file",
    "tests.visible_files": "follows from the workspace",
    "tests.hidden_files": "a row has a test patch; --repos finds the files again",
    "tests.hidden": "every fail-to-pass test of a benchmark is hidden",
    "tests.timeout_s": "a benchmark's tests have 1800 s",
    "source.kind": "what is imported is a benchmark",
    "split": "what is imported is held out",
}


@dataclass
class Export:
    """What was written and what was not. ``dropped`` counts tasks by the part that does not come back from what was
    written (``environment.lock``); ``refused`` names the tasks that the format cannot hold at all."""

    format: str
    path: Path
    written: list[str] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)


def why_dropped(part: str) -> str:
    """A few words on why a part of a task does not come back; empty where there is nothing to say."""
    return _WHY.get(part) or _WHY.get(re.split("[.:]", part)[0], "")


def export_tasks(taskset: TaskSet, tasks: Sequence[Task], format_name: str, out: Path) -> Export:
    """Write tasks of a set. ``out`` is a file of rows (JSON where it ends so, else JSONL), a Harbor dataset (a folder a
    task), or a task repository. It appears whole or not at all, and not where every task is refused.

    Raises:
        UsageError: no such format, or ``out`` is there already or cannot be there.
        StorageError: the disk is full or not writable.
        DataError: the set's objects are not whole.
    """
    if format_name not in FORMATS:
        raise UsageError(f"There is no format {format_name}", mend=f"Formats: {', '.join(FORMATS)}.")
    done = Export(format_name, out)
    with beside(out) as scratch:
        # The set itself is only read: trees that are made on the way go into a store of their own.
        objects = ObjectStore(scratch / "objects")
        for task in tasks:
            _copy(task, taskset.objects, objects)
        made = scratch / out.name
        if format_name in ROW_FORMATS:
            _write_rows(tasks, objects, made, done)
        else:
            _write_folders(tasks, objects, made, done)
        if done.written:
            made.rename(out)
    return done


def lost_parts(task: Task, back: Task) -> tuple[str, ...]:
    """The parts of ``task`` that ``back`` does not have, by dotted name. A part that says nothing is not lost."""
    found: list[str] = []
    for name in Task.model_fields:
        old, new = getattr(task, name), getattr(back, name)
        if old == new or name == "schema_version":
            continue
        if name == "foreign":
            found += _lost_foreign(task, back)
        elif isinstance(old, BaseModel) and isinstance(new, BaseModel):
            parts = type(old).model_fields
            found += [
                f"{name}.{part}" for part in parts if _says(old, part) and getattr(old, part) != getattr(new, part)
            ]
        elif _says(task, name):
            found.append(name)
    return tuple(found)


def _says(record: BaseModel, name: str) -> bool:
    return getattr(record, name) not in (None, "", (), {})


def _lost_foreign(task: Task, back: Task) -> list[str]:
    if task.foreign is None or (back.foreign is not None and back.foreign.format == task.foreign.format):
        return []
    values = task.foreign.fields.get("values", task.foreign.fields.get("files"))
    names = [name for name, value in values.items() if value] if isinstance(values, dict) else []
    return [f"foreign: {task.foreign.format} {name}" for name in names]


def _copy(task: Task, source: ObjectStore, target: ObjectStore) -> None:
    source.copy_tree(task.workspace, target)
    for blob in sorted(task.blobs):
        if blob not in target:
            target.put(source.get(blob))


def _write_rows(tasks: Sequence[Task], objects: ObjectStore, made: Path, done: Export) -> None:
    module = ROW_FORMATS[done.format]
    rows: list[Mapping[str, JsonValue]] = []
    for task in tasks:
        try:
            row = module.to_row(task, objects)
            back = module.from_row(row, objects)
        except Refused as error:
            done.refused.append(Refusal(task.id, error.reason, error.why))
            continue
        rows.append(row)
        _count(done, task, back)
    with made.open("w", encoding="utf-8", newline="\n") as stream:
        if made.suffix.lower() == ".json":
            json.dump(rows, stream, ensure_ascii=False, indent=1)
        else:
            stream.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def _write_folders(tasks: Sequence[Task], objects: ObjectStore, made: Path, done: Export) -> None:
    written: list[Task] = []
    for task in tasks:
        try:
            files = _files(done.format, task, objects)
            back = _read_back(done.format, task, files, objects)
            write_folder(made / "tasks" / task.id if done.format == swebench5.NAME else made / task.id, files)
        except Refused as error:
            done.refused.append(Refusal(task.id, error.reason, error.why))
            continue
        written.append(task)
        _count(done, task, back)
    if done.format == swebench5.NAME and written:
        (made / swebench5.CONFIG).write_text(_config(written), encoding="utf-8", newline="\n")


def _files(format_name: str, task: Task, objects: ObjectStore) -> Folder:
    return swebench5.to_files(task, objects) if format_name == swebench5.NAME else harbor.to_files(task, objects)


def _read_back(format_name: str, task: Task, files: Folder, objects: ObjectStore) -> Task:
    if format_name == swebench5.NAME:
        return swebench5.from_files(files, objects)
    return harbor.from_files(task.id, files, objects)


def _count(done: Export, task: Task, back: Task) -> None:
    done.written.append(task.id)
    done.dropped.update(lost_parts(task, back))


def _config(tasks: Sequence[Task]) -> str:
    """``sweb.yaml``: the one that all tasks came with, else one that names every dataset and split of theirs."""
    texts = [
        str(task.foreign.fields.get(swebench5.CONFIG, "")) if _own(task) and task.foreign else "" for task in tasks
    ]
    distinct = sorted(set(texts))
    if len(distinct) == 1 and distinct[0]:
        return distinct[0]
    if distinct == [""]:
        return swebench5.NEW_CONFIG
    datasets, splits = set[str](), set[str]()
    for text in distinct:
        parsed = swebench5.yaml_object(text or swebench5.NEW_CONFIG, swebench5.CONFIG)
        datasets |= set(strings(parsed.get("datasets") or []))
        splits |= set(strings(parsed.get("splits") or ["test"]))
    return swebench5.config_text(sorted(datasets), sorted(splits))


def _own(task: Task) -> bool:
    return is_own(task, swebench5.NAME)
