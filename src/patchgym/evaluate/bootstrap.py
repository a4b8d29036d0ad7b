"""Intervals by resampling tasks.

A row is a task. Samples of one task depend on each other, so whole tasks are drawn, with all that was measured of them:
errors are clustered by task. Every statistic here is a ratio of sums over tasks (a mean of shares is one whose
denominators are 1), and all columns of one call are measured on the same draws.

The interval is the *expanded percentile* interval (Hesterberg 2015, "What Teachers Should Know About the Bootstrap",
section 4.3): the percentiles of the resampled statistic, taken at ``Phi(-sqrt(n / (n - 1)) t)`` where the plain one
takes them at 2.5%, because resamples of ``n`` tasks vary too little by that factor, and few tasks follow Student's
distribution and not the normal one. It errs less than the plain percentile interval on few tasks, and not more than the
bias-corrected one (BCa): the measurement is in ``docs/evaluation.md``. Percentiles stay within what is possible.

Where all tasks came out alike, resampling can say nothing. Then tasks that come out otherwise may be as frequent as
``u = 1 - 0.025 ** (1 / n)``, for in ``n`` tasks these would go unseen with a chance of 2.5% (Clopper and Pearson
1934). The interval is what so many of them could do.
"""

from collections.abc import Sequence
from math import sqrt
from typing import TYPE_CHECKING

import numpy

from patchgym.evaluate.quantiles import normal_share, t_quantile
from patchgym.records import Record

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Table = NDArray[numpy.float64]

RESAMPLES = 10_000
"""Draws of one bootstrap. Two seeds then place the ends of an interval within about 2% of its width."""
_TAIL = 0.025
_CELLS = 1 << 21
_FEW_KINDS = 64
_TINY = 1e-12


class Estimate(Record):
    """A value with the ends of its 95% interval; ``tasks`` is how many it rests on."""

    value: float
    low: float
    high: float
    tasks: int


def mean_estimate(
    values: Sequence[float], within: tuple[float, float], *, seed: int = 0, draws: int = RESAMPLES
) -> Estimate:
    """The mean of ``values``, one for each task (at least one); each can only be ``within`` two bounds. ``draws`` are
    those of the bootstrap.

    Raises:
        ValueError: there is no value.
    """
    if not values:
        raise ValueError("the mean of no task")
    (found,) = ratio_estimates([[value] for value in values], [[1.0]] * len(values), within, seed=seed, draws=draws)
    assert found is not None
    return found


def ratio_estimates(
    numerators: Sequence[Sequence[float]],
    denominators: Sequence[Sequence[float]],
    within: tuple[float, float] | None,
    *,
    seed: int = 0,
    draws: int = RESAMPLES,
) -> list[Estimate | None]:
    """For each column the sum of the numerators over that of the denominators, and its interval. Rows are tasks; a task
    counts in the columns in which its denominator is not 0. None for a column in which no task counts. ``within`` are
    the bounds of what a task's own ratio can be; without them a single task tells no interval, and gives None."""
    over = numpy.asarray(denominators, dtype=numpy.float64)
    of = numpy.where(over > 0, numpy.asarray(numerators, dtype=numpy.float64), 0.0)
    found: list[Estimate | None] = [None] * (over.shape[1] if over.ndim == 2 else 0)
    # Columns over the same tasks share their draws; one that lacks some of them has draws of its own.
    groups: dict[bytes, list[int]] = {}
    for column in range(len(found)):
        groups.setdefault((over[:, column] > 0).tobytes(), []).append(column)
    for columns in groups.values():
        rows = over[:, columns[0]] > 0
        if rows.sum() > (within is None):
            for column, one in zip(
                columns, _estimates(of[rows][:, columns], over[rows][:, columns], seed, draws), strict=True
            ):
                found[column] = _widened(one, of[rows, column] / over[rows, column], within)
    return found


def _estimates(of: "Table", over: "Table", seed: int, draws: int) -> list[Estimate]:
    tasks = len(of)
    drawn = numpy.sort(_drawn(of, over, seed, draws), axis=0)
    low, high = (_at(drawn, share) for share in percentiles(tasks))
    value = of.sum(axis=0) / over.sum(axis=0)
    return [
        Estimate(value=float(value[at]), low=float(low[at]), high=float(high[at]), tasks=tasks)
        for at in range(of.shape[1])
    ]


def _drawn(of: "Table", over: "Table", seed: int, draws: int) -> "Table":
    """The ratios of so many draws of as many tasks as there are."""
    random = numpy.random.default_rng(seed)
    # Tasks that came out the same are one kind: how often each kind is drawn is multinomial, and quicker to draw.
    kinds, counts = numpy.unique(numpy.concatenate([of, over], axis=1), axis=0, return_counts=True)
    tasks, columns = of.shape
    if len(kinds) <= _FEW_KINDS:
        times = random.multinomial(tasks, counts / tasks, draws).astype(numpy.float64)
        return _ratios(times, kinds[:, :columns], kinds[:, columns:])
    at_once = max(1, min(draws, _CELLS // tasks))
    parts = []
    for start in range(0, draws, at_once):
        now = min(at_once, draws - start)
        # How often each task was drawn in each draw: counted over one flat range of places.
        places = random.integers(0, tasks, (now, tasks)) + numpy.arange(now)[:, None] * tasks
        times = numpy.bincount(places.ravel(), minlength=now * tasks).reshape(now, tasks).astype(numpy.float64)
        parts.append(_ratios(times, of, over))
    return numpy.concatenate(parts)


def _ratios(times: "Table", of: "Table", over: "Table") -> "Table":
    found: Table = (times @ of) / (times @ over)
    return found


def percentiles(tasks: int) -> tuple[float, float]:
    """Where the ends of the interval of so many tasks stand among the draws, as shares of them."""
    if tasks < 2:
        return _TAIL, 1 - _TAIL
    low = normal_share(sqrt(tasks / (tasks - 1)) * t_quantile(_TAIL, tasks - 1))
    return low, 1 - low


def _at(drawn: "Table", share: float) -> "Table":
    """The draw at a share of them, by columns. Draws are sorted."""
    place = share * (len(drawn) - 1)
    row: Table = drawn[int(numpy.floor(place) if share < 0.5 else numpy.ceil(place))]
    return row


def _widened(one: Estimate, each: "Table", within: tuple[float, float] | None) -> Estimate:
    """The estimate, with the interval of tasks that came out alike where they did."""
    if within is None or float(each.max() - each.min()) > _TINY:
        return one
    unseen = 1 - _TAIL ** (1 / one.tasks)
    least, most = within
    low, high = one.value - unseen * (one.value - least), one.value + unseen * (most - one.value)
    return one.model_copy(update={"low": low, "high": high})
