"""Two finished evaluations against each other, task by task."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from patchgym.errors import UsageError
from patchgym.evaluate.attempts import Attempt
from patchgym.evaluate.bootstrap import Estimate, ratio_estimates
from patchgym.evaluate.conditions import MEASURING, TELLING
from patchgym.evaluate.estimates import Solved, differences, paired_difference, pass_at_1
from patchgym.evaluate.failures import FailureType
from patchgym.evaluate.flips import flip_p_value
from patchgym.evaluate.power import Power, paired_power
from patchgym.evaluate.report import EvalReport
from patchgym.records import VersionedRecord

_SAME = 1e-9
_FEW_DIFFERING = 6
_Sides = tuple[Mapping[str, Sequence[Attempt]], Mapping[str, Sequence[Attempt]]]


class Comparison(VersionedRecord):
    """What ``after`` does otherwise than ``before``, on the tasks that both have valid attempts at."""

    VERSION: ClassVar[int] = 1

    before: str
    """The name of what is compared with."""
    after: str
    """The name of what is compared."""
    tasks: int
    """Tasks in common: the same id and, where both know it, the same content."""
    only_before: int
    """Tasks of ``before`` alone, left out."""
    only_after: int
    """Tasks of ``after`` alone, left out."""
    changed: tuple[str, ...]
    """Tasks of one id with another content, left out."""
    pass_at_1_before: Estimate
    """On the tasks in common."""
    pass_at_1_after: Estimate
    """On the tasks in common."""
    difference: Estimate
    """pass@1 of ``after`` less that of ``before``, with the interval of the paired difference."""
    p_value: float
    """Two-sided, by exchanging the two on each task (``patchgym.evaluate.flips``)."""
    better: tuple[str, ...]
    """Tasks that ``after`` solves more often."""
    worse: tuple[str, ...]
    """Tasks that it solves less often."""
    steps: Estimate | None
    """Mean steps of an attempt, ``after`` less ``before``, paired by task."""
    tokens: Estimate | None
    """Mean sampled tokens of an attempt, likewise; None where a side does not know them."""
    failures: dict[FailureType, tuple[int, int]]
    """How many attempts at these tasks failed in each way: before, after."""
    differing: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    """Conditions that are not the same, policy and version apart: before, after."""
    power: Power | None
    """What it takes to see 3 points, by the deviation of these differences."""
    notes: tuple[str, ...]
    """What limits the comparison, in words."""
    verdict: str
    """What it comes to, in a sentence."""


def compare(before: EvalReport, after: EvalReport, names: tuple[str, str], *, seed: int = 0) -> Comparison:
    """Compare two evaluations on the tasks that they have in common.

    Raises:
        UsageError: they have none.
    """
    changed = tuple(
        sorted(
            task
            for task in before.solved.keys() & after.solved.keys()
            if len({report.task_hashes[task] for report in (before, after) if task in report.task_hashes}) > 1
        )
    )
    common = sorted((before.solved.keys() & after.solved.keys()) - set(changed))
    if not common:
        raise _nothing_in_common(before, after, names, changed)
    old: Solved = {task: before.solved[task] for task in common}
    new: Solved = {task: after.solved[task] for task in common}
    difference = paired_difference(old, new, seed=seed)
    ends = pass_at_1(old, seed=seed), pass_at_1(new, seed=seed)
    each = differences(old, new)
    p_value = flip_p_value(list(each.values()), seed=seed)
    power = paired_power(old, new)
    assert difference is not None
    assert p_value is not None
    assert ends[0] is not None
    assert ends[1] is not None
    differing = _differing(before, after)
    sides = _at(before, common), _at(after, common)
    return Comparison(
        before=names[0],
        after=names[1],
        tasks=len(common),
        only_before=len(before.solved) - len(common) - len(changed),
        only_after=len(after.solved) - len(common) - len(changed),
        changed=changed,
        pass_at_1_before=ends[0],
        pass_at_1_after=ends[1],
        difference=difference,
        p_value=p_value,
        better=tuple(task for task in common if each[task] > _SAME),
        worse=tuple(task for task in common if each[task] < -_SAME),
        steps=_paired_mean(sides, lambda one: float(one.steps), seed),
        tokens=_paired_mean(sides, lambda one: None if one.tokens is None else float(one.tokens), seed),
        failures=_failures(sides),
        differing=differing,
        power=power,
        notes=tuple(_notes(before, after, len(common), changed, differing, each)),
        verdict=_verdict(names, difference, p_value, power),
    )


def _nothing_in_common(
    before: EvalReport, after: EvalReport, names: tuple[str, str], changed: Sequence[str]
) -> UsageError:
    if not before.solved or not after.solved:
        empty = names[0] if not before.solved else names[1]
        return UsageError(
            f"{empty} has no valid attempt to compare",
            why="All of its attempts were lost to infrastructure, or nobody graded them.",
            mend="Evaluate it again.",
        )
    why = f"They measure {len(before.solved)} and {len(after.solved)} tasks, none of them the same."
    if changed:
        why = f"{len(changed)} tasks have the same id and another content, first {changed[0]}."
    return UsageError(
        f"{names[0]} and {names[1]} have no task in common", why=why, mend="Evaluate both policies on one task set."
    )


def _differing(before: EvalReport, after: EvalReport) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Conditions of which the two record something else. What one side does not record is not known to differ."""
    return {
        name: (before.conditions[name], after.conditions[name])
        for name in TELLING
        if name not in ("policy", "version")
        and name in before.conditions
        and name in after.conditions
        and before.conditions[name] != after.conditions[name]
    }


