"""Which tasks the warm start imitates, and which the rounds take."""

from pathlib import Path

import pytest

from patchgym.cli.closed_loop import parted, without_guesses
from patchgym.cli.recipe import LoopRecipe
from patchgym.config import validated
from patchgym.errors import ConfigError
from patchgym.records import Action, Message, Scope, Task, Trajectory
from tests.cli.test_stages import SMALL, Place, needs_torch
from tests.diagnose.planted.drawn import Drawn
from tests.records_for_tests import make_step, make_task, make_trajectory

SIZES = (5, 1, 3, 1, 2, 4, 1, 2, 9, 1)
TASKS = [
    make_task(f"t-{at}").model_copy(update={"scope": Scope(files=1, hunks=1, lines=lines)})
    for at, lines in enumerate(SIZES)
]


def recipe(**settings: object) -> LoopRecipe:
    return validated(LoopRecipe, settings, "test")


def names(tasks: list[Task]) -> list[str]:
    return [task.id for task in tasks]


def test_without_demonstrations_of_their_own_both_take_all_tasks_smallest_first() -> None:
    imitated, practised = parted(recipe(), TASKS)
    assert names(imitated) == names(practised)
    assert [task.scope.lines for task in practised] == sorted(SIZES)


@pytest.mark.parametrize("order", ["smallest", "drawn"])
def test_no_round_takes_a_task_whose_solution_was_imitated(order: str) -> None:
    imitated, practised = parted(recipe(demonstrations=4, order=order), TASKS)
    assert len(imitated) == 4
    assert sorted(names(imitated) + names(practised)) == sorted(names(TASKS))


def test_the_seed_decides_which_tasks_are_imitated_and_their_order() -> None:
    drawn = [names(parted(recipe(demonstrations=4, order="drawn", seed=seed), TASKS)[1]) for seed in (1, 2, 1)]
    assert drawn[0] == drawn[2]
    assert set(drawn[0]) != set(drawn[1])
    assert names(parted(recipe(order="drawn", seed=1), TASKS)[1]) != names(TASKS)


def test_the_rounds_need_tasks_that_are_left() -> None:
    with pytest.raises(ConfigError, match="imitates 10 tasks, and there are 10"):
        parted(recipe(demonstrations=10), TASKS)


def test_the_last_stage_bounds_the_tasks_of_the_rounds() -> None:
    stages = [{"tasks": 3, "rounds": 1}]
    assert [task.scope.lines for task in parted(recipe(stages=stages), TASKS)[1]] == [1, 1, 1]
    imitated, practised = parted(recipe(stages=stages, demonstrations=5), TASKS)
    assert (len(imitated), len(practised)) == (5, 3)


def demonstrated(line: int, told: str) -> Trajectory:
    edit = Action(tool="edit_line", arguments={"path": "a.py", "line": str(line), "new": "x = 1"})
    prompt = (Message(role="system", content="You fix a bug."), Message(role="user", content=f"Lines:\na.py:\n{told}"))
    return make_trajectory(line, steps=[make_step(0).model_copy(update={"action": edit, "prompt": prompt})])


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"briefing": 8, "tools": ("edit_line",)}, [3]),
        ({"briefing": 8, "tools": ("edit_line", "read_file")}, [3, 4]),
        ({"briefing": 0, "tools": ("edit_line",)}, [3, 4]),
    ],
)
def test_what_the_agent_could_not_know_is_not_imitated(settings: dict[str, object], kept: list[int]) -> None:
    found = [demonstrated(line, "3: x = 2\n5: y = 4") for line in (3, 4)]
    assert [one.sample_index for one in without_guesses(found, recipe(rollout=settings))] == kept


@needs_torch
@pytest.mark.slow
@pytest.mark.train
def test_held_out_tasks_are_measured_after_every_so_many_rounds(tmp_path: Path) -> None:
    settings = {**SMALL, "rounds": 3, "demonstrations": 1, "evaluation": {"every": 2}, "alarms": {"pause": False}}
    report = Place(tmp_path).go(recipe(**settings), Drawn({"whole": 0.5, "nothing": 0.5}, looks=(1, 3)))
    assert list(report.evaluations) == ["eval-base", "eval-warm", "eval-round-2", "eval-final"]
    assert (report.demonstrations.tasks, {counts.tasks for counts in report.rounds.values()}) == (1, {1})
