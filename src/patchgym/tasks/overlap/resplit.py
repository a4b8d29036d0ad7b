"""Writing a task set again with another split."""

from pathlib import Path

from patchgym.content import publish_directory
from patchgym.errors import DataError, UsageError
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.split import Split, by_name, split_tasks
from patchgym.tasks.taskset import TaskSet, write_task_set


def split_task_set(tasks: TaskSet, out: Path, share: float, *, by: str = "function", seed: int = 0) -> Split:
    """Write ``tasks`` to ``out`` with about ``share`` of them held out (see ``split.split_tasks``), all at once. The
    same set gives the same bytes. Tasks of benchmarks are held out whatever the draw says. The manifest's recipe keeps
    the one of the set that was split, under ``split_of``.

    Raises:
        UsageError: ``out`` exists, or ``by`` is no way of splitting.
        DataError: one side would be empty, or by time and no task has a time.
        StorageError: the disk is full.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    pinned = frozenset(number for number, task in enumerate(tasks.tasks) if task.source.kind == "benchmark")
    prints = fingerprint_tasks(tasks.tasks, tasks.objects)
    done = split_tasks(prints, share, by=by_name(by), seed=seed, pinned=pinned)
    if len(done.heldout) in (0, len(tasks.tasks)):
        largest = max(map(len, done.components), default=0)
        raise DataError(
            f"{tasks.path} cannot be split so: all {len(tasks.tasks)} tasks would be on one side",
            why=f"Its largest group that must stay together has {largest} tasks.",
            mend="Ask for another share, split by function, or add tasks on other functions.",
        )
    chosen = [
        task.model_copy(update={"split": "heldout" if number in done.heldout else "train"})
        for number, task in enumerate(tasks.tasks)
    ]
    recipe = {"split_of": tasks.manifest.recipe, "by": by, "heldout": share, "seed": seed}
    manifest = tasks.manifest.model_copy(update={"recipe": recipe})
    publish_directory(out, lambda folder: write_task_set(folder, manifest, chosen, tasks.objects))
    return done
