"""The proof of a task: the workspace as it is fails, a submission that does nothing fails, the gold patch passes, every
time, in fresh sandboxes, graded as every patch is graded.

Of the runs of a submission all but the last look only at the tests that can notice the change; the last one is of the
whole suite.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import median
from typing import Protocol, TypeVar

from patchgym.grading import GRADER_VERSION, graded_tree
from patchgym.records import Environment, Outcome, Task, TestReport, Validation, Verdict
from patchgym.tasks.funnel import Dropped
from patchgym.tasks.proof.bench import Bench, together
from patchgym.tasks.proof.focus import focus
from patchgym.tasks.proof.weak import mutant_score
from patchgym.testrun import TestRun, function_of

_T = TypeVar("_T")


class Runs(Protocol):
    """Whatever runs tests and grades patches as ``Bench`` does."""

    async def run(self, tree: str, environment: Environment, ids: Sequence[str] = (), *, timeout_s: float) -> TestRun:
        """The outcomes of ``ids`` on ``tree``."""
        ...

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        """The report on ``patch``."""
        ...


@dataclass(frozen=True)
class _Evidence:
    """What all runs of a task showed."""

    base: list[TestRun]
    noop: list[TestReport]
    gold: list[TestReport]

    def outcomes(self, test: str) -> list[list[Outcome]]:
        """What a test did, by kind of run."""
        kinds = (
            [run.outcomes for run in self.base],
            [one.tests for one in self.noop],
            [one.tests for one in self.gold],
        )
        return [[outcomes[test] for outcomes in kind if test in outcomes] for kind in kinds]


async def prove_task(task: Task, bench: Bench, runs: int, mutants: int = 0) -> Task:
    """The task with its proof; which tests can notice the change is told by a healthy run of its solution. With
    ``mutants``, up to so many bugs are planted in the solution to measure the tests.

    Raises:
        Dropped: it does not prove.
        EnvironmentBuildError: the environment, or the suite on the solution, is not healthy.
        SandboxError: a sandbox was lost outside grading.
        PatchError: the gold patch does not apply.
    """
    tests = task.tests
    broken, healthy = (graded_tree(bench.objects, task, patch)[0] for patch in ("", task.gold_patch))

    def is_test(path: str) -> bool:
        return path in tests.visible_files or path in tests.hidden_files

    suite = await bench.healthy(healthy, task.environment, is_test, runs)
    proved = await prove(task, bench, runs, focus(bench.objects, broken, healthy, suite.coverage, is_test))
    if not mutants or proved.validation is None:
        return proved
    score = await mutant_score(proved, bench, broken, healthy, suite, mutants)
    return proved.model_copy(update={"validation": proved.validation.model_copy(update={"mutants": score})})


async def prove(task: Task, runs_of: Runs, runs: int, noticing: frozenset[str] | None) -> Task:
    """The task with its ``validation``. ``noticing`` are the tests that can notice what the gold patch changes (None:
    all). Pass-to-pass tests that fail in any run are taken out, and the proof begins again, once.

    Raises:
        Dropped: the runs do not say what they should, or do not agree.
        SandboxError: a sandbox was lost outside grading.
    """
    flaky: dict[str, tuple[Outcome, ...]] = {}
    for _ in range(2):
        evidence = await _gather(task, runs_of, runs, noticing)
        shaky = _check(task, evidence)
        if not shaky:
            return task.model_copy(update={"validation": _validation(evidence, flaky)})
        for test in sorted(shaky):
            kinds = evidence.outcomes(test)
            if any(len(set(kind)) > 1 for kind in kinds):
                flaky[test] = tuple(outcome for kind in kinds for outcome in kind)
        kept = tuple(test for test in task.tests.pass_to_pass if test not in shaky)
        task = task.model_copy(update={"tests": task.tests.model_copy(update={"pass_to_pass": kept})})
    raise Dropped("unstable")


async def _gather(task: Task, runs_of: Runs, runs: int, noticing: frozenset[str] | None) -> _Evidence:
    tests = task.tests
    first = None if noticing is None else noticing | set(tests.fail_to_pass)
    gone = {function_of(test) for test in tests.hidden}
    there = [test for test in tests.pass_to_pass if function_of(test) not in gone and (not first or test in first)]
    in_sight = [*task.view().failing_tests, *there]
    base = await together(
        runs_of.run(task.workspace, task.environment, in_sight, timeout_s=tests.timeout_s)
        for _ in range(runs if in_sight else 0)
    )
    reports = await together(
        runs_of.grade(task, patch, only) for patch in ("", task.gold_patch) for only in [*[first] * (runs - 1), None]
    )
    return _Evidence(base, reports[:runs], reports[runs:])


def _check(task: Task, evidence: _Evidence) -> set[str]:
    """Pass-to-pass tests that did not always pass; everything else must be as a proof wants it."""
    visible = task.view().failing_tests
    if any(run.process.timed_out for run in evidence.base):
        raise Dropped("timeout")
    for verdict in (Verdict.INFRA_ERROR, Verdict.TIMEOUT, Verdict.TAMPERED):
        if any(report.verdict is verdict for report in (*evidence.noop, *evidence.gold)):
            raise Dropped(verdict.value)
    _must_be_all(evidence.base, lambda run: all(run.outcomes[test].failing for test in visible), "visible_differs")
    _must_be_all(evidence.noop, lambda report: report.fail_to_pass.passed == 0, "base_passes")
    _must_be_all(evidence.gold, lambda report: report.fail_to_pass.share == 1.0, "gold_fails")
    shaky = {
        test
        for test in task.tests.pass_to_pass
        if any(outcome is not Outcome.PASSED for kind in evidence.outcomes(test) for outcome in kind)
    }
    if not shaky:
        _must_be_all(evidence.noop, lambda report: report.verdict is Verdict.UNRESOLVED, "base_passes")
        _must_be_all(evidence.gold, lambda report: report.verdict is Verdict.RESOLVED, "gold_fails")
    return shaky


def _validation(evidence: _Evidence, flaky: dict[str, tuple[Outcome, ...]]) -> Validation:
    return Validation(
        runs=len(evidence.gold),
        base_failed=len(evidence.base) or len(evidence.noop),
        noop_failed=len(evidence.noop),
        gold_passed=len(evidence.gold),
        test_seconds=round(median(report.seconds or 0.0 for report in evidence.gold), 3),
        grader_version=GRADER_VERSION,
        validated_at=datetime.now(UTC),
        flaky=flaky,
        sandbox=evidence.gold[-1].sandbox,
    )


def _must_be_all(found: Iterable[_T], holds: Callable[[_T], bool], reason: str) -> None:
    """Drop under ``reason`` where nothing satisfies ``holds``, as unstable where only some do."""
    agreeing = [holds(one) for one in found]
    if not all(agreeing):
        raise Dropped("unstable" if any(agreeing) else reason)
