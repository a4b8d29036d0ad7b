"""Rewards become advantages: who counts, who does not, and nothing goes missing on the way."""

import pytest

from patchgym.records import Step, StepTokens, Trajectory
from patchgym.train import PolicyGradientSettings, Reason, RowSet
from patchgym.train.groups import policy_gradient_rows
from tests.records_for_tests import make_reward, make_step
from tests.train.tiny import graded, rewarded

pytestmark = pytest.mark.train


def steps(prompt: int = 2) -> list[Step]:
    made = StepTokens(prompt_ids=(1,) * prompt, sampled_ids=(3,), logprobs=(-1.0,), mask=(1,))
    return [make_step(0, tokens=made)]


def advantages(rows: RowSet) -> dict[str, float]:
    """The one advantage of each row whose ids all have the same."""
    found = {}
    for row in rows.rows:
        assert row.advantages is not None
        (found[row.trajectory_id],) = {value for value, bit in zip(row.advantages, row.trainable, strict=True) if bit}
    return found


def made(*trajectories: Trajectory, **settings: object) -> RowSet:
    return policy_gradient_rows(trajectories, PolicyGradientSettings.model_validate({"max_row_tokens": 20, **settings}))


def test_advantages_are_relative_to_the_group() -> None:
    first = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    second = [graded(steps(), reward, at, "h") for at, reward in enumerate((0.3, 0.0, 0.0))]
    rows = made(*first, *second)
    assert advantages(rows) == pytest.approx({"g.0": 0.5, "g.1": -0.5, "h.0": 0.2, "h.1": -0.1, "h.2": -0.1})
    assert (rows.groups, rows.zero_variance_groups) == (2, 0)


def test_infrastructure_failures_shift_nobodys_baseline() -> None:
    sound = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    lost = graded(steps(), None, 2)
    unscored = rewarded(graded(steps(), 0.0, 3), reward=None)
    rows = made(*sound, lost, unscored)
    assert advantages(rows) == {"g.0": 0.5, "g.1": -0.5}
    assert rows.left_out == {Reason.NOT_TRUSTED: 1, Reason.NOT_SCORED: 1}


def test_who_may_not_enter_the_baseline_is_trained_against_it() -> None:
    sound = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    apart = rewarded(graded(steps(), 0.0, 2), in_baseline=False)
    assert advantages(made(*sound, apart)) == {"g.0": 0.5, "g.1": -0.5, "g.2": -0.5}


def test_rewards_are_settled_in_their_group_before_they_are_compared() -> None:
    def shaped(first: float, gate: str, style: float, at: int, group: str) -> Trajectory:
        reward = make_reward(first, gate=gate, steps=style)
        return graded(steps(), 0.0, at, group).model_copy(update={"reward": reward})

    solved = [shaped(1.0, "solved", style, at, "g") for at, style in enumerate((-0.04, 0.0))]
    partial = [shaped(0.3, "partial", style, at, "h") for at, style in enumerate((-0.04, 0.0))]
    rows = made(*solved, *partial)
    assert advantages(rows) == pytest.approx({"g.0": -0.02, "g.1": 0.02})
    assert rows.left_out == {Reason.ZERO_VARIANCE: 2}


def test_an_over_long_member_stays_in_the_baseline() -> None:
    rows = made(graded(steps(), 1.0, 0), graded(steps(prompt=99), 0.0, 1))
    assert advantages(rows) == {"g.0": 0.5}
    assert rows.left_out == {Reason.TOO_LONG: 1}


def test_groups_without_signal_are_counted() -> None:
    flat = [graded(steps(), 0.1 + 0.2, 0), graded(steps(), 0.3, 1)]
    alone = [graded(steps(), 1.0, 0, "alone"), graded(steps(), None, 1, "alone")]
    mixed = [graded(steps(), reward, at, "mixed") for at, reward in enumerate((1.0, 0.0, 0.5))]
    rows = made(*flat, *alone, *mixed)
    assert advantages(rows) == {"mixed.0": 0.5, "mixed.1": -0.5}
    assert rows.left_out == {
        Reason.ZERO_VARIANCE: 2,
        Reason.SMALL_GROUP: 1,
        Reason.NOT_TRUSTED: 1,
        Reason.ZERO_ADVANTAGE: 1,
    }
    assert (rows.groups, rows.zero_variance_groups) == (3, 1)
