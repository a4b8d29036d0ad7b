"""Estimates against hand-computed values and closed forms."""

import itertools
import random
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as some

from patchgym.evaluate import paired_difference, pass_at_1, pass_at_each, pass_at_k


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 1), (4, 1, 2), (5, 3, 2), (6, 0, 3), (6, 6, 3)])
def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_solution(n: int, c: int, k: int) -> None:
    samples = [True] * c + [False] * (n - c)
    choices = [any(chosen) for chosen in itertools.combinations(samples, k)]
    assert pass_at_k(n, c, k) == pytest.approx(fmean(choices))


def test_pass_at_k_has_no_bias() -> None:
    # Over all outcomes of 5 draws of chance 0.3, weighed by their chance, it comes to the chance that one of 3 solves.
    chance, n, k = 0.3, 5, 3
    total = 0.0
    for outcomes in itertools.product((True, False), repeat=n):
        solved = sum(outcomes)
        total += chance**solved * (1 - chance) ** (n - solved) * pass_at_k(n, solved, k)
    assert total == pytest.approx(1 - (1 - chance) ** k)


@pytest.mark.parametrize("k", [0, 5])
def test_pass_at_k_beyond_the_samples_is_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at_k(4, 1, k)


def test_pass_at_1_weighs_tasks_alike() -> None:
    estimate = pass_at_1({"a": [True], "b": [False, False, False, False]})
    assert estimate is not None
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_there_is_no_pass_at_1_without_a_task() -> None:
    assert pass_at_1({}) is None
    assert pass_at_1({"a": []}) is None


def test_every_k_up_to_the_samples_is_told_with_the_tasks_that_it_rests_on() -> None:
    found = pass_at_each({"a": [True, False, False], "b": [True], "c": [False, False, False]})
    assert [(one.k, one.estimate.tasks) for one in found] == [(1, 3), (2, 2), (3, 2)]
    assert found[1].estimate.value == pytest.approx((2 / 3 + 0) / 2)
    assert found[2].estimate.value == 0.5


def test_no_k_beyond_the_most_is_told() -> None:
    assert [one.k for one in pass_at_each({"a": [True, False, False]}, most=1)] == [1]


tables = some.dictionaries(some.text(max_size=3), some.lists(some.booleans(), min_size=1, max_size=6), min_size=1)


@given(tables)
def test_pass_at_k_never_falls_with_k_where_every_task_has_all_samples(table: dict[str, list[bool]]) -> None:
    least = min(map(len, table.values()))
    values = [one.estimate.value for one in pass_at_each({task: row[:least] for task, row in table.items()})]
    assert all(low <= high + 1e-12 for low, high in itertools.pairwise(values))


@given(tables)
def test_an_interval_holds_its_value_and_stays_within_what_can_be(table: dict[str, list[bool]]) -> None:
    for one in pass_at_each(table):
        estimate = one.estimate
        assert 0 <= estimate.low <= estimate.value + 1e-12
        assert estimate.value - 1e-12 <= estimate.high <= 1


def test_a_paired_difference_uses_the_tasks_that_both_have() -> None:
    difference = paired_difference({"a": [False], "b": [False], "c": [True]}, {"a": [True], "b": [False]})
    assert difference is not None
    assert difference.value == 0.5
    assert difference.tasks == 2


def test_there_is_no_difference_of_disjoint_tasks() -> None:
    assert paired_difference({"a": [True]}, {"b": [True]}) is None


def test_a_paired_difference_is_surer_than_two_policies_apart() -> None:
    draw = random.Random(2)
    hard = [draw.random() < 0.5 for _ in range(200)]
    before = {str(task): [solved] for task, solved in enumerate(hard)}
    after = {str(task): [solved or task % 20 == 0] for task, solved in enumerate(hard)}
    difference, alone = paired_difference(before, after), pass_at_1(after)
    assert difference is not None
    assert alone is not None
    assert difference.high - difference.low < (alone.high - alone.low) / 2
