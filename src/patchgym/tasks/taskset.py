"""A task set on disk.

::

    SET/taskset.json   how it was made (TaskSetManifest)
    SET/tasks.jsonl    one Task a line
    SET/objects/       every workspace tree and test file (a bare git object store)
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import DataError, UsageError
from patchgym.records import Task, TaskSetManifest

_MANIFEST, _TASKS, _OBJECTS = "taskset.json", "tasks.jsonl", "objects"


class TaskSet:
    """A loaded task set: ``manifest``, ``tasks`` in file order, ``objects``, and the ``path`` of its directory."""

    def __init__(self, path: Path, manifest: TaskSetManifest, tasks: tuple[Task, ...], objects: ObjectStore) -> None:
        self.path = path
        self.manifest = manifest
        self.tasks = tasks
        self.objects = objects

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a task set and check that it is whole.

        Raises:
            UsageError: there is no task set at ``path``.
            DataError: a broken line (file and line are named), another schema version, two tasks of one id, or an
                object that is not there.
        """
        if not (path / _MANIFEST).is_file() or not (path / _TASKS).is_file():
            raise UsageError(f"There is no task set at {path}", mend="Make one: patchgym tasks build --out SET.")
        manifest = TaskSetManifest.from_line((path / _MANIFEST).read_bytes(), where=str(path / _MANIFEST))
        tasks: dict[str, Task] = {}
        for number, line in enumerate((path / _TASKS).read_bytes().splitlines(), start=1):
            where = f"{path / _TASKS}:{number}"
            task = Task.from_line(line, where=where)
            if task.id in tasks:
                raise DataError(f"{where}: a second task has the id {task.id}", mend="Remove one of the two lines.")
            tasks[task.id] = task
        if not (path / _OBJECTS).is_dir():
            raise DataError(f"{path} has no {_OBJECTS} folder", mend="Copy the whole task set, or make it again.")
        objects = ObjectStore(path / _OBJECTS)
        for number, task in enumerate(tasks.values(), start=1):
            _check_objects(objects, task, f"{path / _TASKS}:{number}")
        return cls(path, manifest, tuple(tasks.values()), objects)

    def split(self, name: Literal["train", "heldout"]) -> tuple[Task, ...]:
        """The tasks of one side of the split."""
        return tuple(task for task in self.tasks if task.split == name)

    def task(self, task_id: str) -> Task:
        """One task.

        Raises:
            UsageError: the set has no such task.
        """
        for task in self.tasks:
            if task.id == task_id:
                return task
        raise UsageError(f"Task set {self.path} has no task {task_id}")


def write_task_set(folder: Path, manifest: TaskSetManifest, tasks: Sequence[Task], objects: ObjectStore) -> None:
    """Write a task set into an existing, empty ``folder``, with only those of ``objects`` that its tasks reach.

    Raises:
        StorageError: the disk is full.
        DataError: two tasks have one id, or an object is missing.
    """
    if len({task.id for task in tasks}) < len(tasks):
        raise DataError("Two tasks of the set have one id")
    with disk_errors(folder):
        kept = ObjectStore(folder / _OBJECTS)
        for task in tasks:
            objects.copy_tree(task.workspace, kept)
            for blob in sorted(task.blobs):
                kept.put(objects.get(blob))
        _write(folder / _TASKS, "".join(task.to_line() + "\n" for task in tasks))
        _write(folder / _MANIFEST, manifest.to_line() + "\n")


def _write(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def _check_objects(objects: ObjectStore, task: Task, where: str) -> None:
    try:
        needed = {entry.id for entry in objects.entries(task.workspace).values()}
    except DataError as error:
        raise DataError(f"{where}: the workspace of {task.id} is not whole", why=str(error), mend=error.mend) from error
    needed |= task.blobs
    for blob in sorted(needed):
        if blob not in objects:
            raise DataError(
                f"{where}: object {blob} of {task.id} is missing from {objects.path}",
                mend="Copy the whole task set, or make it again.",
            )
