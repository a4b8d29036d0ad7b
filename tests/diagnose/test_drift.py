"""Drift is seen where it was planted, and hardly ever where there is none."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.diagnose.drift import ALPHA, Level, chi_square_point, drift, ks, ks_critical, psi, psi_noise
from patchgym.errors import DataError

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=60)


def scores(dice: random.Random, size: int, a: float = 2.0, b: float = 2.0) -> list[float]:
    return [dice.betavariate(a, b) for _ in range(size)]


def test_the_distance_is_the_greatest_gap_of_the_distributions() -> None:
    assert ks([0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.5, 0.6]) == 0.5
    assert ks([0.1], [0.9]) == 1.0


def test_the_critical_value_is_smirnovs() -> None:
    assert ks_critical(100, 100, 0.05) == pytest.approx(1.358 * (2 / 100) ** 0.5, abs=1e-3)


@pytest.mark.parametrize(("freedom", "point"), [(3, 11.345), (9, 21.666), (1, 6.635)])
def test_the_chi_square_point_is_that_of_the_tables(freedom: int, point: float) -> None:
    assert chi_square_point(freedom, 0.99) == pytest.approx(point, rel=0.02 if freedom > 1 else 0.04)


@given(SCORES, SCORES)
def test_both_distances_are_never_negative_and_nothing_against_itself(a: list[float], b: list[float]) -> None:
    assert psi(a, b) >= 0
    assert 0 <= ks(a, b) <= 1
    assert psi(a, a) == 0
    assert ks(a, a) == 0


@pytest.mark.parametrize("size", [30, 100, 400])
def test_without_drift_the_alarm_is_up_in_at_most_one_of_a_hundred_rounds(size: int) -> None:
    dice = random.Random(size)
    found = [drift("r", scores(dice, size), scores(dice, size)).level for _ in range(400)]
    assert found.count(Level.BROKEN) <= 4
    assert found.count(Level.OK) >= 380


@pytest.mark.parametrize("size", [65, 200])
def test_the_index_exceeds_its_law_about_as_often_as_it_says(size: int) -> None:
    dice = random.Random(size)
    pairs = [(scores(dice, size), scores(dice, size)) for _ in range(500)]
    assert sum(psi(a, b) > psi_noise(a, b, 0.1) for a, b in pairs) / 500 == pytest.approx(0.1, abs=0.05)


def test_planted_drift_is_seen() -> None:
    dice = random.Random(3)
    found = [drift("r", scores(dice, 100), scores(dice, 100, 4.0, 2.0)).level for _ in range(100)]
    assert found.count(Level.BROKEN) >= 95


def labelled(dice: random.Random, size: int, right: float) -> list[tuple[float, float]]:
    pairs = []
    for score in scores(dice, size):
        told = dice.random() < right
        pairs.append((score, float((score > 0.5) == told)))
    return pairs


def test_a_model_that_no_longer_agrees_with_verdicts_raises_the_alarm() -> None:
    dice = random.Random(4)
    old, new = labelled(dice, 150, 0.9), labelled(dice, 100, 0.6)
    found = drift("r", [pair[0] for pair in old], [pair[0] for pair in new], [pair[1] for pair in old], new)
    assert found.level is Level.BROKEN
    assert found.agreement is not None
    assert found.agreement.fallen
    assert "fit a new one" in found.action


def test_agreement_that_stays_is_no_alarm() -> None:
    dice = random.Random(5)
    alarms = 0
    for _ in range(200):
        old, new = labelled(dice, 100, 0.85), labelled(dice, 60, 0.85)
        found = drift("r", [pair[0] for pair in old], [pair[0] for pair in new], [pair[1] for pair in old], new)
        alarms += found.agreement is not None and found.agreement.fallen
    assert alarms <= 200 * 2 * ALPHA


def test_few_scores_are_no_conclusion() -> None:
    found = drift("r", [0.1] * 50, [0.9] * 19)
    assert found.level is Level.NOTE
    assert found.psi is None
    assert "too few" in found.why


def test_scores_that_are_all_one_can_be_compared() -> None:
    assert drift("r", [0.5] * 50, [0.5] * 50).level is Level.OK
    assert drift("r", [0.5] * 50, [0.9] * 50).ks == 1.0


def test_a_score_that_is_no_number_is_refused() -> None:
    with pytest.raises(DataError, match="finite"):
        drift("r", [0.5] * 20, [float("nan")] * 20)


def test_outcomes_of_something_else_are_refused() -> None:
    with pytest.raises(DataError, match="outcomes"):
        drift("r", [0.5] * 30, [0.5] * 30, [1.0] * 29)
