"""The exact randomisation test, against counting by hand and against scipy."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as some

from patchgym.evaluate.flips import flip_p_value

few = some.lists(some.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.75, 1.0]), min_size=1, max_size=9)


@given(few)
def test_it_is_the_share_of_all_choices_of_signs_that_come_out_as_far_from_0(differences: list[float]) -> None:
    seen = abs(sum(differences))
    totals = [
        abs(sum(sign * one for sign, one in zip(signs, differences, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(differences))
    ]
    share = sum(total >= seen - 1e-9 for total in totals) / len(totals)
    assert flip_p_value(differences) == pytest.approx(share)


@pytest.mark.parametrize(("gained", "lost"), [(9, 1), (30, 22), (5, 0), (3, 3)])
def test_with_one_sample_a_task_it_is_mcnemars_exact_test(gained: int, lost: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    exact = stats.binomtest(gained, gained + lost).pvalue
    assert flip_p_value([1.0] * gained + [-1.0] * lost + [0.0] * 40) == pytest.approx(exact)


def test_tasks_of_many_different_numbers_of_samples_are_drawn_and_not_counted() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    differences = [
        ((task * 37) % 11 - 4) / prime for task, prime in enumerate([53, 59, 61, 67, 71, 73, 79, 83, 89, 97])
    ]
    peer = stats.permutation_test(
        (differences, [0.0] * 10), lambda x, y: sum(x) - sum(y), permutation_type="samples", n_resamples=2000
    ).pvalue
    assert flip_p_value(differences) == pytest.approx(peer, abs=0.01)


def test_nothing_that_differs_is_no_evidence() -> None:
    assert flip_p_value([0.0, 0.0]) == 1.0


def test_no_task_has_no_p_value() -> None:
    assert flip_p_value([]) is None
