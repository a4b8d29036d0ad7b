"""From a candidate to a proved task, or to the reason why it is none.

A candidate becomes a task only by running: the tests that its bug breaks are found by the whole suite, split into those
that the agent sees and those that stay hidden, and then graded as every patch is graded. In each of several fresh
sandboxes doing nothing must fail every fail-to-pass test, and the gold patch must pass everything.
"""

import asyncio
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Literal

from patchgym.content import Entry, ObjectStore, patch_scope, patched_paths
from patchgym.errors import EnvironmentBuildError, SandboxError
from patchgym.grading import GRADER_VERSION, Grader
from patchgym.records import Environment, Limits, Outcome, Task, TestReport, Tests, Validation, Verdict
from patchgym.sandbox import SandboxFactory
from patchgym.tasks.candidates import Candidate
from patchgym.tasks.hiding import defined_functions, function_of, without_functions
from patchgym.tasks.instruction import leaks, modules_of, write_instruction
from patchgym.tasks.packages import Package
from patchgym.testrun import TestRun, run_tests, sandbox_spec

_BROKEN = frozenset({Outcome.FAILED, Outcome.ERROR, Outcome.MISSING})
_SEARCH_SECONDS = 15.0
_TEST_SECONDS = 20.0


class Dropped(Exception):
    """A candidate is no task; ``reason`` is the name under which it is counted.

    ``survived``: no test notices the bug. ``breaks_everything``, ``breaks_too_much``: no test, or too few, still pass.
    ``nothing_to_hide``: fewer than two test functions fail, or none can be taken out. ``visible_differs``: the reduced
    test files do not fail as the whole ones do. ``leaks``: the instruction would tell the fix. ``timeout``, ``crash``:
    the tests do not come to an end. ``base_passes``, ``gold_fails``, ``unstable``, ``tampered``: the proof failed.
    ``infra_error``: a sandbox was lost.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True)
class Rules:
    """What a task set asks of its tasks: runs of each proof, most failing tests of a planted bug, the limits that the
    tasks carry, and the seed of every choice."""

    proof_runs: int
    max_failing_tests: int
    limits: Limits
    seed: int


@dataclass(frozen=True)
class Healthy:
    """The suite of an unbroken tree: ids of the tests that pass every time, how many others there are, and seconds."""

    passed: frozenset[str]
    left_out: int
    seconds: float


class Bench:
    """Runs tests and grades patches, at most ``concurrency`` at once. ``build`` gives an environment's directory."""

    def __init__(
        self, factory: SandboxFactory, objects: ObjectStore, build: Callable[[Environment], Path], concurrency: int
    ) -> None:
        self.objects = objects
        self._factory, self._build = factory, build
        self._grader = Grader(factory, objects, build)
        self._slots = asyncio.Semaphore(concurrency)

    async def run(
        self, tree: str, environment: Environment, ids: Sequence[str] = (), *, timeout_s: float, base: str | None = None
    ) -> TestRun:
        """Run tests (none named: all) on ``tree`` in a fresh sandbox.

        Raises:
            SandboxError: the sandbox was lost.
        """
        async with self._slots:
            built = await asyncio.to_thread(self._build, environment)
            sandbox = await self._factory.create(sandbox_spec(tree, environment, built, base=base))
            try:
                return await run_tests(sandbox, environment, ids, timeout_s=timeout_s)
            finally:
                await sandbox.close()

    async def grade(self, task: Task, patch: str) -> TestReport:
        """The grader's report on ``patch``."""
        async with self._slots:
            return await self._grader.grade(task, patch)


