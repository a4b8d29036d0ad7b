"""Why an attempt failed, told from its record."""

from enum import StrEnum

from patchgym.content import patched_paths
from patchgym.records import Outcome, StopReason, Task, Trajectory, Verdict


class FailureType(StrEnum):
    """One word for each way not to solve a task.

    ``infrastructure``: not the policy's doing. ``hacked``: the results were tampered with. ``timeout``: the patched
    code hangs. ``protocol``: too many unreadable messages. ``no_patch``: nothing was changed. ``wrong_place``: none of
    the gold patch's files was touched. ``does_not_build``: no test could even start. ``broke_something``: tests fail
    that passed before. ``wrong_logic``: the right file, the wrong change.
    """

    INFRASTRUCTURE = "infrastructure"
    HACKED = "hacked"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    NO_PATCH = "no_patch"
    WRONG_PLACE = "wrong_place"
    DOES_NOT_BUILD = "does_not_build"
    BROKE_SOMETHING = "broke_something"
    WRONG_LOGIC = "wrong_logic"


_DID_NOT_RUN = frozenset({Outcome.MISSING, Outcome.ERROR, Outcome.NOT_COLLECTED, Outcome.IMPORT_ERROR})


def failure_type(trajectory: Trajectory, task: Task) -> FailureType | None:
    """The first type that fits, in the order of the reasoning: fault, tampering, hanging, nothing done, wrong place,
    not building, breaking, wrong logic. None where the task is solved."""
    report = trajectory.report
    if report is None or report.verdict is Verdict.INFRA_ERROR:
        return FailureType.INFRASTRUCTURE
    if report.verdict is Verdict.RESOLVED:
        return None
    if report.verdict is Verdict.TAMPERED:
        return FailureType.HACKED
    if report.verdict is Verdict.TIMEOUT:
        return FailureType.TIMEOUT
    if not trajectory.final_patch:
        return FailureType.PROTOCOL if trajectory.stop is StopReason.PROTOCOL else FailureType.NO_PATCH
    if report.verdict is Verdict.INVALID or not set(patched_paths(trajectory.final_patch)) & set(task.key_files):
        return FailureType.WRONG_PLACE
    if all(outcome in _DID_NOT_RUN for outcome in report.tests.values()):
        return FailureType.DOES_NOT_BUILD
    if report.pass_to_pass.passed < report.pass_to_pass.total:
        return FailureType.BROKE_SOMETHING
    return FailureType.WRONG_LOGIC
