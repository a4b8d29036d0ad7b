"""The grader: task and patch in, report out."""

import time
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchgym.content import ObjectStore, written_out
from patchgym.errors import PatchError, SandboxError
from patchgym.grading.canaries import draw_canaries
from patchgym.grading.evidence import evidence_of, key_of, unusual
from patchgym.grading.layers import ALL_LAYERS, Layer
from patchgym.grading.plain import run_plainly
from patchgym.grading.probes.ask import mounted
from patchgym.grading.probes.judge import Asking, asking_of
from patchgym.grading.quality import Mutants, measure_quality
from patchgym.grading.timeouts import timeout_of
from patchgym.grading.tree import graded_tree
from patchgym.grading.verdict import judge
from patchgym.records import (
    Environment,
    Evidence,
    Outcome,
    ProbeReport,
    Quality,
    Tally,
    Task,
    TestReport,
    Tests,
    Verdict,
)
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import Built, Guarding, TestRun, built_environment, run_tests, sandbox_spec

GRADER_VERSION = "2"
_LOG_CHARS = 4000
_MOST_EVIDENCE = 20


@dataclass(frozen=True)
class _Seen:
    """One run of a task's tests on one tree, with what speaks against it."""

    run: TestRun
    evidence: tuple[Evidence, ...]


