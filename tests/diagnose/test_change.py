"""What changed between rounds is told from chance, on the tasks that both have."""

import random
from collections.abc import Sequence

import pytest

from patchgym.diagnose import DiagnoseSettings
from patchgym.diagnose.change import LEAST, Sides, alike, change, unlike
from patchgym.diagnose.checks.trend import _swings, reward_of, too_far
from patchgym.diagnose.seen import Seen, seen
from patchgym.records import Message, StopReason
from patchgym.train import StepReport
from tests.diagnose.test_alarms import attempt, report
from tests.records_for_tests import make_task


def attempts(values: dict[int, Sequence[float]], phase: str = "a") -> list[Seen]:
    """Attempts with these rewards, by task."""
    tasks = {task: make_task(f"demo-{task}") for task in values}
    return [
        seen(attempt(task, at, value, phase=phase), tasks[task])
        for task, found in values.items()
        for at, value in enumerate(found)
    ]


def test_only_shared_tasks_are_compared() -> None:
    before = attempts({1: [0.0] * 8, 2: [1.0] * 8})
    after = attempts({1: [0.3] * 8, 3: [0.0] * 8})
    found = change(before, after, reward_of)
    assert found is not None
    assert (found.before, found.after, found.tasks) == (0.0, 0.3, 1)


def test_too_few_samples_say_nothing() -> None:
    few = attempts({1: [0.0] * (LEAST - 1)})
    assert change(few, attempts({1: [1.0] * 20}), reward_of) is None
    assert change(few, attempts({2: [1.0] * 20}), reward_of) is None


def test_sides_are_compared_on_what_they_share_or_where_they_have_many_tasks() -> None:
    before, after = attempts({1: [0.0] * 8, 2: [1.0] * 8}), attempts({1: [0.3] * 8, 3: [0.0] * 8})
    found = alike(Sides("a", before, "b", after), 10)
    assert found is not None
    assert {one.light.task_id for one in (*found.before, *found.after)} == {"demo-1"}
    apart = Sides("a", attempts({1: [0.0] * 8}), "b", attempts({2: [0.0] * 8}))
    assert alike(apart, 2) is None
    assert "1 and 1 tasks, too few of them the same: too little to tell, 2 tasks in each" in unlike(apart, 2)
    assert alike(apart, 1) == apart


def test_the_error_is_that_of_samples_within_tasks() -> None:
    """Two tasks far apart and nothing within them: only the made-up squared deviation is left."""
    before = attempts({1: [0.0] * 8, 2: [1.0] * 8})
    found = change(before, before, reward_of)
    assert found is not None
    assert found.moved == 0
    assert found.error == pytest.approx(((0.25 / 29) * (2 * 2 / 8) / 4) ** 0.5)


def test_without_a_change_the_error_is_exceeded_about_as_often_as_it_says() -> None:
    dice = random.Random(5)

    def drawn() -> list[Seen]:
        return attempts({task: [float(dice.random() < 0.3 + 0.1 * task) for _ in range(6)] for task in range(4)})

    over = 0
    for _ in range(150):
        found = change(drawn(), drawn(), reward_of)
        assert found is not None
        over += abs(found.errors) > 2.576
    assert over <= 6


def test_turning_around_is_counted_only_where_it_is_large_and_no_chance() -> None:
    low, high, near = attempts({1: [0.0] * 10}), attempts({1: [1.0] * 10}), attempts({1: [0.1] * 10})
    settings = DiagnoseSettings()
    assert _swings([low, high, low, high], settings) == 2
    assert _swings([low, high, high, high], settings) == 0
    assert _swings([low, near, low, near], settings) == 0


def test_steps_that_clip_half_of_the_ids_go_too_far() -> None:
    def clipped(share: float) -> StepReport:
        return report(0.0).model_copy(update={"clip_share": share})

    settings = DiagnoseSettings()
    assert not too_far([clipped(0.0), clipped(0.4)], settings, imitation=False)
    assert "clipped" in too_far([clipped(0.0), clipped(0.6)], settings, imitation=False)


def test_a_loss_of_imitation_that_rises_goes_too_far() -> None:
    def lost(loss: float) -> StepReport:
        return report(0.0).model_copy(update={"loss": loss, "sampler_gap": None})

    settings = DiagnoseSettings()
    assert not too_far([lost(2.0), lost(1.0), lost(1.5)], settings, imitation=True)
    assert "rose" in too_far([lost(1.0), lost(3.0), lost(4.0)], settings, imitation=True)


def test_what_a_step_lacks_is_counted_and_where_states_do_not_follow_is_said() -> None:
    one = attempt(1, 0, 0.0, steps=3)
    task = make_task("demo-1")
    assert not seen(one, task).missing
    assert not seen(one, task).broken
    bare = [step.model_copy(update={"usage": None}) for step in one.steps]
    assert seen(one.model_copy(update={"steps": tuple(bare)}), task).missing == {"usage": 3}
    torn = (one.steps[0], one.steps[1].model_copy(update={"state_before": "f" * 40}), one.steps[2])
    assert "begins at another state" in seen(one.model_copy(update={"steps": torn}), task).broken[0]
    assert (
        "step 2 follows step 0" in seen(one.model_copy(update={"steps": (one.steps[0], one.steps[2])}), task).broken[0]
    )


def test_the_same_acts_are_told_apart_from_the_same_record() -> None:
    first, second = attempt(1, 0, 0.0), attempt(1, 1, 0.0)
    assert seen(first, None).whole != seen(second, None).whole
    said = tuple(step.model_copy(update={"message": Message(role="assistant", content="same")}) for step in first.steps)
    assert seen(first, None).acts == seen(first.model_copy(update={"steps": said}), None).acts
    assert seen(first, None).whole == seen(first.model_copy(update={"id": "again"}), None).whole


def test_a_time_limit_says_whose_time_it_was() -> None:
    one = attempt(1, 0, 0.0).model_copy(update={"stop": StopReason.TIME_LIMIT})
    assert seen(one, None).whose_time == "endpoint"