async def run_healthy(bench: Bench, tree: str, environment: Environment, package: Package, runs: int) -> Healthy:
    """Run a healthy tree's suite ``runs`` times in fresh sandboxes.

    Raises:
        EnvironmentBuildError: no test of the package passes there.
        SandboxError: a sandbox was lost.
    """
    found = await asyncio.gather(*(bench.run(tree, environment, timeout_s=300.0) for _ in range(runs)))
    ids = {test for run in found for test in run.outcomes if package.is_test(function_of(test)[0])}
    passed = {test for test in ids if all(run.outcomes.get(test) is Outcome.PASSED for run in found)}
    if not passed or not all(run.complete for run in found):
        name = environment.distribution.name if environment.distribution else "this package"
        raise EnvironmentBuildError(
            f"The test suite of {name} does not pass",
            why=next((text for run in found for text in run.failures.values()), found[0].log)[-600:],
            mend="Its environment may lack something that the tests need.",
        )
    return Healthy(frozenset(passed), len(ids) - len(passed), max(run.seconds for run in found))


async def make_task(
    candidate: Candidate, healthy: Healthy, bench: Bench, rules: Rules, split: Literal["train", "heldout"]
) -> Task:
    """Turn a candidate into a proved task.

    Raises:
        Dropped: it does not become one.
    """
    try:
        draft = await _draft(candidate, healthy, bench, rules, split)
        return await prove(draft, bench, rules.proof_runs)
    except SandboxError as error:
        raise Dropped("infra_error") from error


async def prove(task: Task, bench: Bench, runs: int) -> Task:
    """The task with its ``validation``: ``runs`` gradings of nothing done and of the gold patch, each in a fresh sandbox.
    A pass-to-pass test that fails in any of them is taken out, and the proof begins again, once.

    Raises:
        Dropped: the gradings do not say what they should, or do not agree.
    """
    for _ in range(2):
        reports = await asyncio.gather(
            *(bench.grade(task, patch) for patch in ("", task.gold_patch) for _ in range(runs))
        )
        base, gold = reports[:runs], reports[runs:]
        for verdict in (Verdict.INFRA_ERROR, Verdict.TIMEOUT, Verdict.TAMPERED):
            if any(report.verdict is verdict for report in reports):
                raise Dropped(verdict.value)
        _must_be_all(base, lambda report: report.fail_to_pass.passed == 0, "base_passes")
        _must_be_all(gold, lambda report: report.fail_to_pass.share == 1.0, "gold_fails")
        shaky = {
            test for test in task.tests.pass_to_pass for report in reports if report.tests[test] is not Outcome.PASSED
        }
        if not shaky:
            _must_be_all(gold, lambda report: report.verdict is Verdict.RESOLVED, "gold_fails")
            return task.model_copy(
                update={
                    "validation": Validation(
                        runs=runs,
                        base_failed=len(base),
                        gold_passed=len(gold),
                        test_seconds=round(median(report.seconds for report in gold), 3),
                        grader_version=GRADER_VERSION,
                        validated_at=datetime.now(UTC),
                    )
                }
            )
        kept = tuple(test for test in task.tests.pass_to_pass if test not in shaky)
        task = task.model_copy(update={"tests": task.tests.model_copy(update={"pass_to_pass": kept})})
    raise Dropped("unstable")


def _must_be_all(reports: Sequence[TestReport], holds: Callable[[TestReport], bool], reason: str) -> None:
    """Drop under ``reason`` where no report satisfies ``holds``, as unstable where only some do."""
    agreeing = sum(holds(report) for report in reports)
    if agreeing < len(reports):
        raise Dropped("unstable" if agreeing else reason)


