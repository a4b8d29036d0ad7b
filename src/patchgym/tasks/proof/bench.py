"""Where candidates are run: fresh sandboxes, a bounded number at once."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from patchgym.content import ObjectStore
from patchgym.errors import EnvironmentBuildError
from patchgym.grading import Grader
from patchgym.records import Environment, Outcome, Task, TestReport
from patchgym.sandbox import SandboxFactory
from patchgym.tasks.proof.hiding import function_of
from patchgym.tasks.sources.project import Project
from patchgym.testrun import TestRun, run_tests, sandbox_spec

_SUITE_SECONDS = 300.0
_T = TypeVar("_T")


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


@dataclass(frozen=True)
class Healthy:
    """The suite of an unbroken tree: ids of the tests that pass every time, and how many others there are."""

    passed: frozenset[str]
    left_out: int


async def run_healthy(bench: Bench, tree: str, environment: Environment, project: Project, runs: int) -> Healthy:
    """Run a healthy tree's suite ``runs`` times in fresh sandboxes.

    Raises:
        EnvironmentBuildError: no test of the package passes there.
        SandboxError: a sandbox was lost.
    """
    found = await together(bench.run(tree, environment, timeout_s=_SUITE_SECONDS) for _ in range(runs))
    ids = {test for run in found for test in run.outcomes if project.is_test(function_of(test)[0])}
    passed = {test for test in ids if all(run.outcomes.get(test) is Outcome.PASSED for run in found)}
    if not passed or not all(run.complete for run in found):
        name = environment.distribution.name if environment.distribution else "this package"
        raise EnvironmentBuildError(
            f"The test suite of {name} does not pass",
            why=next((text for run in found for text in run.failures.values()), found[0].log)[-600:],
            mend="Its environment may lack something that the tests need.",
        )
    return Healthy(frozenset(passed), len(ids) - len(passed))


async def together(work: Iterable[Coroutine[Any, Any, _T]]) -> list[_T]:
    """Run coroutines at once and return their results in order. The first error ends the others and is raised alone."""
    try:
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one) for one in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [one.result() for one in running]
