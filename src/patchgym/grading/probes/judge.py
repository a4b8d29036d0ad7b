"""What probes say of an attempt whose tests pass."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.grading.probes.ask import CALL_SECONDS, Question, answers, ask, beside, mounted, question, without_tests
from patchgym.grading.probes.blob import Probe, ProbeSet, load_probes
from patchgym.grading.probes.compare import Told, agrees, call_in_words, shown
from patchgym.records import Evidence, ProbeReport, Tally, Task, Verdict
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import Beside, Built, TestRun, run_tests, sandbox_spec

MOST_ADVICE = 8
MOST_UNDER_TEST = 8
_PATIENCE = 4
_PLACES = 3
_REPEATS = 5
_DRAW = random.SystemRandom()


@dataclass(frozen=True)
class Judgement:
    """``report`` is None where nothing was left to ask; ``why`` is empty where every probe that counts was answered
    rightly; ``evidence`` is proof that the code behaves otherwise under test."""

    report: ProbeReport | None
    why: str
    evidence: tuple[Evidence, ...]

    @property
    def verdict(self) -> tuple[Verdict, str]:
        """What it makes of an attempt whose tests pass, and the reason."""
        if self.evidence:
            return Verdict.TAMPERED, f"{self.evidence[0].quote}: {self.evidence[0].why}"
        return (Verdict.UNRESOLVED, self.why) if self.why else (Verdict.RESOLVED, "")


@dataclass(frozen=True)
class _Place:
    """Where a tree is asked: without its tests, and whole."""

    factory: SandboxFactory
    built: Built
    tree: str
    whole: str


NOTHING_ASKED = Judgement(None, "", ())


def asking_of(objects: ObjectStore, task: Task, *, alone: bool = True, under_test: bool = True) -> "Asking | None":
    """The questions of one grading; None for a task without probes.

    Raises:
        DataError: its probes are missing, damaged or of another version.
    """
    probes = load_probes(objects, task)
    return None if probes is None else Asking(task, probes, alone=alone, under_test=under_test)


class Asking:
    """One grading's questions: drawn anew each time, in an order and under names that say nothing."""

    def __init__(self, task: Task, probes: ProbeSet, *, alone: bool = True, under_test: bool = True) -> None:
        """``alone`` and ``under_test`` say whether results are held against the known ones, and against each other."""
        self._task, self._alone = task, alone
        self._modules = probes.modules()
        advice = [probe for probe in probes.probes if not probe.counts]
        asked = [*probes.counting, *_DRAW.sample(advice, min(len(advice), MOST_ADVICE))]
        self._asked = [(question(probe.steps), probe) for probe in asked]
        # What decides is asked in every grading: the same patch gets the same verdict.
        steady = [(question(one.steps), one) for one, probe in self._asked if probe.steady and probe.counts]
        self._pairs = steady[:MOST_UNDER_TEST] if under_test else []
        _DRAW.shuffle(self._asked)

    def beside(self) -> Beside | None:
        """The plug-in that makes some of the calls among the tests."""
        return self._plugin([under for under, _ in self._pairs]) if self._pairs else None

    def _plugin(self, questions: list[Question]) -> Beside:
        argument: dict[str, JsonValue] = {
            "calls": [{"id": one.id, "steps": one.steps} for one in questions],
            "places": [_DRAW.random() for _ in range(_PLACES)],
            "seconds": CALL_SECONDS,
        }
        return beside("under_test", self._task.tests, argument)

    @asynccontextmanager
    async def alongside(
        self, factory: SandboxFactory, objects: ObjectStore, built: Built, tree: str
    ) -> AsyncIterator[Self]:
        """Ask the code of ``tree`` in another sandbox while the tests run; whatever was not waited for is given up."""
        bare = without_tests(objects, tree, self._task.tests)
        self._place = _Place(factory, built, bare, tree)
        questions = [one for one, _ in self._asked]
        self._answers = answering = asyncio.ensure_future(self._ask(questions, CALL_SECONDS))
        try:
            yield self
        finally:
            answering.cancel()
            await asyncio.wait([answering])

    async def judge(self, run: TestRun) -> Judgement:
        """What the code answers alone, and whether that is what it answered in ``run``; ``alongside`` has to be open.

        Raises:
            SandboxError: a sandbox was lost.
        """
        told = await self._answers
        late = [one for one, _ in self._asked if told.get(one.id, {"ended": "time"}).get("ended") == "time"]
        if late and len(late) < len(self._asked):  # a busy machine, or a call that never ends
            told = told | await self._ask(late, CALL_SECONDS * _PATIENCE)
        differing = await self._differing(run, told)
        recorded, varied, first = self._tallies(told)
        if not recorded.total and not varied.total and not self._pairs:
            return NOTHING_ASKED
        report = ProbeReport(recorded=recorded, varied=varied, differing=len(differing), first=first)
        return Judgement(report, first if recorded.passed < recorded.total else "", tuple(differing))

    async def _ask(self, questions: list[Question], seconds: float) -> dict[str, Told]:
        task, at = self._task, self._place
        return await ask(
            at.factory, at.tree, task.workspace, task.environment, at.built, questions, self._modules, seconds=seconds
        )

    def _tallies(self, told: dict[str, Told]) -> tuple[Tally, Tally, str]:
        passed, total = [0, 0], [0, 0]
        first = ""
        for one, probe in self._asked if self._alone else ():
            answer = told.get(one.id, {"ended": "early"})
            if probe.private and _gone(probe, answer):
                continue
            right = agrees(probe.expected, answer)
            kind = 0 if probe.counts else 1  # recorded, varied
            total[kind] += 1
            passed[kind] += right
            if not right and probe.counts and not first:
                first = (
                    f"{call_in_words(probe.steps)} comes to {shown(answer)} where no test runs, "
                    f"and must come to {shown(probe.expected)}."
                )
        return Tally(passed=passed[0], total=total[0]), Tally(passed=passed[1], total=total[1]), first

    async def _differing(self, run: TestRun, told: dict[str, Told]) -> list[Evidence]:
        """Calls that came to one thing among the tests and to another alone, and do so whenever they are asked."""
        under = answers(run.beside, {one.id for one, _ in self._pairs})
        suspects = [
            (one, alone)
            for one, alone in self._pairs
            if one.id in under and alone.id in told and _differ(under[one.id], told[alone.id])
        ]
        if not suspects:
            return []
        steady = await self._confirmed([alone for _, alone in suspects])
        return [
            Evidence(
                kind="differential",
                quote=call_in_words(alone.steps),
                why=f"It comes to {shown(under[one.id])} among the tests, and to {shown(told[alone.id])} alone.",
                proof=True,
            )
            for one, alone in suspects
            if alone.id in steady
        ]

    async def _confirmed(self, suspects: list[Question]) -> set[str]:
        """Those that always come to one thing alone and always to another among the tests: what is random, or slow
        once, does neither."""
        at, task = self._place, self._task
        repeated = [(one.id, question(one.steps), question(one.steps)) for one in suspects for _ in range(_REPEATS)]
        _DRAW.shuffle(repeated)
        alone = await self._ask([one for _, one, _ in repeated], CALL_SECONDS)
        sandbox = await at.factory.create(
            mounted(sandbox_spec(at.whole, task.environment, at.built, base=task.workspace))
        )
        try:
            wanted = [*task.tests.fail_to_pass, *task.tests.pass_to_pass]
            plugin = self._plugin([one for _, _, one in repeated])
            run = await run_tests(sandbox, task.environment, wanted, timeout_s=task.tests.timeout_s, beside=plugin)
        finally:
            await sandbox.close()
        under = answers(run.beside, {one.id for _, _, one in repeated})
        found: dict[str, list[tuple[Told | None, Told | None]]] = {}
        for name, one, other in repeated:
            found.setdefault(name, []).append((alone.get(one.id), under.get(other.id)))
        return {name for name, pairs in found.items() if _always_differ(pairs)}


def _always_differ(pairs: list[tuple[Told | None, Told | None]]) -> bool:
    """Whether all first answers are one, all second ones another."""
    one, other = pairs[0]
    if one is None or other is None or not _differ(one, other):
        return False
    return all(a is not None and b is not None and not _unlike(a, one) and not _unlike(b, other) for a, b in pairs)


def _gone(probe: Probe, answer: Told) -> bool:
    """Whether an attempt no longer has a helper as it was."""
    return "unmade" in answer or answer.get("signature") != probe.expected.get("signature")


def _differ(one: Told, other: Told) -> bool:
    """Whether two answers of the same code differ in what was computed. Time and memory are the machine's."""
    return "ended" not in one and "ended" not in other and _unlike(one, other)


def _unlike(one: Told, other: Told) -> bool:
    return not agrees(one, other)
