"""Estimates against hand-computed values; infrastructure stays out of every denominator."""

import itertools
from statistics import fmean

import pytest

from patchgym.evaluate import FailureType, evaluate, failure_type, paired_difference, pass_at_1, pass_at_k
from patchgym.records import StopReason, Verdict
from tests.records_for_tests import make_report, make_step, make_task, make_trajectory

RIGHT_FILE = "--- a/src.py\n+++ b/src.py\n@@ -1 +1 @@\n-a\n+b\n"
OTHER_FILE = "--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-a\n+b\n"


@pytest.mark.parametrize(("n", "c", "k"), [(4, 1, 1), (4, 1, 2), (5, 3, 2), (6, 0, 3), (6, 6, 3)])
def test_pass_at_k_is_the_share_of_all_choices_that_hold_a_solution(n: int, c: int, k: int) -> None:
    samples = [True] * c + [False] * (n - c)
    choices = [any(chosen) for chosen in itertools.combinations(samples, k)]
    assert pass_at_k(n, c, k) == pytest.approx(fmean(choices))


def test_pass_at_k_beyond_the_samples_is_refused() -> None:
    with pytest.raises(ValueError, match="pass@5"):
        pass_at_k(4, 1, 5)


def test_pass_at_1_weighs_tasks_alike() -> None:
    estimate = pass_at_1({"a": [True], "b": [False, False, False, False]})
    assert estimate is not None
    assert estimate.value == 0.5
    assert (estimate.low, estimate.high) == (0.0, 1.0)


def test_the_interval_of_a_constant_is_a_point() -> None:
    estimate = pass_at_1({str(task): [True] for task in range(10)})
    assert estimate is not None
    assert (estimate.low, estimate.value, estimate.high) == (1.0, 1.0, 1.0)


def test_a_paired_difference_uses_the_tasks_that_both_have() -> None:
    difference = paired_difference({"a": [False], "b": [False], "c": [True]}, {"a": [True], "b": [False]})
    assert difference is not None
    assert difference.value == 0.5
    assert difference.tasks == 2


def test_an_infrastructure_failure_is_in_no_denominator() -> None:
    solved = make_trajectory(0, report=make_report(Verdict.RESOLVED), reward=1.0, steps=[make_step()])
    lost = make_trajectory(1)
    report = evaluate([solved, lost], [make_task()])
    assert report.infra_failures == 1
    assert report.pass_at_1 is not None
    assert report.pass_at_1.value == 1.0
    assert report.mean_steps == 1.0


@pytest.mark.parametrize(
    ("verdict", "patch", "kept", "stop", "expected"),
    [
        (Verdict.RESOLVED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, None),
        (Verdict.TAMPERED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.HACKED),
        (Verdict.TIMEOUT, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.TIMEOUT),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.PROTOCOL, FailureType.PROTOCOL),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.SUBMITTED, FailureType.NO_PATCH),
        (Verdict.UNRESOLVED, OTHER_FILE, (5, 5), StopReason.SUBMITTED, FailureType.WRONG_PLACE),
        (Verdict.UNRESOLVED, RIGHT_FILE, (4, 5), StopReason.SUBMITTED, FailureType.BROKE_SOMETHING),
        (Verdict.UNRESOLVED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.WRONG_LOGIC),
    ],
)
def test_each_failure_has_its_type(
    verdict: Verdict, patch: str, kept: tuple[int, int], stop: StopReason, expected: FailureType | None
) -> None:
    report = make_report(verdict, kept=kept)
    assert failure_type(make_trajectory(report=report, reward=0.0, patch=patch, stop=stop), make_task()) is expected
