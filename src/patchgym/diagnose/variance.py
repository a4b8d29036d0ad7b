"""The variance of rewards, split into what the policy did and what grading did.

Attempts with the same patch at the same task must be worth the same: whatever differs between them is grading's. With
``y(t, p, k)`` the value of the k-th grading of patch ``p`` of task ``t``, a nested one-way analysis of variance
(Searle, Casella and McCulloch 1992, *Variance Components*, chapter 3, for unequal numbers)::

    MS within  = sum (y(t, p, k) - mean(t, p))^2 / (gradings - patches)
    MS between = sum n(t, p) (mean(t, p) - mean(t))^2 / (patches - tasks)
    n0         = (gradings - sum over t of (sum over p of n(t, p)^2) / n(t)) / (patches - tasks)
    grading's variance = MS within
    the policy's       = max(0, (MS between - MS within) / n0)
"""

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from statistics import fmean

from patchgym.records import Outcome, Record, Trajectory
from patchgym.reward import RewardSettings, outcome_value


class Grading(Record):
    """One grading of one patch: its first-layer value and gate, and the outcomes of tests. ``trajectory`` is where the
    patch comes from."""

    task_id: str
    trajectory: str
    patch: str
    gate: str
    value: float
    tests: dict[str, Outcome]


class VarianceSplit(Record):
    """Variance components over ``gradings`` gradings of ``patches`` patches at ``tasks`` tasks."""

    tasks: int
    patches: int
    gradings: int
    repeats: int
    """Gradings of a patch beyond its first."""
    policy: float | None
    """The variance between patches of a task; None where no task has two."""
    grading: float | None
    """The variance between gradings of a patch; None where none was graded twice."""

    @property
    def grading_share(self) -> float | None:
        """Grading's part of both; None where one of them is not known, or nothing varies."""
        if self.policy is None or self.grading is None or not self.policy + self.grading:
            return None
        return self.grading / (self.policy + self.grading)


def recorded_grading(one: Trajectory) -> Grading | None:
    """The grading that a trajectory records; None where it has no verdict with a value, or no patch."""
    if one.report is None or one.final_patch is None or one.faults:
        return None
    gate, value = outcome_value(one.report, RewardSettings())
    if value is None:
        return None
    return Grading(
        task_id=one.task_id,
        trajectory=one.id,
        patch=hashlib.sha256(one.final_patch.encode("utf-8", "surrogatepass")).hexdigest(),
        gate=gate,
        value=value,
        tests=one.report.tests,
    )


def split_variance(gradings: Iterable[Grading]) -> VarianceSplit:
    """Split it."""
    tasks: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for one in gradings:
        tasks[one.task_id][one.patch].append(one.value)
    patches = [values for of_task in tasks.values() for values in of_task.values()]
    total = sum(map(len, patches))
    free_within, free_between = total - len(patches), len(patches) - len(tasks)
    within = sum(_squares(values, fmean(values)) for values in patches)
    between = evened = 0.0
    for of_task in tasks.values():
        everything = [value for values in of_task.values() for value in values]
        mean = fmean(everything)
        between += sum(len(values) * (fmean(values) - mean) ** 2 for values in of_task.values())
        evened += sum(len(values) ** 2 for values in of_task.values()) / len(everything)
    mean_within = within / free_within if free_within else None
    policy = None
    if free_between:
        n0 = (total - evened) / free_between
        policy = max(0.0, (between / free_between - (mean_within or 0.0)) / n0)
    return VarianceSplit(
        tasks=len(tasks),
        patches=len(patches),
        gradings=total,
        repeats=free_within,
        policy=policy,
        grading=mean_within,
    )


def unstable(gradings: Iterable[Grading]) -> list[list[Grading]]:
    """The gradings of each patch that did not come out the same, by gate or by value; those furthest apart first."""
    found: dict[tuple[str, str], list[Grading]] = defaultdict(list)
    for one in gradings:
        found[one.task_id, one.patch].append(one)
    apart = [group for group in found.values() if len({(one.gate, one.value) for one in group}) > 1]
    return sorted(apart, key=_spread, reverse=True)


def _spread(group: Sequence[Grading]) -> float:
    values = [one.value for one in group]
    return max(values) - min(values)


def _squares(values: Sequence[float], mean: float) -> float:
    return sum((value - mean) ** 2 for value in values)
