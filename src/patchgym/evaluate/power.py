"""How many tasks it takes to see a difference.

The difference of two policies on the same tasks is a mean of per-task differences. With their standard deviation ``s``
a two-sided test at level ``a`` sees a true difference ``d`` with the chance ``b`` from about

    n = ((z(1 - a / 2) + z(b)) * s / d) ** 2

tasks on, where ``z`` are quantiles of the normal distribution (the sample size of a paired comparison: Cohen 1988,
"Statistical Power Analysis for the Behavioral Sciences"; for evaluations of language models: Miller 2024, "Adding Error
Bars to Evals", section 5). Solved for ``d`` it is the smallest difference that ``n`` tasks can be relied on to show.

Part of ``s`` is luck of the draw within a task, which more samples of each task take away: the share ``p = c / n`` of
``n`` samples that solved a task has the variance ``p (1 - p) / (n - 1)``, estimated without bias. What is left is how
differently the two policies do on different tasks, and only more tasks help against that.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from statistics import fmean, stdev
from typing import Literal

from patchgym.evaluate.estimates import Solved, differences
from patchgym.evaluate.quantiles import normal_quantile
from patchgym.records import Record

POINTS = 0.03
"""The difference that an evaluation should be able to see: 3 points of pass@1."""
_LEVEL = 0.05
_CHANCE = 0.8
_TINY = 1e-12


class Power(Record):
    """What a set of tasks can show of a difference in pass@1.

    ``deviation`` is the standard deviation of per-task differences, measured on ``tasks`` tasks: ``paired`` between two
    policies, or ``alone`` of one policy, where it is that of two alike ones which do not have their easy tasks in
    common, the worst that is to be expected. ``tasks_needed`` is how many tasks show ``difference`` at ``level`` with
    the chance ``power``; ``tasks_needed_at_best`` is the same with any number of samples of each task (None where one
    sample a task was drawn, which cannot tell, and where luck explains all of the deviation). ``smallest`` is the
    smallest difference that ``tasks`` tasks show.
    """

    basis: Literal["paired", "alone"]
    tasks: int
    deviation: float
    difference: float = POINTS
    level: float = _LEVEL
    power: float = _CHANCE
    tasks_needed: int
    tasks_needed_at_best: int | None
    smallest: float


def paired_power(before: Solved, after: Solved, *, difference: float = POINTS) -> Power | None:
    """What more tasks like those that both have would show of their difference; None where that was not measured: on
    fewer than two tasks, or where all differ alike."""
    each = differences(before, after)
    luck = [_luck(before[task]) for task in each], [_luck(after[task]) for task in each]
    return _power("paired", list(each.values()), 1.0, luck, difference)


def power_alone(solved: Solved, *, difference: float = POINTS) -> Power | None:
    """What these tasks can show of two policies that do about as well as this one. Two policies mostly have their easy
    tasks in common, and then fewer tasks do. None where that was not measured, as with ``paired_power``."""
    known = [outcomes for outcomes in solved.values() if outcomes]
    luck = [_luck(outcomes) for outcomes in known]
    return _power("alone", [fmean(outcomes) for outcomes in known], 2.0, (luck,), difference)


def _power(
    basis: Literal["paired", "alone"],
    values: Sequence[float],
    times: float,
    luck: Sequence[Sequence[float | None]],
    difference: float,
) -> Power | None:
    """``times`` is how often the variance of ``values`` is in that of a difference."""
    if len(values) < 2 or stdev(values) < _TINY:
        return None
    variance = times * stdev(values) ** 2
    sides = [fmean(known) if (known := [one for one in side if one is not None]) else None for side in luck]
    lasting = None
    if all(side is not None for side in sides):
        lasting = variance - times * sum(side for side in sides if side is not None)
    factor = normal_quantile(1 - _LEVEL / 2) + normal_quantile(_CHANCE)
    return Power(
        basis=basis,
        tasks=len(values),
        deviation=sqrt(variance),
        difference=difference,
        tasks_needed=_tasks(variance, factor, difference),
        tasks_needed_at_best=_tasks(lasting, factor, difference) if lasting is not None and lasting > 0 else None,
        smallest=factor * sqrt(variance / len(values)),
    )


def _tasks(variance: float, factor: float, difference: float) -> int:
    return max(2, ceil(variance * (factor / difference) ** 2))


def _luck(outcomes: Sequence[bool]) -> float | None:
    """The variance of the mean of these outcomes that is luck of the draw, without bias; None of a single one."""
    if len(outcomes) < 2:
        return None
    share = fmean(outcomes)
    return share * (1 - share) / (len(outcomes) - 1)
