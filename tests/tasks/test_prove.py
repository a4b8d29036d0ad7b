"""What counts as a proof, with a grader whose answers are laid down."""

import asyncio
from collections.abc import Mapping

import pytest

from patchgym.errors import SandboxError
from patchgym.records import Outcome, Tally, Task, TestReport, Verdict
from patchgym.tasks.proof.bench import Dropped, together
from patchgym.tasks.proof.prove import prove
from tests.records_for_tests import make_task

GOLD = "gold"
TASK = make_task().model_copy(update={"gold_patch": GOLD})
FIXED, KEPT = TASK.tests.fail_to_pass, TASK.tests.pass_to_pass
PASS, FAIL = Outcome.PASSED, Outcome.FAILED
BASE_FINE = {FIXED[0]: FAIL, FIXED[1]: FAIL, KEPT[0]: PASS}
GOLD_FINE = {FIXED[0]: PASS, FIXED[1]: PASS, KEPT[0]: PASS}


class LaidDown:
    """Grades by lists of outcomes, one after another; the last one is repeated."""

    def __init__(
        self, base: list[Mapping[str, Outcome]], gold: list[Mapping[str, Outcome]], verdict: Verdict | None = None
    ):
        self.answers = {"": base, GOLD: gold}
        self.asked = {"": 0, GOLD: 0}
        self.verdict = verdict

    async def grade(self, task: Task, patch: str) -> TestReport:
        answers = self.answers[patch]
        outcomes = answers[min(self.asked[patch], len(answers) - 1)]
        self.asked[patch] += 1

        def tally(tests: tuple[str, ...]) -> Tally:
            return Tally(passed=sum(outcomes[test] is PASS for test in tests), total=len(tests))

        wanted = (*task.tests.fail_to_pass, *task.tests.pass_to_pass)
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


def test_a_proof_is_every_run_of_both() -> None:
    grades = LaidDown([BASE_FINE], [GOLD_FINE])
    proved = asyncio.run(prove(TASK, grades, 3))
    assert grades.asked == {"": 3, GOLD: 3}
    assert proved.validation is not None
    assert proved.validation.proved
    assert (proved.validation.runs, proved.validation.base_failed, proved.validation.gold_passed) == (3, 3, 3)


@pytest.mark.parametrize(
    ("base", "gold", "reason"),
    [
        ([{**BASE_FINE, FIXED[1]: PASS}], [GOLD_FINE], "base_passes"),
        ([BASE_FINE, {**BASE_FINE, FIXED[1]: PASS}], [GOLD_FINE], "unstable"),
        ([BASE_FINE], [{**GOLD_FINE, FIXED[0]: Outcome.SKIPPED}], "gold_fails"),
        ([BASE_FINE], [GOLD_FINE, {**GOLD_FINE, FIXED[0]: FAIL}], "unstable"),
    ],
)
def test_what_does_not_prove_is_dropped_by_name(
    base: list[Mapping[str, Outcome]], gold: list[Mapping[str, Outcome]], reason: str
) -> None:
    with pytest.raises(Dropped) as caught:
        asyncio.run(prove(TASK, LaidDown(base, gold), 2))
    assert caught.value.reason == reason


@pytest.mark.parametrize("verdict", [Verdict.TIMEOUT, Verdict.TAMPERED, Verdict.INFRA_ERROR])
def test_a_run_that_did_not_come_to_its_end_proves_nothing(verdict: Verdict) -> None:
    with pytest.raises(Dropped) as caught:
        asyncio.run(prove(TASK, LaidDown([BASE_FINE], [GOLD_FINE], verdict), 2))
    assert caught.value.reason == verdict.value


def test_a_flaky_test_is_taken_out_and_the_proof_begins_again() -> None:
    grades = LaidDown([BASE_FINE], [GOLD_FINE, {**GOLD_FINE, KEPT[0]: FAIL}, GOLD_FINE])
    proved = asyncio.run(prove(TASK, grades, 2))
    assert proved.tests.pass_to_pass == ()
    assert proved.tests.fail_to_pass == FIXED
    assert grades.asked == {"": 4, GOLD: 4}


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
