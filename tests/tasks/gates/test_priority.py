"""Five rows of points, each with its reason, and the order that they give."""

import pytest

from patchgym.records import Difficulty, Environment, MutantScore, Scope, Task, Validation
from patchgym.tasks.gates.priority import PrioritySettings, by_priority, priority_of, shortfalls
from tests.records_for_tests import THEN, make_task

GOOD = make_task("good").model_copy(
    update={
        "instruction": "src.py returns the wrong bound: test_a fails with 0 instead of 9.",
        "environment": Environment(python="3.11", lock="pytest==9.0 --hash=sha256:00"),
        "validation": Validation(
            runs=3,
            base_failed=3,
            noop_failed=3,
            gold_passed=3,
            test_seconds=1.0,
            grader_version="1",
            validated_at=THEN,
            mutants=MutantScore(killed=8, survived=2),
        ),
        "difficulty": Difficulty(score=0.3, why=("one line",)),
    }
)


def changed(**fields: object) -> Task:
    return GOOD.model_copy(update=fields)


def points(task: Task, row: str) -> int:
    return next(one.total for one in priority_of(task).rows if one.name == row)


def test_a_good_task_has_every_point_and_each_says_why() -> None:
    score = priority_of(GOOD)
    assert score.total == 20
    assert [row.name for row in score.rows] == ["verifiable", "description", "reproducible", "scope", "difficulty"]
    assert all(point.why for row in score.rows for point in row.points)


@pytest.mark.parametrize(
    ("row", "task"),
    [
        ("verifiable", changed(validation=None)),
        ("verifiable", changed(tests=GOOD.tests.model_copy(update={"hidden": ()}))),
        ("verifiable", changed(tests=GOOD.tests.model_copy(update={"fail_to_pass": (), "hidden": ()}))),
        ("description", changed(instruction="Improve the performance.")),
        ("description", changed(instruction="")),
        ("reproducible", changed(environment=Environment(python="3.11", lock="pytest"))),
        ("reproducible", changed(validation=None)),
        ("scope", changed(scope=Scope(files=3, hunks=3, lines=9))),
        ("scope", changed(scope=Scope(files=1, hunks=1, lines=400))),
        ("scope", changed(key_files=("a/x.py", "b/y.py"))),
        ("difficulty", changed(difficulty=None)),
        ("difficulty", changed(difficulty=Difficulty(score=0.95, why=()))),
    ],
)
def test_what_is_missing_costs_points_in_its_own_row(row: str, task: Task) -> None:
    assert points(task, row) < points(GOOD, row)


def test_weak_tests_cost_a_point() -> None:
    assert GOOD.validation is not None
    weak = GOOD.validation.model_copy(update={"mutants": MutantScore(killed=1, survived=9)})
    assert points(changed(validation=weak), "verifiable") == 3


def test_thresholds_name_the_row_that_falls_short() -> None:
    settings = PrioritySettings(least_points=20, least_row=4)
    assert shortfalls(priority_of(GOOD, settings), settings) == ()
    (row, total) = shortfalls(priority_of(changed(difficulty=None), settings), settings)
    assert row.startswith("difficulty has 2 of 4")
    assert total.startswith("18 of 20")
    assert shortfalls(priority_of(make_task()), PrioritySettings()) == ()


def test_tasks_of_one_file_come_first_then_those_with_more_points() -> None:
    wide = changed(id="wide", scope=Scope(files=2, hunks=2, lines=4))
    poor = changed(id="poor", difficulty=None, validation=None)
    assert [task.id for task in by_priority([wide, poor, GOOD])] == ["good", "poor", "wide"]
    plain = PrioritySettings(single_file_first=False)
    assert [task.id for task in by_priority([wide, poor, GOOD], plain)] == ["good", "wide", "poor"]
