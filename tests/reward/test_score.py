"""The first layer decides; the second never reorders it."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.records import Limits, Reward, Scope, Verdict
from patchgym.reward import RewardSettings, score
from tests.records_for_tests import make_report, make_step

GOLD = Scope(files=1, hunks=1, lines=2)


def value_of(
    verdict: Verdict,
    *,
    fixed: tuple[int, int] = (0, 2),
    kept: tuple[int, int] = (5, 5),
    turns: int = 1,
    bad: int = 0,
    lines: int = 2,
    settings: RewardSettings | None = None,
) -> Reward:
    steps = [make_step(index, ok=index >= bad) for index in range(turns)]
    patch = Scope(files=1, hunks=1, lines=lines)
    report = make_report(verdict, fixed=fixed, kept=kept)
    return score(report, steps, patch, GOLD, Limits(turns=12), settings or RewardSettings())


def test_half_of_the_tests_fixed_is_worth_about_0_3_and_solved_about_1() -> None:
    half = value_of(Verdict.UNRESOLVED, fixed=(1, 2), turns=0).value
    solved = value_of(Verdict.RESOLVED, fixed=(2, 2), turns=0).value
    assert half == pytest.approx(0.3)
    assert solved == pytest.approx(1.0)


def test_breaking_something_costs_the_partial_credit() -> None:
    assert value_of(Verdict.UNRESOLVED, fixed=(1, 2), kept=(4, 5)).value == 0.0


@pytest.mark.parametrize("verdict", [Verdict.TAMPERED, Verdict.INVALID, Verdict.TIMEOUT])
def test_a_gated_verdict_is_worth_nothing_whatever_was_fixed(verdict: Verdict) -> None:
    assert value_of(verdict, fixed=(1, 2)).value == 0.0


def test_an_infrastructure_failure_has_no_reward_at_all() -> None:
    assert value_of(Verdict.INFRA_ERROR).value is None


def test_a_failed_attempt_gets_no_credit_for_style() -> None:
    assert value_of(Verdict.UNRESOLVED, turns=1).value == value_of(Verdict.UNRESOLVED, turns=12, bad=12).value == 0.0


def test_of_two_solutions_the_shorter_one_is_worth_more() -> None:
    long = value_of(Verdict.RESOLVED, fixed=(2, 2), turns=12).value
    short = value_of(Verdict.RESOLVED, fixed=(2, 2), turns=4).value
    assert long is not None
    assert short is not None
    assert short > long


@given(
    total=st.integers(1, 40),
    half=st.floats(0.0, 0.49),
    cap=st.floats(0.0, 0.9),
    weights=st.tuples(*[st.floats(0.0, 5.0)] * 3),
)
def test_no_style_reorders_two_outcomes(
    total: int, half: float, cap: float, weights: tuple[float, float, float]
) -> None:
    settings = RewardSettings(
        half=half, cap=cap, steps_weight=weights[0], invalid_weight=weights[1], patch_weight=weights[2]
    )

    def levels(fixed: int, turns: int, bad: int, lines: int) -> tuple[float, float]:
        verdict = Verdict.RESOLVED if fixed == total else Verdict.UNRESOLVED
        reward = value_of(verdict, fixed=(fixed, total), turns=turns, bad=bad, lines=lines, settings=settings)
        assert reward.value is not None
        return reward.terms["outcome"].value, reward.value

    best = [levels(fixed, 0, 0, 2) for fixed in range(total + 1)]
    worst = [levels(fixed, 12, 12, 500) for fixed in range(total + 1)]
    for (first_a, value_a), (first_b, value_b) in itertools.product(worst, best):
        if first_a > first_b:
            assert value_a > value_b


def test_the_terms_add_up_to_the_value() -> None:
    reward = value_of(Verdict.UNRESOLVED, fixed=(1, 2), turns=6, bad=2, lines=9)
    assert reward.value == pytest.approx(sum(term.value for term in reward.terms.values()))
    assert all(term.why for term in reward.terms.values())
