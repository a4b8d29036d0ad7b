"""The order of a verdict, and whose a time-out is."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from patchgym.content import ObjectStore
from patchgym.grading.evidence import evidence_of, key_of
from patchgym.grading.timeouts import timeout_of
from patchgym.grading.verdict import judge
from patchgym.records import Evidence, Outcome, ProbeReport, Tally, Task, Validation, Verdict
from patchgym.sandbox import Ending, ExecResult
from patchgym.testrun import Canary, Ended, Note, Planted, TestRun
from tests.workshop import calc_task

PROCESS = ExecResult(
    ending=Ending.EXITED,
    exit_code=0,
    signal=None,
    stdout=b"",
    stderr=b"",
    stdout_size=0,
    stderr_size=0,
    report=b"",
    seconds=1.0,
    limits_by="cgroup1",
)
ENDED = Ended(timed_out=False, wall=1.0, cpu=0.5, waited=None, sealed=True)
GOOD = TestRun(outcomes={"a": Outcome.PASSED}, complete=True, process=PROCESS, log="", ended=ENDED)
LATE = replace(GOOD, complete=False, ended=replace(ENDED, timed_out=True))
CUT = replace(GOOD, complete=False)
BAD = replace(GOOD, outcomes={"a": Outcome.FAILED})
PROOF = (Evidence(kind="canary", proof=True),)
DOUBT = (Evidence(kind="watch"),)
WRONG = ProbeReport(recorded=Tally(passed=3, total=4), varied=Tally(passed=0, total=0), first="clamp(1) gave 2")
RIGHT = ProbeReport(recorded=Tally(passed=4, total=4), varied=Tally(passed=0, total=4))


@pytest.mark.parametrize(
    ("run", "evidence", "probes", "verdict"),
    [
        (LATE, PROOF, WRONG, Verdict.TAMPERED),
        (LATE, DOUBT, WRONG, Verdict.TIMEOUT),
        (CUT, DOUBT, WRONG, Verdict.UNRESOLVED),
        (BAD, DOUBT, RIGHT, Verdict.UNRESOLVED),
        (GOOD, DOUBT, WRONG, Verdict.UNRESOLVED),
        (GOOD, DOUBT, RIGHT, Verdict.ABSTAINED),
        (GOOD, (), RIGHT, Verdict.RESOLVED),
        (GOOD, (), None, Verdict.RESOLVED),
    ],
)
def test_the_first_reason_decides(
    run: TestRun, evidence: tuple[Evidence, ...], probes: ProbeReport | None, verdict: Verdict
) -> None:
    assert judge(run, ["a"], evidence, probes).verdict is verdict


@pytest.mark.parametrize("outcome", [one for one in Outcome if one is not Outcome.PASSED])
def test_only_a_pass_is_a_pass(outcome: Outcome) -> None:
    assert judge(replace(GOOD, outcomes={"a": outcome}), ["a"]).verdict is Verdict.UNRESOLVED


MUST_FAIL = Canary("test_x.py", "test_b", "def test_b():\n    assert 1 == 2\n", False, 0.5, 9, Outcome.FAILED)
MUST_PASS = replace(MUST_FAIL, outcome=Outcome.PASSED)


@pytest.mark.parametrize(
    ("canary", "outcome", "called", "proof"),
    [
        (MUST_FAIL, Outcome.FAILED, True, []),
        (MUST_FAIL, Outcome.PASSED, True, [True]),
        (MUST_FAIL, Outcome.SKIPPED, True, [True]),
        (MUST_FAIL, Outcome.XFAILED, True, []),
        (MUST_PASS, Outcome.PASSED, True, []),
        (MUST_PASS, Outcome.FAILED, True, [True]),
        (MUST_PASS, Outcome.ERROR, False, [False]),  # its set-up failed: odd where others passed, and no proof
    ],
)
def test_a_canary_that_does_not_come_out_as_it_must_is_proof(
    canary: Canary, outcome: Outcome, called: bool, proof: list[bool]
) -> None:
    run = replace(GOOD, canaries={"test_b": Planted("test_x.py::test_b", outcome, called)})
    assert [one.proof for one in evidence_of(run, [canary])] == proof


def test_a_killed_guard_is_proof_where_lack_of_memory_is_told_apart() -> None:
    killed = replace(PROCESS, ending=Ending.SIGNALLED, exit_code=None, signal=9)
    run = replace(CUT, process=killed, ended=None)
    assert [one.proof for one in evidence_of(run, [])] == [True]
    assert [one.proof for one in evidence_of(replace(run, process=replace(killed, limits_by="rlimit")), [])] == [False]
    assert evidence_of(replace(run, process=replace(killed, ending=Ending.OUT_OF_MEMORY, signal=None)), []) == ()


def test_the_same_note_at_another_line_is_the_same_evidence() -> None:
    notes = [Note("sys._getframe", "", "a.py", line, "who", False) for line in (3, 30)]
    one, other = (key_of(evidence_of(replace(GOOD, notes=(note,)), [])[0]) for note in notes)
    assert one == other


@pytest.fixture
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    made = calc_task(ObjectStore(tmp_path_factory.mktemp("objects")))
    proof = Validation(
        runs=1,
        base_failed=1,
        noop_failed=1,
        gold_passed=1,
        test_seconds=1.0,
        grader_version="2",
        validated_at=datetime(2026, 1, 1, tzinfo=UTC),
    )
    return made.model_copy(update={"validation": proof})


@pytest.mark.parametrize(
    ("cpu", "waited", "gold", "whose"),
    [
        (28.0, 0.5, False, "policy"),  # it computed
        (0.2, 0.1, False, "policy"),  # it slept
        (0.2, 29.0, False, "machine"),  # it wanted a CPU, and the solution has none now either
        (0.2, 29.0, True, "policy"),  # the solution ends in time
        (0.2, None, False, "machine"),  # nobody knows whether it wanted one
        (0.2, None, True, "policy"),
    ],
)
def test_a_time_out_is_the_machines_only_where_the_solution_runs_out_of_time_as_well(
    task: Task, cpu: float, waited: float | None, gold: bool, whose: str
) -> None:
    run = replace(LATE, ended=Ended(timed_out=True, wall=30.0, cpu=cpu, waited=waited, sealed=True))

    async def gold_in_time() -> bool:
        return gold

    assert asyncio.run(timeout_of(run, task, gold_in_time)) == whose


def test_where_the_solutions_time_is_not_known_it_is_run(task: Task) -> None:
    asked = []

    async def gold_in_time() -> bool:
        asked.append(1)
        return False

    run = replace(LATE, ended=Ended(timed_out=True, wall=30.0, cpu=29.0, waited=0.0, sealed=True))
    unproved = task.model_copy(update={"validation": None})
    assert asyncio.run(timeout_of(run, unproved, gold_in_time)) == "machine"
    assert asked == [1]
