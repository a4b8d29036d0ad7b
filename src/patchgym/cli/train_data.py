"""What ``patchgym train`` trains on: trajectories out of runs, and the refusal of what must not be trained on."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.cli.console import say
from patchgym.cli.recipe import TrainRecipe
from patchgym.cli.score import opened_for_reading
from patchgym.errors import DataError, UsageError
from patchgym.records import Task, Trajectory, Tree
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.fingerprints import Fingerprint, fingerprint_tasks
from patchgym.tasks.overlap.refuse import overlap_keys, refuse_overlap
from patchgym.traces.selecting import accepted

_NAMED = 3


@dataclass
class Material:
    """What is trained on. ``tasks`` are the tasks of the trajectories by id, as far as the runs hold them, and
    ``keys`` tells their overlap; ``refused`` counts what rejection sampling did not accept, by reason."""

    trajectories: list[Trajectory] = field(default_factory=list)
    trees: list[Tree] = field(default_factory=list)
    tasks: dict[str, Task] = field(default_factory=dict)
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)


def gather(recipe: TrainRecipe) -> Material:
    """The trajectories of a recipe's runs.

    Raises:
        UsageError: no run is named, or one is not there.
        DataError: some are of held-out tasks, of tasks that overlap held-out ones, or of benchmarks without the
            recipe's leave; or a run is damaged.
    """
    if not recipe.runs:
        raise UsageError("There is nothing to train on", mend="Name runs: runs = [...] in the recipe, or --run RUN.")
    made, train, heldout = Material(), list[Fingerprint](), list[Fingerprint]()
    for number, path in enumerate(recipe.runs, start=1):
        run = opened_for_reading(Path(path))
        prefix = f"{number}:" if len(recipe.runs) > 1 else ""
        found = list(_of_phases(run, recipe.phases))
        tasks = run.tasks()
        mine = {one.task_id: tasks[one.task_id] for one in found if one.task_id in tasks}
        _refuse_sides(run, found, mine, recipe)
        unknown = sum(one.task_id not in tasks for one in found)
        if unknown:
            _tell_unknown(run, unknown, recipe)
        train += fingerprint_tasks(list(mine.values()), run.objects)
        heldout += fingerprint_tasks([one for one in tasks.values() if not _trained_on(one, recipe)], run.objects)
        made.tasks |= mine
        made.trajectories += [_renamed(one, prefix) for one in found]
        made.trees += [
            tree.model_copy(update={"id": prefix + tree.id}) for tree in run.trees if _wanted(tree.phase, recipe.phases)
        ]
    for name in recipe.heldout:
        given = TaskSet.load(Path(name))
        heldout += fingerprint_tasks(given.split("heldout") or given.tasks, given.objects)
    refuse_overlap(train, heldout)
    made.keys = {found.id: overlap_keys(found) for found in train}
    if recipe.algorithm == "rejection":
        selection = accepted(made.trajectories, recipe.accept)
        chosen = set(selection.accepted)
        made.trajectories = [one for one in made.trajectories if one.id in chosen]
        made.refused = selection.refused
    return made


def _of_phases(run: RunDirectory, phases: Sequence[str]) -> Iterator[Trajectory]:
    there = Counter[str]()
    for one in run.trajectories:
        there[one.phase] += 1
        if _wanted(one.phase, phases):
            yield one
    missing = [name for name in phases if not there[name]]
    if len(missing) == len(phases) and phases:
        raise UsageError(
            f"The run at {run.path} has none of the phases {', '.join(phases)}",
            why=f"It has {', '.join(f'{name} ({count})' for name, count in there.items())}.",
        )


def _wanted(phase: str, phases: Sequence[str]) -> bool:
    return not phases or phase in phases


def _trained_on(task: Task, recipe: TrainRecipe) -> bool:
    return task.split == "train" or (recipe.train_on_benchmarks and task.source.kind == "benchmark")


def _refuse_sides(run: RunDirectory, found: Sequence[Trajectory], tasks: dict[str, Task], recipe: TrainRecipe) -> None:
    marked = [name for name, task in tasks.items() if task.source.kind == "benchmark"]
    if marked and not recipe.train_on_benchmarks:
        raise DataError(
            f"{run.path} has {len(marked)} benchmark tasks to train on, the first {marked[0]}",
            why="A policy that was trained on a benchmark can no longer be measured by it.",
            mend="Leave them out, or say train_on_benchmarks = true in the recipe; the run's manifest records it.",
        )
    held = [name for name, task in tasks.items() if not _trained_on(task, recipe)]
    if held:
        phases = {one.phase for one in found if one.task_id in tasks and _trained_on(tasks[one.task_id], recipe)}
        named = ", ".join(f'"{phase}"' for phase in sorted(phases))
        raise DataError(
            f"{run.path} has attempts at {len(held)} held-out tasks: {', '.join(held[:_NAMED])}",
            why="What is trained on can no longer show whether the policy has learned anything.",
            mend=f"Name the phases to train on: phases = [{named}]." if named else "Collect runs with --split train.",
        )


def _tell_unknown(run: RunDirectory, count: int, recipe: TrainRecipe) -> None:
    what = f"{run.path} does not hold the tasks of {count} of its trajectories"
    if recipe.heldout:
        raise DataError(what, why="So nobody can tell whether they overlap those held out.", mend="Leave that run out.")
    say(f"{what}: whether these overlap a held-out set cannot be told, now or later.")


def _renamed(one: Trajectory, prefix: str) -> Trajectory:
    """Ids and groups of several runs are kept apart."""
    if not prefix:
        return one
    tree = prefix + one.tree_id if one.tree_id is not None else None
    return one.model_copy(update={"id": prefix + one.id, "group_id": prefix + one.group_id, "tree_id": tree})
