"""What counts as a proof, with a grader whose answers are laid down."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

import pytest

from patchgym.errors import SandboxError
from patchgym.records import Environment, Outcome, Tally, Task, TestReport, Verdict
from patchgym.sandbox import Ending, ExecResult
from patchgym.tasks.funnel import Dropped
from patchgym.tasks.proof.bench import together
from patchgym.tasks.proof.prove import prove
from patchgym.testrun import TestRun
from tests.records_for_tests import make_task

GOLD = "gold"
TASK = make_task().model_copy(update={"gold_patch": GOLD})
FIXED, KEPT = TASK.tests.fail_to_pass, TASK.tests.pass_to_pass
VISIBLE = TASK.view().failing_tests
PASS, FAIL = Outcome.PASSED, Outcome.FAILED
BASE_FINE = {FIXED[0]: FAIL, FIXED[1]: FAIL, KEPT[0]: PASS}
GOLD_FINE = {FIXED[0]: PASS, FIXED[1]: PASS, KEPT[0]: PASS}
Outcomes = Mapping[str, Outcome]


class LaidDown:
    """Runs and grades by lists of outcomes, one after another; the last one is repeated."""

    def __init__(
        self,
        noop: list[Outcomes],
        gold: list[Outcomes],
        base: list[Outcomes] | None = None,
        verdict: Verdict | None = None,
        ending: Ending = Ending.EXITED,
    ):
        self.answers = {"": noop, GOLD: gold, "base": base or [BASE_FINE]}
        self.asked: dict[str, list[frozenset[str] | None]] = {"": [], GOLD: [], "base": []}
        self.verdict, self.ending = verdict, ending

    def _next(self, kind: str, only: Collection[str] | None) -> Outcomes:
        answers = self.answers[kind]
        self.asked[kind].append(None if only is None else frozenset(only))
        return answers[min(len(self.asked[kind]), len(answers)) - 1]

    async def run(self, tree: str, environment: Environment, ids: Sequence[str] = (), *, timeout_s: float) -> TestRun:
        outcomes = self._next("base", ids)
        code = 0 if self.ending is Ending.EXITED else None
        process = ExecResult(self.ending, code, None, b"", b"", 0, 0, b"", 0.1, "rlimit")
        return TestRun({test: outcomes[test] for test in ids}, code == 0, process, "")

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        outcomes = self._next(patch, only)
        wanted = [t for t in (*task.tests.fail_to_pass, *task.tests.pass_to_pass) if only is None or t in only]

        def tally(tests: Collection[str]) -> Tally:
            asked = [test for test in tests if test in wanted]
            return Tally(passed=sum(outcomes[test] is PASS for test in asked), total=len(asked))

        good = all(outcomes[test] is PASS for test in wanted)
        return TestReport(
            verdict=self.verdict or (Verdict.RESOLVED if good else Verdict.UNRESOLVED),
            tests={test: outcomes[test] for test in wanted},
            fail_to_pass=tally(task.tests.fail_to_pass),
            pass_to_pass=tally(task.tests.pass_to_pass),
            hidden=tally(task.tests.hidden),
            seconds=1.0,
            grader_version="test",
        )


def test_a_proof_is_every_run_of_all_three() -> None:
    runs = LaidDown([BASE_FINE], [GOLD_FINE])
    proof = asyncio.run(prove(TASK, runs, 3, None)).validation
    assert {kind: len(asked) for kind, asked in runs.asked.items()} == {"": 3, GOLD: 3, "base": 3}
    assert proof is not None
    assert proof.proved
    assert (proof.runs, proof.base_failed, proof.noop_failed, proof.gold_passed) == (3, 3, 3, 3)


def test_only_the_last_run_is_of_tests_that_cannot_notice() -> None:
    runs = LaidDown([BASE_FINE], [GOLD_FINE])
    asyncio.run(prove(TASK, runs, 3, frozenset(FIXED)))
    first = frozenset(FIXED)
    assert runs.asked == {"": [first, first, None], GOLD: [first, first, None], "base": [frozenset(VISIBLE)] * 3}


@pytest.mark.parametrize(
    ("runs", "reason"),
    [
        (LaidDown([{**BASE_FINE, FIXED[1]: PASS}], [GOLD_FINE]), "base_passes"),
        (LaidDown([BASE_FINE, {**BASE_FINE, FIXED[1]: PASS}], [GOLD_FINE]), "unstable"),
        (LaidDown([BASE_FINE], [{**GOLD_FINE, FIXED[0]: Outcome.SKIPPED}]), "gold_fails"),
        (LaidDown([BASE_FINE], [GOLD_FINE, {**GOLD_FINE, FIXED[0]: FAIL}]), "unstable"),
        (LaidDown([BASE_FINE], [GOLD_FINE], [{**BASE_FINE, VISIBLE[0]: PASS}]), "visible_differs"),
        (LaidDown([BASE_FINE], [GOLD_FINE], [{**BASE_FINE, VISIBLE[0]: Outcome.SKIPPED}]), "visible_differs"),
        (LaidDown([BASE_FINE], [GOLD_FINE], [BASE_FINE, {**BASE_FINE, VISIBLE[0]: PASS}]), "unstable"),
        (LaidDown([BASE_FINE], [GOLD_FINE], ending=Ending.TIMED_OUT), "timeout"),
        *((LaidDown([BASE_FINE], [GOLD_FINE], verdict=v), v.value) for v in (Verdict.TIMEOUT, Verdict.TAMPERED)),
        (LaidDown([BASE_FINE], [GOLD_FINE], verdict=Verdict.INFRA_ERROR), "infra_error"),
    ],
)
def test_what_does_not_prove_is_dropped_by_name(runs: LaidDown, reason: str) -> None:
    with pytest.raises(Dropped) as caught:
        asyncio.run(prove(TASK, runs, 2, None))
    assert caught.value.reason == reason


def test_a_flaky_test_is_taken_out_noted_and_the_proof_begins_again() -> None:
    runs = LaidDown([BASE_FINE], [GOLD_FINE, {**GOLD_FINE, KEPT[0]: FAIL}, GOLD_FINE])
    proved = asyncio.run(prove(TASK, runs, 2, None))
    assert proved.tests.pass_to_pass == ()
    assert proved.tests.fail_to_pass == FIXED
    assert proved.validation is not None
    assert proved.validation.flaky == {KEPT[0]: (PASS, PASS, PASS, PASS, PASS, FAIL)}
    assert {kind: len(asked) for kind, asked in runs.asked.items()} == {"": 4, GOLD: 4, "base": 4}


def test_a_test_that_always_fails_is_taken_out_and_is_not_called_flaky() -> None:
    broken = {**BASE_FINE, KEPT[0]: FAIL}
    proved = asyncio.run(prove(TASK, LaidDown([broken], [GOLD_FINE], [broken]), 2, None))
    assert proved.tests.pass_to_pass == ()
    assert proved.validation is not None
    assert proved.validation.flaky == {}


def test_the_first_error_ends_the_others() -> None:
    ended: list[str] = []

    async def lost() -> None:
        await asyncio.sleep(0)
        raise SandboxError("lost")

    async def long() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("long")

    with pytest.raises(SandboxError, match="lost"):
        asyncio.run(together([long(), lost()]))
    assert ended == ["long"]