def _at(report: EvalReport, tasks: Sequence[str]) -> dict[str, list[Attempt]]:
    """The valid attempts by task."""
    found: dict[str, list[Attempt]] = {task: [] for task in tasks}
    for one in report.attempts:
        if one.solved is not None and one.task in found:
            found[one.task].append(one)
    return found


def _paired_mean(sides: _Sides, measure: Callable[[Attempt], float | None], seed: int) -> Estimate | None:
    """The mean over tasks of how much more the second side takes, over tasks of which both sides know it."""
    found = []
    for task, old in sides[0].items():
        known = [[value for one in side if (value := measure(one)) is not None] for side in (old, sides[1][task])]
        if all(known):
            found.append(fmean(known[1]) - fmean(known[0]))
    return ratio_estimates([[one] for one in found], [[1.0]] * len(found), None, seed=seed)[0] if found else None


def _failures(sides: _Sides) -> dict[FailureType, tuple[int, int]]:
    old, new = (
        Counter(one.failure for attempts in side.values() for one in attempts if one.failure is not None)
        for side in sides
    )
    return {kind: (old[kind], new[kind]) for kind in FailureType if old[kind] or new[kind]}


def _notes(
    before: EvalReport,
    after: EvalReport,
    common: int,
    changed: Sequence[str],
    differing: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]],
    each: Mapping[str, float],
) -> list[str]:
    found = []
    alone = len(before.solved) - common - len(changed), len(after.solved) - common - len(changed)
    if any(alone):
        found.append(f"Only the {common} tasks in common count: {alone[0]} and {alone[1]} more are on one side alone.")
    if changed:
        found.append(f"{len(changed)} tasks of the same id have another content and are left out, first {changed[0]}.")
    unknown = [report for report in (before, after) if not report.task_hashes]
    if unknown:
        found.append("One side does not say what its tasks held: they are taken to be the same by their ids.")
    for name, (old, new) in differing.items():
        what = f"{TELLING[name]}: {', '.join(old)} and {', '.join(new)}"
        blame = "a difference may be due to that" if name in MEASURING else "it is policies with their settings"
        found.append(f"Not the same {what}; {blame}.")
    moved = sum(abs(value) > _SAME for value in each.values())
    if 0 < moved < _FEW_DIFFERING:
        found.append(
            f"Only {_tasks(moved)} came out otherwise: so few cannot show a difference at 5% (p is at least "
            f"{2 * 0.5**moved:.2g}), and the interval is too narrow."
        )
    old_versions, new_versions = before.conditions.get("version"), after.conditions.get("version")
    if old_versions is not None and old_versions == new_versions:
        found.append("Both are the same version of the policy: what differs is chance, or the settings.")
    return found


def _verdict(names: tuple[str, str], difference: Estimate, p_value: float, power: Power | None) -> str:
    """Both the interval and the exact test must agree before a difference is called one: either alone errs on few
    tasks."""
    points = f"{100 * difference.value:+.1f} points ({100 * difference.low:+.1f} to {100 * difference.high:+.1f})"
    if p_value < 0.05 and (difference.low > 0 or difference.high < 0):
        better = names[1] if difference.value > 0 else names[0]
        return f"{better} solves more: {points} over {_tasks(difference.tasks)}, p = {p_value:.2g}."
    seen = f"; these tasks can be relied on to show {100 * power.smallest:.0f} points or more" if power else ""
    seen = "; these tasks can show none" if power is not None and power.smallest >= 1 else seen
    return f"No difference shows: {points} over {_tasks(difference.tasks)}, p = {p_value:.2g}{seen}."


def _tasks(count: int) -> str:
    return f"{count} task" if count == 1 else f"{count} tasks"
