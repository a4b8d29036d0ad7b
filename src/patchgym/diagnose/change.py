"""What changed between two rounds on the tasks that both have, and whether by more than chance.

The tasks are the same on both sides, so chance is in the samples alone: with the pooled variance ``v`` of samples
within a task and a round, the mean difference over ``T`` tasks has the variance ``v / T^2 * sum (1/n + 1/m)`` over
tasks with ``n`` and ``m`` samples. One made-up squared deviation of a quarter keeps ``v`` above 0 where all samples of
a few tasks are alike.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import NamedTuple

from patchgym.diagnose.facts import Facts
from patchgym.diagnose.seen import Seen

SURE = 2.576
"""Standard errors beyond which chance goes once in a hundred times."""
LIKELY = 1.645
"""One-sided, once in twenty times."""
LEAST = 8
"""Samples on either side below which nothing is said."""


class Change(NamedTuple):
    """A mean at two times over shared tasks, and how many standard errors it moved."""

    before: float
    after: float
    error: float
    tasks: int

    @property
    def moved(self) -> float:
        """The difference."""
        return self.after - self.before

    @property
    def errors(self) -> float:
        """The difference in standard errors."""
        return self.moved / self.error if self.error else math.copysign(math.inf, self.moved) if self.moved else 0.0


Figure = Callable[[Seen], float | None]


def change(before: Sequence[Seen], after: Sequence[Seen], figure: Figure, *, scale: float = 1.0) -> Change | None:
    """How a figure changed; None where the two share too little. ``scale`` is a large deviation."""
    first, second = _by_task(before, figure), _by_task(after, figure)
    shared = sorted(first.keys() & second.keys())
    sizes = [(len(first[task]), len(second[task])) for task in shared]
    if not shared or sum(n for n, _ in sizes) < LEAST or sum(m for _, m in sizes) < LEAST:
        return None
    groups = [values for task in shared for values in (first[task], second[task])]
    squares = sum((value - fmean(values)) ** 2 for values in groups for value in values) + scale**2 / 4
    freedom = sum(len(values) - 1 for values in groups) + 1
    variance = squares / freedom * sum(1 / n + 1 / m for n, m in sizes) / len(shared) ** 2
    return Change(
        fmean(fmean(first[task]) for task in shared),
        fmean(fmean(second[task]) for task in shared),
        math.sqrt(variance),
        len(shared),
    )


def _by_task(found: Sequence[Seen], figure: Figure) -> Mapping[str, list[float]]:
    grouped: dict[str, list[float]] = {}
    for one in found:
        value = figure(one)
        if value is not None:
            grouped.setdefault(one.light.task_id, []).append(value)
    return grouped


class Sides(NamedTuple):
    """Two sets of attempts to compare, with their names."""

    earlier: str
    before: list[Seen]
    later: str
    after: list[Seen]


def alike(two: Sides, few: int) -> Sides | None:
    """The two sides so far as shares of their attempts can be compared: on the tasks that both have; where those have
    too few samples, whole, if each has ``few`` tasks and more, for then it matters little which ones they are. Else
    None: a difference could be that of the tasks."""
    names = [{one.light.task_id for one in found} for found in (two.before, two.after)]
    shared = names[0] & names[1]
    before, after = ([one for one in found if one.light.task_id in shared] for found in (two.before, two.after))
    if min(len(before), len(after)) >= LEAST:
        return Sides(two.earlier, before, two.later, after)
    return two if min(map(len, names)) >= few else None


def unlike(two: Sides, few: int) -> str:
    """Why two sides that are not ``alike`` say nothing, and what would be enough."""
    before, after = (len({one.light.task_id for one in found}) for found in (two.before, two.after))
    return (
        f"{two.earlier} and {two.later} have {before} and {after} tasks, too few of them the same: too little to tell, "
        f"{few} tasks in each or {LEAST} attempts at the same ones would be enough"
    )


def sides(facts: Facts) -> Sides | None:
    """The first and the last round of a run, or, where it is compared with another run, all of that one and all of it;
    None where there is only one."""
    if facts.against is not None:
        before, after = (_policy_of(one) for one in (facts.against, facts))
        return Sides(facts.against.run, before, facts.run, after) if before and after else None
    rounds = rounds_of(facts)
    if len(rounds) < 2:
        return None
    (earlier, first), (later, last) = next(iter(rounds.items())), list(rounds.items())[-1]
    return Sides(earlier, first, later, last)


def rounds_of(facts: Facts) -> dict[str, list[Seen]]:
    """The rounds between which a policy was trained: those of the loop by their name, else every sampled phase but the
    stages of a staged run, which sample one policy."""
    named = {name: found for name, found in facts.rounds.items() if name.startswith("round-")}
    others = {name: found for name, found in facts.rounds.items() if not name.startswith("stage-")}
    sampled = {one.id for one in facts.sampled}
    every = {name: [one for one in found if one.id in sampled] for name, found in (named or others).items()}
    return {name: found for name, found in every.items() if found}


def _policy_of(facts: Facts) -> list[Seen]:
    """What a run has of its policy: what was sampled, or, where nothing was, what was measured last."""
    measured = list(facts.measured.values())
    return list(facts.sampled) or (measured[-1] if measured else []) or list(facts.own)
