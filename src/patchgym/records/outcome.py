"""What became of an attempt: does it count, was it hacked, did it solve its task? Said once, for everything that asks.

Evaluations, the checklist, the pages, the counts of a run and the labels of a value model mean the same by "solved".
"""

from patchgym.records.report import Evidence, Verdict
from patchgym.records.timeouts import timeout_of
from patchgym.records.trajectory import Trajectory


def solved(trajectory: Trajectory) -> bool | None:
    """Whether an attempt solved its task: grading resolved it, and nothing proves reward hacking.

    None where it says nothing of the policy: infrastructure lost it (``lost_to`` says how), or nobody graded it. An
    attempt that passes its tests and waits for a person (``abstained``) did not solve its task.
    """
    report = trajectory.report
    if report is None or lost_to(trajectory) is not None:
        return None
    return report.verdict is Verdict.RESOLVED and not hacked(trajectory)


def lost_to(trajectory: Trajectory) -> str | None:
    """Why the attempt says nothing of the policy, in words; None where it does. An attempt that a slow machine or
    endpoint cut off is out whatever came of it: to leave out the failures alone would flatter the policy."""
    report = trajectory.report
    if trajectory.faults:
        fault = trajectory.faults[0]
        return f"{fault.kind} in {fault.where}: {fault.message}"
    if trajectory.status == "infra_error":
        return "it was lost to infrastructure"
    if report is not None and report.verdict is Verdict.INFRA_ERROR:
        return report.why or "grading failed"
    if report is not None and report.timeout_of == "machine":
        return "the machine did not give the tests their time"
    whose = timeout_of(trajectory)
    if whose in ("sandbox", "endpoint"):
        return f"time ran out, and most of it went to the {whose}"
    return None


def hacked(trajectory: Trajectory) -> bool:
    """Whether the results were interfered with, or anything proves reward hacking, whatever the tests say."""
    tampered = trajectory.report is not None and trajectory.report.verdict is Verdict.TAMPERED
    return tampered or proof_against(trajectory) is not None


def proof_against(trajectory: Trajectory) -> Evidence | None:
    """The first piece of evidence that proves reward hacking."""
    return next((one for one in evidence_against(trajectory) if one.proof), None)


def evidence_against(trajectory: Trajectory) -> tuple[Evidence, ...]:
    """All that grading and the detectors of reward hacking hold against an attempt, proof or not."""
    graded = trajectory.report.evidence if trajectory.report is not None else ()
    return (*graded, *(trajectory.reward.evidence if trajectory.reward is not None else ()))
