"""The stages of a loop: what each is, and the gate between two of them."""

import math
import sys
from collections.abc import Sequence

import click

from patchgym.cli.console import say, show_line, show_table
from patchgym.cli.diagnose import show_checklist
from patchgym.cli.recipe import LoopRecipe, Stage
from patchgym.errors import UsageError
from patchgym.records import Gate, Task


def sampling(stage: Stage, recipe: LoopRecipe, tasks: Sequence[Task]) -> tuple[Sequence[Task], int]:
    """The tasks of a stage that samples, and how many samples of each: as many as make its rollouts, or a few more
    where they do not divide."""
    samples = stage.samples or recipe.samples
    chosen = tasks[: math.ceil(stage.rollouts / samples)]
    return chosen, math.ceil(stage.rollouts / len(chosen))


def rounds_of(stage: Stage, recipe: LoopRecipe, tasks: int) -> int:
    """The rounds of the stage that trains on so many tasks."""
    return stage.rounds or math.ceil(stage.epochs * tasks / min(recipe.tasks_per_round, tasks))


def upto_of(recipe: LoopRecipe, stage: int | None) -> int:
    """The stage up to which the command line asks to go.

    Raises:
        UsageError: there is none of this number.
    """
    count = len(recipe.stages)
    if stage is None:
        return count
    if not 1 <= stage <= count:
        raise UsageError(
            f"The recipe has no stage {stage}",
            why=f"It has {count}." if count else "It has no stages: it is done in one go.",
            mend="patchgym loop RECIPE --dry-run shows them.",
        )
    return stage


def show_gate(gate: Gate, number: int, count: int) -> None:
    """The verdict after a stage, with its evidence."""
    show_checklist(gate.checklist, f"the run after stage {number} of {count}")


def goes_on(number: int, count: int, *, asked_for: int | None, yes: bool) -> bool:
    """Whether the next stage is wanted, after the stage of this number. A terminal is asked; elsewhere the command line
    has to say so."""
    if number >= count:
        return False
    if asked_for is not None:
        return number < asked_for
    if yes:
        return True
    if sys.stdin.isatty() and sys.stderr.isatty():
        return click.confirm(f"Go on with stage {number + 1} of {count}?", default=True, err=True)
    say(f"Stage {number} of {count} is done. To go on: the same command with --yes, or with --stage {number + 1}.")
    return False


def show_plan(recipe: LoopRecipe, name: str) -> None:
    """What a loop of this recipe would do. Nothing is loaded, built or run."""
    rows = []
    for number, stage in enumerate(recipe.stages, start=1):
        if stage.trains:
            tasks = f"{stage.tasks} tasks" if stage.tasks else "all training tasks"
            length = f"{stage.rounds} rounds" if stage.rounds else f"{stage.epochs} epochs"
            rows.append((str(number), "train", f"{tasks}, {length} of {recipe.tasks_per_round} tasks a round"))
        else:
            when = "after the warm start" if stage.after_warm_start else "of the policy as it is"
            samples = stage.samples or recipe.samples
            rows.append((str(number), "sample", f"{stage.rollouts} rollouts, {samples} of each task, {when}"))
    if not rows:
        rows = [("-", "train", f"{recipe.rounds} rounds of {recipe.tasks_per_round} tasks, {recipe.samples} samples")]
    show_table(f"Stages of {name}", ("", "", "what"), rows)
    search = f"search trees ({recipe.search.strategy})" if recipe.search is not None else "single rollouts"
    partial = f"half of the tests {recipe.reward.half:g}, style at most {recipe.reward.second_layer:g}"
    show_line(f"Policy {recipe.policy}; {search}; reward: solved 1, {partial}; update {recipe.grpo.algorithm}.")
    pause = "pause" if recipe.alarms.pause else "only tell"
    show_line(f"A gate that finds something broken stops. Alarms within a stage {pause}. The recipe is valid.")