class Grader:
    """Grades patches. Task trees and test blobs must be in ``objects``, which ``factory`` makes its sandboxes from;
    ``build`` gives the directory of a built environment (blocking; called in a thread). ``layers`` are those that are
    in force. With ``quality``, how a patch is made is measured as well where its tests pass; ``mutants`` then gives
    trees with bugs planted in what a patch touched, to measure the agent's own tests by."""

    def __init__(
        self,
        factory: SandboxFactory,
        objects: ObjectStore,
        build: Callable[[Environment], Path],
        *,
        layers: frozenset[Layer] = ALL_LAYERS,
        quality: bool = False,
        mutants: Mutants | None = None,
    ) -> None:
        self._factory = factory
        self._objects = objects
        self._build = build
        self._layers = layers
        self._quality = quality
        self._mutants = mutants
        self._golds: dict[tuple[str, int], frozenset[tuple[str, str, str]]] = {}

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        """The verdict on ``patch``. Never raises for what a patch does; a fault of the sandbox is ``infra_error``, and
        so is a time-out that the machine is to blame for.

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
            tree, tampered = graded_tree(self._objects, task, patch, self._layers)
        except PatchError as error:
            return _report(task, Verdict.INVALID, {}, started, why=str(error))
        built = await built_environment(task.environment, self._build)
        asking = self._asking(task) if only is None else None
        probes: ProbeReport | None = None
        quality: Quality | None = None
        whose: Literal["policy", "machine"] | None = None
        try:
            async with AsyncExitStack() as stack:
                if asking is not None:
                    await stack.enter_async_context(asking.alongside(self._factory, self._objects, built, tree))
                seen = await self._look(task, tree, built, asking=asking)
                evidence = await self._held_against(task, built, seen.evidence)
                verdict, why = judge(seen.run, _wanted(task.tests), evidence)
                if asking is not None and verdict in (Verdict.RESOLVED, Verdict.ABSTAINED):
                    judged = await asking.judge(seen.run)
                    probes, evidence = judged.report, (*evidence, *judged.evidence)
                    verdict, why = judge(seen.run, _wanted(task.tests), evidence, probes)
            if verdict is Verdict.TIMEOUT:
                whose = await timeout_of(seen.run, task, lambda: self._gold_in_time(task, built))
                verdict = Verdict.INFRA_ERROR if whose == "machine" else verdict
            if self._quality and verdict in (Verdict.RESOLVED, Verdict.ABSTAINED, Verdict.UNRESOLVED):
                bench = (self._factory, self._objects, built)
                quality = await measure_quality(task, patch, bench, self._mutants)
        except SandboxError as error:
            return _report(task, Verdict.INFRA_ERROR, {}, started, why=str(error), tampered=tampered)
        return _report(
            task, verdict, seen.run.outcomes, started, why=why, tampered=tampered, log=_log(seen.run)
        ).model_copy(
            update={"probes": probes, "evidence": evidence[:_MOST_EVIDENCE], "quality": quality, "timeout_of": whose}
        )

    def _asking(self, task: Task) -> Asking | None:
        """The questions of one grading, as far as the layers ask any."""
        alone, under_test = Layer.PROBES in self._layers, Layer.DIFFERENTIAL in self._layers
        if Layer.RUNNER not in self._layers or not (alone or under_test):
            return None
        return asking_of(self._objects, task, alone=alone, under_test=under_test)

    async def _look(
        self, task: Task, tree: str, built: Built, *, thorough: bool = False, asking: Asking | None = None
    ) -> _Seen:
        """Run the tests of ``task`` on ``tree`` in a fresh sandbox, looking after each test where that is ``thorough``,
        with the calls of ``asking`` among them.

        Raises:
            SandboxError: the sandbox was lost.
        """
        wanted = _wanted(task.tests)
        spec = sandbox_spec(tree, task.environment, built, base=task.workspace)
        sandbox = await self._factory.create(mounted(spec) if asking is not None else spec)
        try:
            if Layer.RUNNER not in self._layers:
                return _Seen(await run_plainly(sandbox, wanted, timeout_s=task.tests.timeout_s), ())
            canaries = draw_canaries(wanted) if Layer.CANARIES in self._layers else ()
            files = (*task.tests.visible_files, *task.tests.hidden_files)
            guarding = Guarding(canaries, Layer.WATCH in self._layers, thorough, files)
            beside = asking.beside() if asking is not None else None
            limit = task.tests.timeout_s
            run = await run_tests(sandbox, task.environment, wanted, timeout_s=limit, guarding=guarding, beside=beside)
        finally:
            await sandbox.close()
        if any(not note.proof for note in run.notes):
            usual = [self._objects.entries(one) for one in (task.workspace, self._gold_tree(task)) if one]
            run = unusual(run, self._objects, self._objects.entries(tree), usual)
        return _Seen(run, evidence_of(run, canaries))

    async def _held_against(self, task: Task, built: Built, evidence: tuple[Evidence, ...]) -> tuple[Evidence, ...]:
        """Of what a run showed, what the task's own solution does not show as well: a suite may be odd by itself. The
        solution is run for that once, and only where there is anything to ask.

        Raises:
            SandboxError: the sandbox was lost, or the solution did not come to its end: nothing can be held against
                anybody then.
        """
        tree = self._gold_tree(task) if evidence else None
        if tree is None:
            return evidence
        key = tree, len(_wanted(task.tests))
        if key not in self._golds:
            gold = await self._look(task, tree, built, thorough=True)
            if not gold.run.complete:
                raise SandboxError(
                    "The task's own solution did not come to its end",
                    why="What was seen of the attempt may be what its tests always do, and cannot be told from that.",
                    mend="Grade again when the machine is less busy; patchgym validate finds tasks that never end.",
                )
            self._golds[key] = frozenset(map(key_of, gold.evidence))
        return tuple(one for one in evidence if key_of(one) not in self._golds[key])

    async def _gold_in_time(self, task: Task, built: Built) -> bool:
        """Whether the task's own solution comes to its end in time, now."""
        tree = self._gold_tree(task)
        return tree is None or not (await self._look(task, tree, built)).run.timed_out

    def _gold_tree(self, task: Task) -> str | None:
        try:
            return graded_tree(self._objects, task, task.gold_patch, self._layers)[0]
        except PatchError:
            return None


def _wanted(tests: Tests) -> tuple[str, ...]:
    return (*tests.fail_to_pass, *tests.pass_to_pass)


def _restricted(tests: Tests, only: Collection[str]) -> Tests:
    lists = ("fail_to_pass", "pass_to_pass", "hidden")
    return tests.model_copy(update={name: tuple(t for t in getattr(tests, name) if t in only) for name in lists})


def _log(run: TestRun) -> str:
    """The failures as the report channel told them (the streams tell of the grader's own tests, too), else the tail of
    what was printed."""
    if run.ended is None or not run.failures:
        return run.log[-_LOG_CHARS:] if run.ended is None or not run.complete else ""
    texts = [f"{test}\n{text}" for test, text in run.failures.items()]
    return "\n\n".join(texts)[:_LOG_CHARS]


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
        tampered_paths=tuple(map(written_out, tampered)),
        why=why,
        log=log,
        seconds=time.monotonic() - started,
        grader_version=GRADER_VERSION,
    )
