"""Which attempts a person should look at."""

from collections.abc import Iterable

from patchgym.records import Trajectory, Verdict
from patchgym.records.outcome import evidence_against


def to_screen(trajectories: Iterable[Trajectory]) -> dict[str, str]:
    """Trajectories that a person should look at, by id, with the reason: something that is no proof speaks against
    them, or grading abstained."""
    found = {}
    for one in trajectories:
        marks = [mark for mark in evidence_against(one) if not mark.proof]
        if marks:
            found[one.id] = f"{marks[0].kind} at {marks[0].where}: {marks[0].why}"
        elif one.report is not None and one.report.verdict is Verdict.ABSTAINED:
            found[one.id] = one.report.why
    return found
