"""The grader: task and patch in, report out."""

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from pathlib import Path

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.errors import PatchError, SandboxError
from patchgym.grading.probes.ask import mounted
from patchgym.grading.probes.judge import NOTHING_ASKED, asking_of
from patchgym.grading.protect import is_protected
from patchgym.records import Environment, Outcome, Tally, Task, TestReport, Tests, Verdict
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import TestRun, built_environment, run_tests, sandbox_spec

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

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        """The verdict on ``patch``. Never raises for what a patch does; a fault of the sandbox is ``infra_error``.

        With ``only``, no other tests run and the verdict is on those: a proof looks at the tests that can notice before
        it looks at all.

        Raises:
            DataError: the task's trees are not in the store, or its probes are damaged.
            EnvironmentBuildError, PrerequisiteError: the task's environment cannot be had here.
        """
        report = await self._grade(task, patch, only)
        return report.model_copy(update={"sandbox": self._factory.kind})

    async def _grade(self, task: Task, patch: str, only: Collection[str] | None) -> TestReport:
        started = time.monotonic()
        if only is not None:
            task = task.model_copy(update={"tests": _restricted(task.tests, only)})
        try:
            tree, tampered = graded_tree(self._objects, task, patch)
        except PatchError as error:
            return _report(task, Verdict.INVALID, {}, started, why=str(error))
        built = await built_environment(task.environment, self._build)
        spec = sandbox_spec(tree, task.environment, built, base=task.workspace)
        wanted = [*task.tests.fail_to_pass, *task.tests.pass_to_pass]
        asking = asking_of(self._objects, task) if only is None else None
        spec = mounted(spec) if asking is not None else spec
        judged = NOTHING_ASKED
        try:
            async with AsyncExitStack() as stack:
                if asking is not None:
                    await stack.enter_async_context(asking.alongside(self._factory, self._objects, built, tree))
                sandbox = await self._factory.create(spec)
                try:
                    plugin = asking.beside() if asking is not None else None
                    limit = task.tests.timeout_s
                    run = await run_tests(sandbox, task.environment, wanted, timeout_s=limit, beside=plugin)
                finally:
                    await sandbox.close()
                verdict, why = _verdict(run, wanted)
                if asking is not None and verdict is Verdict.RESOLVED:
                    judged = await asking.judge(run)
                    verdict, why = judged.verdict
        except SandboxError as error:
            return _report(task, Verdict.INFRA_ERROR, {}, started, why=str(error), tampered=tampered)
        report = _report(task, verdict, run.outcomes, started, why=why, tampered=tampered, log=run.log[-_LOG_CHARS:])
        return report.model_copy(update={"probes": judged.report, "evidence": judged.evidence})


def graded_tree(objects: ObjectStore, task: Task, patch: str) -> tuple[str, tuple[str, ...]]:
    """The tree that ``patch`` is graded on, every test of the task in it as it must be, and the protected paths that
    the patch touched in vain.

    Raises:
        PatchError: the patch does not parse or apply.
        DataError: the task's trees are not in the store.
    """
    tests = task.tests
    tampered = tuple(path for path in patched_paths(patch) if is_protected(path, tests))
    patched = apply_patch(objects, task.workspace, patch, allow=lambda path: not is_protected(path, tests))
    modes = {path: entry.mode for path, entry in objects.entries(task.workspace).items()}
    files = {**tests.visible_files, **tests.hidden_files}
    pristine = {path: Entry(modes.get(path, _FILE), blob) for path, blob in files.items()}
    return objects.update_tree(patched, pristine), tampered


def _restricted(tests: Tests, only: Collection[str]) -> Tests:
    lists = ("fail_to_pass", "pass_to_pass", "hidden")
    return tests.model_copy(update={name: tuple(t for t in getattr(tests, name) if t in only) for name in lists})


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
