"""What a finished lot of tasks is cleaned of before it is written: what benchmarks hold, duplicates, and training tasks
that work on versions of held-out functions."""

from collections.abc import Sequence
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Task
from patchgym.tasks.overlap.fingerprints import fingerprint
from patchgym.tasks.overlap.index import build_index
from patchgym.tasks.overlap.material import task_material
from patchgym.tasks.overlap.pairs import find_overlap


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
