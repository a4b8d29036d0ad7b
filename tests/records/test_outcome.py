"""Whether an attempt solved its task is said in one place, and everything that asks gets the same answer."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.diagnose.seen import seen
from patchgym.evaluate.attempts import attempt_of
from patchgym.evaluate.failures import FailureType, failure_type
from patchgym.records import Evidence, Fault, Reward, StopReason, Timing, Trajectory, Verdict
from patchgym.records.outcome import hacked, lost_to, solved
from patchgym.reward.value import outcome_of
from patchgym.rollout import count_run
from patchgym.view.rows import row_of
from tests.records_for_tests import make_report, make_step, make_task, make_trajectory

PROOF = Evidence(kind="canary", where="src.py:1", why="It answers the canary.", proof=True)
MARK = Evidence(kind="constant", where="src.py:1", why="It returns what the test expects.")
FAULT = Fault(kind="EndpointError", where="policy", message="refused")
SLOW_SANDBOX = Timing(total_seconds=100, acting_seconds=90, sampling_seconds=5)


def attempt(
    verdict: Verdict | None,
    *,
    graded: tuple[Evidence, ...] = (),
    detected: tuple[Evidence, ...] = (),
    stop: StopReason = StopReason.SUBMITTED,
    faults: tuple[Fault, ...] = (),
) -> Trajectory:
    """An attempt that came to its end, unless there are faults."""
    report = make_report(verdict or Verdict.RESOLVED).model_copy(update={"evidence": graded})
    made = make_trajectory(0, report=report, reward=0.0, steps=[make_step()], stop=stop)
    reward = Reward(value=0.0, gate="test", terms={}, evidence=detected)
    return made.model_copy(
        update={
            "report": report if verdict is not None else None,
            "reward": reward,
            "faults": faults,
            "status": "infra_error" if faults else "completed",
            "reward_trusted": not faults,
            "timing": SLOW_SANDBOX if stop is StopReason.TIME_LIMIT else made.timing,
        }
    )


@pytest.mark.parametrize("verdict", Verdict)
def test_only_what_grading_resolved_is_solved(verdict: Verdict) -> None:
    known = None if verdict is Verdict.INFRA_ERROR else verdict is Verdict.RESOLVED
    assert solved(attempt(verdict)) is known


def test_proof_of_hacking_takes_a_solution_away_wherever_it_was_found() -> None:
    assert solved(attempt(Verdict.RESOLVED, detected=(PROOF,))) is False
    assert solved(attempt(Verdict.RESOLVED, graded=(PROOF,))) is False
    assert solved(attempt(Verdict.RESOLVED, graded=(MARK,), detected=(MARK,))) is True
    assert hacked(attempt(Verdict.TAMPERED))


def test_what_says_nothing_of_the_policy_is_neither_solved_nor_failed() -> None:
    assert solved(attempt(None)) is None
    assert solved(attempt(Verdict.RESOLVED, faults=(FAULT,))) is None
    assert solved(attempt(Verdict.RESOLVED, stop=StopReason.TIME_LIMIT)) is None
    assert "went to the sandbox" in (lost_to(attempt(Verdict.RESOLVED, stop=StopReason.TIME_LIMIT)) or "")
    machine = attempt(Verdict.TIMEOUT)
    assert machine.report is not None
    late = machine.model_copy(update={"report": machine.report.model_copy(update={"timeout_of": "machine"})})
    assert solved(late) is None


@settings(deadline=None)
@given(
    st.builds(
        attempt,
        st.sampled_from([None, *Verdict]),
        graded=st.sampled_from([(), (MARK,), (PROOF,)]),
        detected=st.sampled_from([(), (MARK,), (PROOF,)]),
        stop=st.sampled_from(StopReason),
        faults=st.sampled_from([(), (FAULT,)]),
    )
)
def test_evaluations_pages_checks_counts_and_labels_agree(one: Trajectory) -> None:
    task, came = make_task(), solved(one)
    assert attempt_of(one, task).solved is came
    assert seen(one, task).solved is came
    assert row_of(one, {task.id: task}, 0, 0).solved == came
    assert count_run([one]).solved == (came is True)
    waits = one.report is not None and one.report.verdict is Verdict.ABSTAINED and not hacked(one)
    assert outcome_of(one) == (None if came is None or waits else float(came))


def test_a_failure_has_a_type_exactly_where_the_task_is_not_solved() -> None:
    evidence: list[tuple[Evidence, ...]] = [(), (MARK,), (PROOF,)]
    for verdict, graded, stop in itertools.product(Verdict, evidence, StopReason):
        one = attempt(verdict, graded=graded, stop=stop)
        kind = failure_type(one, make_task())
        assert (kind is None) == (solved(one) is True)
        assert (kind is FailureType.INFRASTRUCTURE) == (solved(one) is None)
