"""Probes for a whole task set."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchgym.content import ObjectStore, publish_directory
from patchgym.errors import DataError, SandboxError, UsageError
from patchgym.grading.probes import ProbeMaker, ProbeSet, store_probes
from patchgym.records import Task
from patchgym.tasks.funnel import Stage
from patchgym.tasks.taskset import TaskSet, write_task_set

_INVALID = "gold_fails"
Progress = Callable[[int, int], None]
"""Called with how many tasks are done and how many there are."""


@dataclass(frozen=True)
class Probed:
    """What came of one task: ``task`` with its ``probes``; None where it is invalid, and then ``problem`` says why. A
    lost sandbox leaves the task as it was, with a ``problem``."""

    id: str
    task: Task | None
    probes: ProbeSet | None
    problem: str = ""


async def probe_tasks(
    tasks: Sequence[Task], objects: ObjectStore, maker: ProbeMaker, concurrency: int, on_progress: Progress
) -> list[Probed]:
    """Make the probes of each task, so many at once; their blobs go into ``objects``, which must hold the tasks.

    Raises:
        EnvironmentBuildError, PrerequisiteError: an environment cannot be had here.
    """
    slots = asyncio.Semaphore(concurrency)
    done = 0

    async def one(task: Task) -> Probed:
        nonlocal done
        async with slots:
            try:
                probes = await maker.make(task)
                found = Probed(task.id, store_probes(objects, task, probes), probes)
            except DataError as error:
                found = Probed(task.id, None, None, str(error))
            except SandboxError as error:
                found = Probed(task.id, task, None, str(error))
        done += 1
        on_progress(done, len(tasks))
        return found

    return list(await asyncio.gather(*map(one, tasks)))


def write_probed(source: TaskSet, found: Sequence[Probed], objects: ObjectStore, out: Path) -> int:
    """Write the tasks that are not invalid to ``out``, all at once; how many. The manifest counts those that went.

    Raises:
        UsageError: ``out`` exists.
        DataError: nothing would be left.
        StorageError: the disk is full.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    kept = [one.task for one in found if one.task is not None]
    if not kept:
        raise DataError(f"Nothing is left of {source.path}", why="Every task is invalid.")
    dropped = Counter(source.manifest.dropped)
    dropped[_INVALID] += len(found) - len(kept)
    changes = {
        "funnel": {**source.manifest.funnel, Stage.WRITTEN: len(kept)},
        "dropped": {reason: count for reason, count in dropped.items() if count},
    }
    manifest = source.manifest.model_copy(update=changes)
    publish_directory(out, lambda folder: write_task_set(folder, manifest, kept, objects))
    return len(kept)
