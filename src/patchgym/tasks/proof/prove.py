"""The proof of a task: nothing done fails, the gold patch passes, every time, graded as every patch is graded."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from statistics import median
from typing import Protocol

from patchgym.grading import GRADER_VERSION
from patchgym.records import Outcome, Task, TestReport, Validation, Verdict
from patchgym.tasks.proof.bench import Dropped, together


class Grades(Protocol):
    """Whatever grades patches as ``Grader`` does."""

    async def grade(self, task: Task, patch: str) -> TestReport:
        """The report on ``patch``."""
        ...


async def prove(task: Task, grades: Grades, runs: int) -> Task:
    """The task with its ``validation``: ``runs`` gradings of nothing done and of the gold patch, each in a fresh
    sandbox. Where pass-to-pass tests fail in any of them, they are taken out and the proof begins again, once.

    Raises:
        Dropped: the gradings do not say what they should, or do not agree.
    """
    for _ in range(2):
        reports = await together(grades.grade(task, patch) for patch in ("", task.gold_patch) for _ in range(runs))
        base, gold = reports[:runs], reports[runs:]
        shaky = _check(task, base, gold)
        if not shaky:
            return task.model_copy(update={"validation": _validation(base, gold)})
        kept = tuple(test for test in task.tests.pass_to_pass if test not in shaky)
        task = task.model_copy(update={"tests": task.tests.model_copy(update={"pass_to_pass": kept})})
    raise Dropped("unstable")


def _check(task: Task, base: Sequence[TestReport], gold: Sequence[TestReport]) -> set[str]:
    """Pass-to-pass tests that did not always pass; everything else must be as a proof wants it."""
    reports = [*base, *gold]
    for verdict in (Verdict.INFRA_ERROR, Verdict.TIMEOUT, Verdict.TAMPERED):
        if any(report.verdict is verdict for report in reports):
            raise Dropped(verdict.value)
    _must_be_all(base, lambda report: report.fail_to_pass.passed == 0, "base_passes")
    _must_be_all(gold, lambda report: report.fail_to_pass.share == 1.0, "gold_fails")
    shaky = {
        test
        for test in task.tests.pass_to_pass
        if any(report.tests.get(test) is not Outcome.PASSED for report in reports)
    }
    if not shaky:
        _must_be_all(base, lambda report: report.verdict is Verdict.UNRESOLVED, "base_passes")
        _must_be_all(gold, lambda report: report.verdict is Verdict.RESOLVED, "gold_fails")
    return shaky


def _validation(base: Sequence[TestReport], gold: Sequence[TestReport]) -> Validation:
    return Validation(
        runs=len(base),
        base_failed=len(base),
        noop_failed=len(base),
        gold_passed=len(gold),
        test_seconds=round(median(report.seconds for report in gold), 3),
        grader_version=GRADER_VERSION,
        validated_at=datetime.now(UTC),
    )


def _must_be_all(reports: Sequence[TestReport], holds: Callable[[TestReport], bool], reason: str) -> None:
    """Drop under ``reason`` where no report satisfies ``holds``, as unstable where only some do."""
    agreeing = sum(holds(report) for report in reports)
    if agreeing < len(reports):
        raise Dropped("unstable" if agreeing else reason)
