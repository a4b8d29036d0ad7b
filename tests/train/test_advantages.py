"""Advantages against figures worked out by hand, and the order that they keep."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from patchgym.train.advantages import (
    credit_shifts,
    generalised_advantages,
    group_advantages,
    leave_one_out_advantages,
)

pytestmark = pytest.mark.train

ALL = torch.tensor([True, True, True, True])


def test_advantages_are_rewards_over_the_mean() -> None:
    rewards_G = torch.tensor([1.0, 0.0, 0.3, 0.3])
    torch.testing.assert_close(group_advantages(rewards_G, ALL), torch.tensor([0.6, -0.4, -0.1, -0.1]))


def test_who_is_outside_the_baseline_shifts_nobody() -> None:
    rewards_G = torch.tensor([1.0, 0.0, 100.0])
    advantages_G = group_advantages(rewards_G, torch.tensor([True, True, False]))
    torch.testing.assert_close(advantages_G, torch.tensor([0.5, -0.5, 99.5]))


def test_division_by_std_is_that_of_the_baseline() -> None:
    rewards_G = torch.tensor([3.0, 1.0, 2.0, 9.0])
    advantages_G = group_advantages(rewards_G, torch.tensor([True, True, True, False]), divide_by_std=True)
    torch.testing.assert_close(advantages_G, torch.tensor([1.0, -1.0, 0.0, 7.0]), atol=1e-4, rtol=0)


def test_equal_rewards_have_no_advantage_even_over_std() -> None:
    advantages_G = group_advantages(torch.tensor([0.3, 0.3, 0.3, 0.3]), ALL, divide_by_std=True)
    assert advantages_G.abs().max() < 1e-6


@pytest.mark.parametrize("rewards", [[1.0], [1.0, float("nan")]])
def test_no_baseline_is_an_error(rewards: list[float]) -> None:
    with pytest.raises(ValueError, match=r"baseline|finite"):
        group_advantages(torch.tensor(rewards), torch.tensor([True] * len(rewards)))


def test_a_member_is_not_in_its_own_leave_one_out_baseline() -> None:
    rewards_G = torch.tensor([1.0, 0.0, 0.5, 9.0])
    advantages_G = leave_one_out_advantages(rewards_G, torch.tensor([True, True, True, False]))
    # Against the means of (0, 0.5), (1, 0.5), (1, 0) and, from outside, (1, 0, 0.5).
    torch.testing.assert_close(advantages_G, torch.tensor([0.75, -0.75, 0.0, 8.5]))


def test_leaving_one_out_stretches_group_advantages() -> None:
    rewards_G = torch.tensor([1.0, 0.0, 0.3, 0.3])
    torch.testing.assert_close(leave_one_out_advantages(rewards_G, ALL), group_advantages(rewards_G, ALL) * 4 / 3)


def shifts(credits: list[float], members: list[int], rewards: list[float], share: float) -> list[float]:
    rewards_G = torch.tensor(rewards, dtype=torch.float64)
    moved: list[float] = credit_shifts(
        torch.tensor(credits, dtype=torch.float64),
        torch.tensor(members),
        rewards_G,
        rewards_G,
        torch.ones(len(rewards), dtype=torch.bool),
        share=share,
    ).tolist()
    return moved


def test_credits_are_centred_over_the_steps_of_the_group() -> None:
    # The mean of 0.1, 0.0, 0.02, 0.0 is 0.03, and half the distance of 1 leaves room for all of it.
    assert shifts([0.1, 0.0, 0.02, 0.0], [0, 0, 1, 1], [1.0, 0.0], 0.9) == pytest.approx([0.07, -0.03, -0.01, -0.03])


def test_credits_are_scaled_down_together_to_their_share_of_the_distance_between_outcomes() -> None:
    # Centred they are 0.3, -0.1, -0.1, -0.1; the nearest outcomes lie 0.2 apart, and half of half of that is 0.05.
    moved = shifts([0.4, 0.0, 0.0, 0.0], [0, 1, 2, 2], [1.0, 0.2, 0.0], 0.5)
    assert moved == pytest.approx([0.05, -0.05 / 3, -0.05 / 3, -0.05 / 3])


def test_credits_of_members_outside_the_baseline_move_nobody_elses() -> None:
    rewards_G = torch.tensor([1.0, 0.0, 0.5])
    moved_S = credit_shifts(
        torch.tensor([0.1, 0.0, 0.09]),
        torch.tensor([0, 1, 2]),
        rewards_G,
        rewards_G,
        torch.tensor([True, True, False]),
        share=0.9,
    )
    torch.testing.assert_close(moved_S, torch.tensor([0.05, -0.05, 0.04]))


def test_credits_count_for_nothing_where_all_outcomes_are_equal() -> None:
    moved_S = credit_shifts(
        torch.tensor([0.1, -0.1]),
        torch.tensor([0, 1]),
        torch.tensor([0.98, 1.0]),
        torch.tensor([1.0, 1.0]),
        torch.tensor([True, True]),
        share=0.9,
    )
    assert moved_S.tolist() == [0.0, 0.0]


@given(
    steps=st.lists(st.tuples(st.integers(0, 3), st.floats(-1, 1)), min_size=1, max_size=20),
    rewards=st.lists(st.sampled_from([0.0, 0.1, 0.3, 1.0]), min_size=4, max_size=4),
    share=st.floats(0, 0.99),
)
def test_credits_never_put_a_step_of_a_worse_outcome_above_one_of_a_better(
    steps: list[tuple[int, float]], rewards: list[float], share: float
) -> None:
    moved = shifts([credit for _, credit in steps], [member for member, _ in steps], rewards, share)
    totals = [(rewards[member], rewards[member] + shift) for (member, _), shift in zip(steps, moved, strict=True)]
    assert all(low < high for worse, low in totals for better, high in totals if worse < better)


def test_a_share_that_could_reorder_outcomes_is_an_error() -> None:
    with pytest.raises(ValueError, match="share"):
        shifts([0.1, 0.0], [0, 1], [1.0, 0.0], 1.0)


def test_generalised_advantages_discount_and_decay_what_comes_later() -> None:
    rewards_N, values_N = torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.5, 0.25, 0.5])
    advantages_N, returns_N = generalised_advantages(rewards_N, values_N, discount=0.5, decay=0.5)
    # Errors: 0.5 * 0.25 - 0.5 = -0.375; 0.5 * 0.5 - 0.25 = 0; 1 - 0.5 = 0.5; each later one counts a quarter.
    torch.testing.assert_close(advantages_N, torch.tensor([-0.375 + 0.125 / 4, 0.125, 0.5]))
    torch.testing.assert_close(returns_N, advantages_N + values_N)


def test_without_discount_and_decay_the_return_is_the_reward() -> None:
    rewards_N, values_N = torch.tensor([0.0, 0.0, 0.7]), torch.tensor([0.1, 0.9, 0.3])
    advantages_N, returns_N = generalised_advantages(rewards_N, values_N, discount=1.0, decay=1.0)
    torch.testing.assert_close(returns_N, torch.full((3,), 0.7))
    torch.testing.assert_close(advantages_N, 0.7 - values_N)
