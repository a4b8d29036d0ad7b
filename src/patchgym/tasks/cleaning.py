"""What a finished lot of tasks is cleaned of before it is written: what benchmarks hold, duplicates, and training tasks
that work on versions of held-out functions."""

from collections.abc import Collection, Sequence
from pathlib import Path

from patchgym.content import ObjectStore, publish_directory
from patchgym.errors import DataError, UsageError
from patchgym.records import Task
from patchgym.tasks.funnel import Stage
from patchgym.tasks.overlap.fingerprints import fingerprint
from patchgym.tasks.overlap.index import build_index
from patchgym.tasks.overlap.material import task_material
from patchgym.tasks.overlap.pairs import find_overlap
from patchgym.tasks.taskset import TaskSet, write_task_set


def write_without(tasks: TaskSet, found: Collection[str], out: Path) -> int:
    """Write ``tasks`` to ``out`` without those of the ids ``found``, all at once; how many are left. The manifest
    counts what went.

    Raises:
        UsageError: ``out`` exists.
        DataError: nothing would be left.
        StorageError: the disk is full.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    left = [task for task in tasks.tasks if task.id not in found]
    if not left:
        raise DataError(f"Nothing is left of {tasks.path}", why="Something was found in every task.")
    funnel = {**tasks.manifest.funnel, Stage.WRITTEN: len(left)}
    dropped = {**tasks.manifest.dropped, "audit": len(tasks.tasks) - len(left) + tasks.manifest.dropped.get("audit", 0)}
    manifest = tasks.manifest.model_copy(update={"funnel": funnel, "dropped": dropped})
    publish_directory(out, lambda folder: write_task_set(folder, manifest, left, tasks.objects))
    return len(left)


def clean(
    tasks: Sequence[Task], objects: ObjectStore, benchmarks: Sequence[str]
) -> tuple[list[Task], list[tuple[Task, str]]]:
    """The tasks that stay, in order, and those that go with the reason (``patchgym.tasks.funnel``). Of duplicates the
    held-out one stays, else the first; of a training task and a held-out one that overlap, the held-out one.

    ``benchmarks`` are files to compare with: indexes, benchmark rows, task sets.

    Raises:
        UsageError, DataError, PrerequisiteError: a benchmark's file cannot be read.
    """
    gone: dict[int, str] = {}
    materials = [task_material(task, objects) for task in tasks]
    if benchmarks:
        index, _ = build_index(map(Path, benchmarks))
        gone |= {at: "contaminated" for at, material in enumerate(materials) if index.matches(material)}
    # Held-out tasks come first: where two do not go together, the later one goes.
    order = sorted((at for at in range(len(tasks)) if at not in gone), key=lambda at: tasks[at].split == "train")
    while True:
        overlap = find_overlap([fingerprint(materials[at]) for at in order])
        losing = {order[pair.second]: "duplicate" for pair in overlap.duplicates}
        for pair in overlap.versions:
            sides = {tasks[order[pair.first]].split, tasks[order[pair.second]].split}
            if len(sides) == 2:
                losing.setdefault(order[pair.second], "overlap")
        if not losing:
            break
        gone |= losing
        order = [at for at in order if at not in losing]
    kept = [task for at, task in enumerate(tasks) if at not in gone]
    if not kept:
        raise DataError("No task is left", why="All are duplicates of each other or stand in a benchmark.")
    return kept, [(tasks[at], reason) for at, reason in sorted(gone.items())]
