"""Patches from a file that others wrote: one JSON object a line."""

import difflib
import json
from pathlib import Path

from patchgym.errors import DataError, UsageError
from patchgym.records import Task
from patchgym.tasks import TaskSet

_SHOWN = 60


def read_patches(path: Path, tasks: TaskSet) -> list[tuple[int, Task, str]]:
    """Every line's number, task and patch; empty lines are passed over. What a patch is worth is for the grader to say,
    one that is too long, does not apply or leaves its root among them.

    Raises:
        UsageError: there is no such file, it cannot be read, or a line names a task that the set does not hold.
        DataError: a line is not JSON, not UTF-8, or no such object.
    """
    if not path.is_file():
        raise UsageError(f"There is no file {path}", mend='Give a file of lines {"task_id": ..., "patch": ...}.')
    known = {task.id: task for task in tasks.tasks}
    found: list[tuple[int, Task, str]] = []
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UsageError(f"Cannot read {path}", why=str(error)) from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            name, patch = _row(line, f"{path}, line {number}")
            if name not in known:
                raise _unknown(name, known, f"{path}, line {number}")
            found.append((number, known[name], patch))
    return found


def _row(line: bytes, place: str) -> tuple[str, str]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{place}: not JSON", why=str(error)[:200], mend='Write one object a line: {"task_id": ..., "patch": ...}.'
        ) from error
    match row:
        case {"task_id": str(task_id), "patch": str(patch)}:
            return task_id, patch
    raise DataError(
        f"{place}: not an object with task_id and patch, both text",
        why=f"It begins with {line[:_SHOWN]!r}.",
        mend='Write one object a line: {"task_id": ..., "patch": ...}.',
    )


def _unknown(name: str, known: dict[str, Task], place: str) -> UsageError:
    near = difflib.get_close_matches(name[:200], known, n=1)
    return UsageError(
        f"{place}: there is no task {name[:_SHOWN]!r} in the set",
        mend=f"Did you mean {near[0]}?" if near else "patchgym tasks show SET lists them.",
    )
