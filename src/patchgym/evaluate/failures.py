"""Why an attempt failed, told from its record.

One attempt has one type, by the first of these that its record shows: it says nothing of the policy; it was hacked; a
person has to look; time ran out; it ended over messages that could not be read; nothing was changed; it does not build;
it is in the wrong place; it breaks what passed; it is in the right place and wrong.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from patchgym.content import patched_paths
from patchgym.errors import PatchError
from patchgym.records import Outcome, StopReason, Task, TestReport, Trajectory, Verdict
from patchgym.records.outcome import lost_to, proof_against, solved
from patchgym.records.timeouts import timeout_of


class FailureType(StrEnum):
    """One word for each way not to solve a task.

    ``infrastructure``: not the policy's doing, time that a slow machine or endpoint used up included; in no
    denominator. ``hacked``: the results were interfered with, or proof of reward hacking was found, whatever the tests
    say. ``abstained``: the tests pass, and a person has to look. ``timeout``: the patched code hangs, or the episode
    ran out of time by the policy's own doing (or nobody's that is known). ``protocol``: too many unreadable messages.
    ``gave_up``: the agent ended it, or went in circles, with nothing changed. ``no_patch``: a limit ended it with
    nothing changed. ``does_not_build``: the patch does not apply, or tests can no longer be collected or imported.
    ``wrong_place``: none of the failing tests was mended, and no file (or no function) that the solution touches was
    touched. ``broke_something``: tests fail that passed before. ``wrong_logic``: the right place, the wrong change.
    ``unknown``: it failed, and the record does not tell more (a log's own verdict).
    """

    INFRASTRUCTURE = "infrastructure"
    HACKED = "hacked"
    ABSTAINED = "abstained"
    TIMEOUT = "timeout"
    PROTOCOL = "protocol"
    GAVE_UP = "gave_up"
    NO_PATCH = "no_patch"
    DOES_NOT_BUILD = "does_not_build"
    WRONG_PLACE = "wrong_place"
    BROKE_SOMETHING = "broke_something"
    WRONG_LOGIC = "wrong_logic"
    UNKNOWN = "unknown"


class Failure(NamedTuple):
    """A type, and what in the record shows it, in words."""

    kind: FailureType
    why: str


Places = Callable[[Task, str], frozenset[str] | None]
"""What says which places of a task's code a patch touches; None where that cannot be told."""

_NOT_COLLECTED = frozenset({Outcome.NOT_COLLECTED, Outcome.IMPORT_ERROR})
_DID_NOT_RUN = _NOT_COLLECTED | {Outcome.MISSING, Outcome.ERROR}
_SHOWN = 3
_LONGEST_WHY = 300


def failure_type(trajectory: Trajectory, task: Task | None, places: Places | None = None) -> FailureType | None:
    """The type of ``failure_of`` alone."""
    failure = failure_of(trajectory, task, places)
    return failure.kind if failure is not None else None


def failure_of(trajectory: Trajectory, task: Task | None, places: Places | None = None) -> Failure | None:
    """The first type that fits, with its evidence; None where the attempt solved its task (as
    ``patchgym.records.outcome`` says), and where nobody graded one that came to its end. ``task`` is None where it is
    not at hand. ``places`` tells functions from each other; without it places are files."""
    lost = lost_to(trajectory)
    if lost is not None:
        return Failure(FailureType.INFRASTRUCTURE, lost[:_LONGEST_WHY])
    if trajectory.report is None or solved(trajectory):
        return None
    for look in (_hacked, _judged, _ended, _unbuilt):
        found = look(trajectory, trajectory.report)
        if found is not None:
            return found
    return _located(trajectory, trajectory.report, task, places)


def _hacked(trajectory: Trajectory, report: TestReport) -> Failure | None:
    proof = proof_against(trajectory)
    if report.verdict is Verdict.TAMPERED:
        return _told(FailureType.HACKED, report.why or "the results were interfered with")
    return _told(FailureType.HACKED, f"{proof.kind} at {proof.where}: {proof.why}") if proof is not None else None


def _judged(trajectory: Trajectory, report: TestReport) -> Failure | None:
    if report.verdict is Verdict.ABSTAINED:
        return _told(FailureType.ABSTAINED, report.why)
    if report.verdict is Verdict.TIMEOUT:
        return _told(FailureType.TIMEOUT, report.why or "the tests do not come to their end")
    return None


def _ended(trajectory: Trajectory, report: TestReport) -> Failure | None:
    """What the end of an episode that did not solve its task shows."""
    if trajectory.stop is StopReason.TIME_LIMIT:
        whose = timeout_of(trajectory)
        why = "the policy's own commands or answers used it up" if whose == "policy" else "what used it up is unknown"
        return Failure(FailureType.TIMEOUT, f"the episode ran out of time; {why}")
    if trajectory.stop is StopReason.PROTOCOL:
        return Failure(FailureType.PROTOCOL, "it ended over messages that hold no readable action")
    if trajectory.final_patch == "":
        own = trajectory.stop in (None, StopReason.SUBMITTED, StopReason.HOPELESS_LOOP)
        stop = str(trajectory.stop).replace("_", " ") if trajectory.stop is not None else "unknown"
        kind = FailureType.GAVE_UP if own else FailureType.NO_PATCH
        return Failure(kind, f"nothing was changed; the end: {stop}")
    return None


def _unbuilt(trajectory: Trajectory, report: TestReport) -> Failure | None:
    """What shows that there is nothing to test."""
    kind = FailureType.DOES_NOT_BUILD
    if report.verdict is Verdict.INVALID:
        return _told(kind, f"the patch cannot be applied: {report.why}")
    if report.quality is not None and report.quality.compiles is False:
        return Failure(kind, "a file that it touches is no Python any more")
    if not report.tests:
        return None
    unrun = [test for test, outcome in report.tests.items() if outcome in _DID_NOT_RUN]
    if len(unrun) == len(report.tests):
        return _told(kind, f"no test could run, first {unrun[0]} ({report.tests[unrun[0]]})")
    return None


def _located(trajectory: Trajectory, report: TestReport, task: Task | None, places: Places | None) -> Failure:
    """What is wrong with a patch that can be tested."""
    kept, mended = report.pass_to_pass, report.fail_to_pass
    if not report.tests and not kept.total and not mended.total:
        return _told(FailureType.UNKNOWN, report.why)
    broken = _uncollected(report, task)
    if broken:
        why = f"{len(broken)} tests that passed before cannot be collected, first {broken[0]}"
        return _told(FailureType.DOES_NOT_BUILD, f"{why} ({report.tests[broken[0]]})")
    elsewhere = _elsewhere(trajectory, task, places) if not mended.passed else None
    if elsewhere is not None:
        return _told(FailureType.WRONG_PLACE, elsewhere)
    if kept.passed < kept.total:
        why = f"{kept.total - kept.passed} of {kept.total} tests that passed before do not pass"
        return Failure(FailureType.BROKE_SOMETHING, f"{why}; {mended.passed} of {mended.total} failing ones are mended")
    return _told(FailureType.WRONG_LOGIC, report.why or f"{mended.passed} of {mended.total} failing tests are mended")


def _uncollected(report: TestReport, task: Task | None) -> list[str]:
    """Tests that passed before and can no longer be collected. Failing ones may ask for names that are not there yet,
    which is no matter of building."""
    wanted = task.tests.pass_to_pass if task is not None else ()
    return [test for test in wanted if report.tests.get(test) in _NOT_COLLECTED]


def _elsewhere(trajectory: Trajectory, task: Task | None, places: Places | None) -> str | None:
    """Why a patch is in the wrong place; None where it is in the right one, or that is not known."""
    if task is None or not task.key_files or not trajectory.final_patch:
        return None
    try:
        touched = patched_paths(trajectory.final_patch)
    except PatchError:
        return None
    if not set(touched) & set(task.key_files):
        return f"it touches {_some(touched)}, the solution {_some(task.key_files)}"
    if places is None:
        return None
    here, there = places(task, trajectory.final_patch), places(task, task.gold_patch)
    if not here or not there or here & there:
        return None
    return f"it touches {_some(here)}, the solution {_some(there)}"


def _some(names: "tuple[str, ...] | frozenset[str]") -> str:
    shown = sorted(names)[:_SHOWN]
    return ", ".join(shown) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _told(kind: FailureType, why: str) -> Failure:
    return Failure(kind, why[:_LONGEST_WHY])
