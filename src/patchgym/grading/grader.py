"""The grader: task and patch in, report out."""

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.errors import PatchError, SandboxError
from patchgym.grading.protect import is_protected
from patchgym.records import Environment, Outcome, Tally, Task, TestReport, Verdict
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import TestRun, run_tests, sandbox_spec

GRADER_VERSION = "1"
_FILE = 0o100644
_LOG_CHARS = 4000


class Grader:
    """Grades patches. Task trees and test blobs must be in ``objects``, which ``factory`` makes its sandboxes from;
    ``build`` gives the directory of a built environment (blocking; called in a thread)."""

    def __init__(self, factory: SandboxFactory, objects: ObjectStore, build: Callable[[Environment], Path]) -> None:
        self._factory = factory
        self._objects = objects
        self._build = build

    async def grade(self, task: Task, patch: str) -> TestReport:
        """The verdict on ``patch``. Never raises for what a patch does; a fault of the sandbox is ``infra_error``.

        Raises:
            DataError: the task's trees are not in the store.
            EnvironmentBuildError, PrerequisiteError: the task's environment cannot be had here.
        """
        started = time.monotonic()
        try:
            tree, tampered = self._graded_tree(task, patch)
        except PatchError as error:
            return _report(task, Verdict.INVALID, {}, started, why=str(error))
        built = await asyncio.to_thread(self._build, task.environment)
        spec = sandbox_spec(tree, task.environment, built, base=task.workspace)
        wanted = [*task.tests.fail_to_pass, *task.tests.pass_to_pass]
        try:
            sandbox = await self._factory.create(spec)
            try:
                run = await run_tests(sandbox, task.environment, wanted, timeout_s=task.tests.timeout_s)
            finally:
                await sandbox.close()
        except SandboxError as error:
            return _report(task, Verdict.INFRA_ERROR, {}, started, why=str(error), tampered=tampered)
        verdict, why = _verdict(run, wanted)
        return _report(task, verdict, run.outcomes, started, why=why, tampered=tampered, log=run.log[-_LOG_CHARS:])

    def _graded_tree(self, task: Task, patch: str) -> tuple[str, tuple[str, ...]]:
        """The tree to grade, and the protected paths that the patch touched in vain."""
        tests = task.tests
        tampered = tuple(path for path in patched_paths(patch) if is_protected(path, tests))
        patched = apply_patch(self._objects, task.workspace, patch, allow=lambda path: not is_protected(path, tests))
        pristine = {path: Entry(_FILE, blob) for path, blob in {**tests.visible_files, **tests.hidden_files}.items()}
        return self._objects.update_tree(patched, pristine), tampered


def _verdict(run: TestRun, wanted: Iterable[str]) -> tuple[Verdict, str]:
    if run.evidence:
        return Verdict.TAMPERED, "; ".join(run.evidence[:3])
    if run.process.timed_out:
        return Verdict.TIMEOUT, f"The tests were still running after {run.seconds:.0f} s."
    if not run.complete:
        return Verdict.UNRESOLVED, f"The test process ended early ({run.ending}, exit code {run.process.exit_code})."
    bad = {test: run.outcomes[test] for test in wanted if run.outcomes[test] is not Outcome.PASSED}
    if not bad:
        return Verdict.RESOLVED, ""
    first = next(iter(bad))
    return Verdict.UNRESOLVED, f"{len(bad)} of {len(run.outcomes)} tests did not pass, first {first} ({bad[first]})."


def _report(
    task: Task,
    verdict: Verdict,
    outcomes: dict[str, Outcome],
    started: float,
    *,
    why: str = "",
    tampered: tuple[str, ...] = (),
    log: str = "",
) -> TestReport:
    def tally(tests: Iterable[str]) -> Tally:
        found = [outcomes.get(test, Outcome.MISSING) is Outcome.PASSED for test in tests]
        return Tally(passed=sum(found), total=len(found))

    return TestReport(
        verdict=verdict,
        tests=outcomes,
        fail_to_pass=tally(task.tests.fail_to_pass),
        pass_to_pass=tally(task.tests.pass_to_pass),
        hidden=tally(task.tests.hidden),
        tampered_paths=tampered,
        why=why,
        log=log,
        seconds=time.monotonic() - started,
        grader_version=GRADER_VERSION,
    )
