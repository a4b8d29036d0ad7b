"""A spot check shows nothing of the reward, and agreement is what the tables say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.diagnose.spotcheck import Label, agreed, choose, cohen_kappa
from patchgym.errors import DataError
from patchgym.records import Trajectory, Verdict
from tests.records_for_tests import make_report, make_step, make_trajectory


def attempts(rewards: list[float]) -> list[Trajectory]:
    return [
        make_trajectory(
            at, steps=[make_step()], report=make_report(Verdict.RESOLVED), reward=value, patch=f"patch {at}"
        )
        for at, value in enumerate(rewards)
    ]


def test_the_highest_and_the_lowest_are_chosen() -> None:
    chosen = choose(attempts([at / 100 for at in range(100)]), {}, each=30)
    assert sorted(chosen.rewards.values()) == [at / 100 for at in (*range(30), *range(70, 100))]
    assert {chosen.rewards[item] for item in chosen.high} == {at / 100 for at in range(70, 100)}


def test_nothing_that_is_shown_tells_the_reward() -> None:
    chosen = choose(attempts([0.123, 0.987]), {"demo-1": "Two tests fail."})
    for item in chosen.items:
        text = item.model_dump_json()
        for word in ("0.123", "0.987", "resolved", "reward", "verdict", "demo-1", "round-1"):
            assert word not in text
        assert set(json.loads(text)) == {"id", "instruction", "steps", "patch"}


def test_the_order_is_the_seeds_and_not_the_rewards() -> None:
    made = attempts([at / 60 for at in range(60)])
    first, again, other = (choose(made, {}, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert [item.patch for item in first.items] != [item.patch for item in other.items]
    ordered = [first.rewards[item.id] for item in first.items]
    assert ordered != sorted(ordered)
    assert ordered != sorted(ordered, reverse=True)


@given(st.lists(st.sampled_from([0.0, 0.3, 1.0]), min_size=2, max_size=40), st.integers(1, 30))
def test_no_attempt_is_shown_twice(rewards: list[float], each: int) -> None:
    chosen = choose(attempts(rewards), {}, each=each)
    assert len({item.id for item in chosen.items}) == len(chosen.items) == 2 * min(each, len(rewards) // 2)
    low = [value for item, value in chosen.rewards.items() if item not in chosen.high]
    assert max(low) <= min(chosen.rewards[item] for item in chosen.high)


def test_what_was_not_rewarded_is_not_chosen() -> None:
    lost = make_trajectory(9)
    untrusted = attempts([1.0])[0].model_copy(update={"id": "x", "reward_trusted": False})
    assert len(choose([*attempts([0.0, 1.0]), lost, untrusted], {}).items) == 2
    with pytest.raises(DataError, match="nothing to compare"):
        choose([lost], {})


def test_kappa_is_that_of_a_worked_example() -> None:
    kappa, (low, high) = cohen_kappa(20, 5, 10, 15)  # agreement 0.7, by chance 0.5
    assert kappa == pytest.approx(0.4)
    assert low is not None
    assert high is not None
    assert low < 0.4 < high
    assert low == pytest.approx(0.125, abs=0.02)


def test_full_agreement_is_one_with_an_interval_that_is_not_a_point() -> None:
    kappa, (low, high) = cohen_kappa(30, 0, 0, 30)
    assert kappa == 1.0
    assert low is not None
    assert low < 0.95
    assert high == pytest.approx(1.0)


def test_where_chance_would_agree_on_all_there_is_no_kappa() -> None:
    assert cohen_kappa(5, 0, 0, 0)[0] is None
    assert cohen_kappa(0, 0, 0, 0)[0] is None


@given(*[st.integers(0, 30)] * 4)
def test_kappa_lies_within_its_interval_and_never_above_one(a: int, b: int, c: int, d: int) -> None:
    kappa, (low, high) = cohen_kappa(a, b, c, d)
    if kappa is not None and low is not None and high is not None:
        assert low - 1e-9 <= kappa <= high + 1e-9 <= 1 + 1e-8


def test_where_they_part_comes_the_worst_first() -> None:
    chosen = choose(attempts([0.0, 0.2, 0.6, 1.0]), {}, each=2)
    by_reward = {value: item for item, value in chosen.rewards.items()}
    labels = [Label(item=by_reward[value], label="no" if value > 0.5 else "yes") for value in (0.2, 0.6, 1.0)]
    found = agreed(chosen, labels)
    assert [one.reward for one in found.differences] == [1.0, 0.2, 0.6]
    assert (found.high_yes, found.high_no, found.low_yes, found.low_no) == (0, 2, 1, 0)


def test_unsure_answers_are_counted_and_left_out() -> None:
    chosen = choose(attempts([0.0, 1.0]), {})
    found = agreed(chosen, [Label(item=item.id, label="unsure") for item in chosen.items])
    assert (found.labelled, found.unsure, found.kappa) == (2, 2, None)


def test_the_last_answer_counts() -> None:
    chosen = choose(attempts([0.0, 1.0]), {})
    high = chosen.high[0]
    found = agreed(chosen, [Label(item=high, label="no"), Label(item=high, label="yes")])
    assert (found.labelled, found.high_yes, found.high_no) == (1, 1, 0)


def test_a_label_of_something_else_is_refused() -> None:
    with pytest.raises(DataError, match="no item"):
        agreed(choose(attempts([0.0, 1.0]), {}), [Label(item="strange", label="yes")])
