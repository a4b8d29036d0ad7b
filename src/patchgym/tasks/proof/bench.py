"""Where candidates are run: fresh sandboxes, a bounded number at once, and what is known of each healthy suite."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from patchgym.content import ObjectStore
from patchgym.errors import BuildFailure, EnvironmentBuildError
from patchgym.grading import Grader
from patchgym.grading.probes import ProbeMaker, store_probes
from patchgym.records import Environment, Outcome, Task, TestReport
from patchgym.sandbox import SandboxFactory
from patchgym.tasks.gates.findings import Finding
from patchgym.tasks.gates.workspace import attack_workspace
from patchgym.tasks.proof.healthy import Healthy, Suites
from patchgym.testrun import (
    TRACEBACKS,
    Coverage,
    TestRun,
    built_environment,
    coverage_tool,
    function_of,
    run_tests,
    sandbox_spec,
)

_SUITE_SECONDS = 300.0
_KEPT_SUITES = 64
_MOSTLY = 0.5
_T = TypeVar("_T")


class Bench:
    """Runs tests and grades patches, at most ``concurrency`` at once. ``build`` gives an environment's directory;
    what is found out of healthy suites is kept in ``suites``, where that is given."""

    def __init__(
        self,
        factory: SandboxFactory,
        objects: ObjectStore,
        build: Callable[[Environment], Path],
        concurrency: int,
        suites: Suites | None = None,
    ) -> None:
        self.objects = objects
        self.concurrency = concurrency
        self._factory, self._build, self._suites = factory, build, suites
        self._grader = Grader(factory, objects, build)
        self._slots = asyncio.Semaphore(concurrency)
        self._healthy: dict[tuple[str, str, int], asyncio.Task[Healthy]] = {}

    async def run(
        self,
        tree: str,
        environment: Environment,
        ids: Sequence[str] = (),
        *,
        timeout_s: float,
        base: str | None = None,
        cover: Sequence[str] = (),
        stressed: bool = False,
        until_failure: bool = False,
        tracebacks: int = TRACEBACKS,
    ) -> TestRun:
        """Run tests (none named: all) on ``tree`` in a fresh sandbox; ``cover`` names files whose lines are watched,
        ``stressed`` is for what leans on order or time, ``until_failure`` ends with the first that fails. So many
        failures have their traceback.

        Raises:
            EnvironmentBuildError, OfflineError, PrerequisiteError: the environment cannot be had here.
            SandboxError: the sandbox was lost.
        """
        async with self._slots:
            built = await built_environment(environment, self._build)
            watched = cover if built.folder is not None else ()  # coverage.py is for our Pythons
            tool = await asyncio.to_thread(coverage_tool, environment, self._build) if watched else None
            spec = sandbox_spec(tree, environment, built, base=base, coverage=tool)
            sandbox = await self._factory.create(spec)
            try:
                return await run_tests(
                    sandbox,
                    environment,
                    ids,
                    timeout_s=timeout_s,
                    cover=watched,
                    stressed=stressed,
                    until_failure=until_failure,
                    tracebacks=tracebacks,
                )
            finally:
                await sandbox.close()

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        """The grader's report on ``patch``, of all tests or of some."""
        async with self._slots:
            return await self._grader.grade(task, patch, only)

    async def attack(self, task: Task) -> tuple[Finding, ...]:
        """What an agent could read of a task's solution and of its hidden tests; see ``attack_workspace``."""
        async with self._slots:
            built = await built_environment(task.environment, self._build)
            return await attack_workspace(task, self.objects, self._factory, built)

    async def probed(self, task: Task) -> Task:
        """The task with calls to its solution whose results are known (``patchgym.grading.probes``).

        Raises:
            DataError: its own solution does not pass its tests.
            SandboxError: a sandbox was lost.
        """
        async with self._slots:
            probes = await ProbeMaker(self._factory, self.objects, self._build).make(task)
            return store_probes(self.objects, task, probes)

    async def healthy(self, tree: str, environment: Environment, is_test: Callable[[str], bool], runs: int) -> Healthy:
        """What a healthy tree's whole suite does over ``runs`` fresh runs, and over one more that watches the lines of
        its sources. It is found out once for each tree.

        Raises:
            EnvironmentBuildError: no test passes there, or the suite does not come to an end.
            SandboxError: a sandbox was lost.
        """
        key = tree, environment.model_dump_json(), runs
        if key not in self._healthy:
            self._healthy[key] = asyncio.create_task(self._run_healthy(tree, environment, is_test, runs))
            if len(self._healthy) > _KEPT_SUITES:  # of a long history; what is dropped is found out again
                del self._healthy[next(iter(self._healthy))]
        return await asyncio.shield(self._healthy[key])

    async def _run_healthy(
        self, tree: str, environment: Environment, is_test: Callable[[str], bool], runs: int
    ) -> Healthy:
        known = self._suites.find(tree, environment, runs) if self._suites is not None else None
        if known is not None:
            return known
        found = await self._run_suite(tree, environment, is_test, runs)
        if self._suites is not None:
            self._suites.keep(tree, environment, runs, found)
        return found

    async def _run_suite(
        self, tree: str, environment: Environment, is_test: Callable[[str], bool], runs: int
    ) -> Healthy:
        sources = [path for path in self.objects.entries(tree) if path.endswith(".py") and not is_test(path)]
        run = partial(self.run, tree, environment, timeout_s=_SUITE_SECONDS)
        *found, watched = await together(
            [run(stressed=0 < number == runs - 1) for number in range(runs)] + [run(cover=sources)]
        )
        every = {test for run in found for test in run.outcomes if is_test(function_of(test)[0])}
        seen = {test: tuple(run.outcomes.get(test, Outcome.MISSING) for run in found) for test in every}
        passed = frozenset(test for test, outcomes in seen.items() if set(outcomes) == {Outcome.PASSED})
        flaky = {test: outcomes for test, outcomes in sorted(seen.items()) if len(set(outcomes)) > 1}
        if not passed or not all(run.complete for run in found):
            raise _unhealthy(environment, found)
        return Healthy(
            passed=passed,
            flaky=flaky,
            failing=len(seen) - len(passed) - len(flaky),
            coverage=_coverage_of(watched, passed),
            seconds=min(run.seconds for run in found),
        )


def _coverage_of(watched: TestRun, passed: frozenset[str]) -> Coverage | None:
    """Which of the passing tests ran which lines; None where watching disturbs most of them."""
    disturbed = frozenset(test for test in passed if watched.outcomes.get(test) is not Outcome.PASSED)
    if watched.coverage is None or len(disturbed) > _MOSTLY * len(passed):
        return None
    return watched.coverage.only(passed - disturbed, disturbed)


def _unhealthy(environment: Environment, found: Sequence[TestRun]) -> EnvironmentBuildError:
    name = environment.distribution.name if environment.distribution else "this package"
    kind = BuildFailure.SUITE_FAILS
    if any(run.process.timed_out for run in found):
        kind = BuildFailure.SUITE_HANGS
    elif not any(run.outcomes or run.uncollected for run in found):
        kind = BuildFailure.NO_TESTS
    return EnvironmentBuildError(
        f"The test suite of {name} does not pass",
        why=next((text for run in found for text in run.failures.values()), found[0].log)[-600:],
        mend="Its environment may lack something that the tests need.",
        kind=kind,
    )


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines at once and return their results in order. The first error ends the others and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one) for one in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [one.result() for one in running]
