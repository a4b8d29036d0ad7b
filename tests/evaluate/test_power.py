"""How many tasks it takes: against the formula, and by making so many evaluations."""

import random

import numpy
import pytest

from patchgym.evaluate.estimates import differences
from patchgym.evaluate.flips import flip_p_value
from patchgym.evaluate.power import Power, paired_power, power_alone


def drawn(tasks: int, samples: int, gain: float, seed: int) -> tuple[dict[str, list[bool]], dict[str, list[bool]]]:
    """Two policies of which the second solves each task more often by ``gain``."""
    draw = random.Random(seed)
    before: dict[str, list[bool]] = {}
    after: dict[str, list[bool]] = {}
    for task in range(tasks):
        chance = draw.uniform(0.1, 0.8)
        before[str(task)] = [draw.random() < chance for _ in range(samples)]
        after[str(task)] = [draw.random() < chance + gain for _ in range(samples)]
    return before, after


def measured(found: Power | None) -> Power:
    assert found is not None
    return found


def test_it_is_the_sample_size_of_a_paired_comparison() -> None:
    found = measured(paired_power({"a": [False], "b": [False], "c": [True]}, {"a": [True], "b": [False], "c": [False]}))
    # Differences 1, 0, -1: deviation 1. (1.959964 + 0.841621)^2 / 0.03^2 = 8720.98.
    assert found.deviation == pytest.approx(1.0)
    assert found.tasks_needed == 8721
    assert found.smallest == pytest.approx(2.801585 / 3**0.5, abs=1e-5)


def test_so_many_tasks_do_show_the_difference_in_four_of_five_evaluations() -> None:
    found = measured(paired_power(*drawn(2000, 2, 0.1, seed=1), difference=0.1))
    hits = 0
    for seed in range(200):
        before, after = drawn(found.tasks_needed, 2, 0.1, seed=100 + seed)
        p_value = flip_p_value(list(differences(before, after).values()))
        hits += p_value is not None and p_value < 0.05
    assert 0.72 <= hits / 200 <= 0.88


def test_more_samples_of_each_task_are_told_to_help_as_far_as_they_do() -> None:
    few = measured(paired_power(*drawn(4000, 2, 0.0, seed=2)))
    # The chances of a task are the same for both: all of the deviation is luck of the draw.
    assert few.tasks_needed_at_best is None or few.tasks_needed_at_best < few.tasks_needed / 5
    lasting = numpy.random.default_rng(3).random(4000) < 0.5
    before = {str(task): [bool(one)] * 2 for task, one in enumerate(lasting)}
    after = {str(task): [not one] * 2 for task, one in enumerate(lasting)}
    sure = measured(paired_power(before, after))
    assert sure.tasks_needed_at_best == sure.tasks_needed


def test_one_sample_a_task_cannot_tell_luck_from_what_lasts() -> None:
    assert (
        measured(paired_power({"a": [True], "b": [False]}, {"a": [False], "b": [False]})).tasks_needed_at_best is None
    )


def test_one_policy_alone_tells_the_worst() -> None:
    before, after = drawn(1000, 1, 0.0, seed=4)
    alone, paired = measured(power_alone(before)), measured(paired_power(before, after))
    assert alone.basis == "alone"
    assert alone.tasks_needed > paired.tasks_needed


@pytest.mark.parametrize("outcomes", [{}, {"a": [True, False]}, {"a": [True], "b": [True]}])
def test_what_does_not_vary_tells_no_power(outcomes: dict[str, list[bool]]) -> None:
    assert power_alone(outcomes) is None
    assert paired_power(outcomes, outcomes) is None