async def _draft(
    candidate: Candidate, healthy: Healthy, bench: Bench, rules: Rules, split: Literal["train", "heldout"]
) -> Task:
    environment = candidate.release.environment
    limit = max(_SEARCH_SECONDS, 10 * healthy.seconds)
    run = await bench.run(candidate.broken, environment, timeout_s=limit, base=candidate.release.tree)
    failing = _failing(candidate, healthy, run, rules)
    through = {
        test for test in failing if modules_of([run.failures.get(test, "")], candidate.release.package.is_source)
    }
    hidden = _hidden(bench.objects, candidate, failing, through, rules.seed)
    workspace = _without(bench.objects, candidate.broken, hidden)
    # The tests whose traceback leads into the source come first: they say most.
    visible = [test for test in failing if function_of(test) not in hidden]
    visible.sort(key=lambda test: (test not in through, test))
    seen = await bench.run(workspace, environment, visible, timeout_s=limit, base=candidate.release.tree)
    if any(seen.outcomes[test] not in _BROKEN for test in visible) or (seen.outcomes.keys() - set(visible)):
        raise Dropped("visible_differs")
    failures = {test: seen.failures.get(test) or seen.failures.get(function_of(test)[0], "") for test in visible}
    instruction = write_instruction(candidate.release.name, failures, candidate.release.package.is_source)
    texts = (
        bench.objects.get(entry.id).decode("utf-8", "replace") for entry in bench.objects.entries(workspace).values()
    )
    if leaks(instruction, candidate.gold_patch, texts):
        raise Dropped("leaks")
    entries, whole = bench.objects.entries(workspace), bench.objects.entries(candidate.broken)
    tests = Tests(
        fail_to_pass=(*visible, *(test for test in failing if function_of(test) in hidden)),
        pass_to_pass=tuple(sorted(test for test in healthy.passed if run.outcomes.get(test) is Outcome.PASSED)),
        hidden=tuple(test for test in failing if function_of(test) in hidden),
        visible_files={path: entry.id for path, entry in entries.items() if candidate.release.package.is_test(path)},
        hidden_files={path: whole[path].id for path in sorted({path for path, _ in hidden})},
        timeout_s=math.ceil(max(_TEST_SECONDS, 15 * healthy.seconds) / 10) * 10.0,
    )
    return Task(
        id=candidate.id,
        source=candidate.source,
        instruction=instruction,
        workspace=workspace,
        environment=environment,
        tests=tests,
        gold_patch=candidate.gold_patch,
        key_files=patched_paths(candidate.gold_patch),
        scope=patch_scope(candidate.gold_patch),
        limits=rules.limits,
        split=split,
    )


def _failing(candidate: Candidate, healthy: Healthy, run: TestRun, rules: Rules) -> list[str]:
    """Tests that pass on the healthy tree and fail, cannot be collected or are gone on the broken one."""
    if run.timed_out:
        raise Dropped("timeout")
    if not run.complete:
        raise Dropped("crash")
    failing = sorted(test for test in healthy.passed if run.outcomes.get(test, Outcome.MISSING) in _BROKEN)
    if not failing:
        raise Dropped("survived")
    if candidate.source.kind == "synthetic":
        if len(failing) == len(healthy.passed):
            raise Dropped("breaks_everything")
        if len(failing) > rules.max_failing_tests:
            raise Dropped("breaks_too_much")
    return failing


def _hidden(
    objects: ObjectStore, candidate: Candidate, failing: Sequence[str], through: set[str], seed: int
) -> frozenset[tuple[str, str]]:
    """The test functions to hide, about half of those that fail: rather those whose traceback shows no source."""
    functions = sorted({function_of(test) for test in failing})
    telling = {function_of(test) for test in through}
    entries = objects.entries(candidate.broken)
    defined = {
        path: defined_functions(objects.get(entries[path].id).decode("utf-8", "replace"))
        for path in {path for path, _ in functions}
        if path in entries
    }
    removable = [function for function in functions if function[1] in defined.get(function[0], ())]
    if len(functions) < 2 or not removable:
        raise Dropped("nothing_to_hide")
    random.Random(f"{seed}/{candidate.id}").shuffle(removable)
    removable.sort(key=lambda function: function in telling)
    return frozenset(removable[: len(functions) // 2])


def _without(objects: ObjectStore, tree: str, hidden: frozenset[tuple[str, str]]) -> str:
    """The tree whose test files lack the hidden functions."""
    entries = objects.entries(tree)
    changes: dict[str, Entry | None] = {}
    for path in {path for path, _ in hidden}:
        source = objects.get(entries[path].id).decode()
        reduced = without_functions(source, {function for file, function in hidden if file == path})
        changes[path] = Entry(entries[path].mode, objects.put(reduced.encode()))
    return objects.update_tree(tree, changes)
