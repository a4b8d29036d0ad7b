"""Which attempts a person should look at."""

from collections.abc import Iterable

from patchgym.records import Evidence, Trajectory, Verdict


def to_screen(trajectories: Iterable[Trajectory]) -> dict[str, str]:
    """Trajectories that a person should look at, by id, with the reason: something that is no proof speaks against
    them, or grading abstained."""
    found = {}
    for one in trajectories:
        marks = [mark for mark in _evidence(one) if not mark.proof]
        if marks:
            found[one.id] = f"{marks[0].kind} at {marks[0].where}: {marks[0].why}"
        elif one.report is not None and one.report.verdict is Verdict.ABSTAINED:
            found[one.id] = one.report.why
    return found


def _evidence(one: Trajectory) -> list[Evidence]:
    graded = one.report.evidence if one.report is not None else ()
    detected = one.reward.evidence if one.reward is not None else ()
    return [*graded, *detected]
