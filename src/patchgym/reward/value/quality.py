"""How good a value model's scores are: ranking, squared error, calibration, and what selecting by them is worth.

Every figure is a function of sums over tasks, so that its interval is a bootstrap over tasks: whole tasks are drawn
again, for attempts at one task are alike.
"""

import random
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from patchgym.records import Record
from patchgym.reward.value.fit import Scored

BINS = 10
_RESAMPLES = 400
_LEAST_TASKS = 2


class Measured(Record):
    """A figure with the ends of its 95% percentile-bootstrap interval over tasks; None where it has no value (an AUC
    needs attempts of both outcomes, an interval two tasks)."""

    value: float | None
    low: float | None = None
    high: float | None = None


class Bin(Record):
    """Scores between two bounds: how many, their mean, and the share of them whose attempt solved its task."""

    low: float
    high: float
    count: int
    mean_score: float | None
    solved: float | None


class Ranking(Record):
    """Scores against outcomes."""

    scores: int
    """How many there are."""
    solved: float
    """The share whose attempt solved its task."""
    auc: Measured
    """The chance that a solved one scores above an unsolved one (equal scores count half)."""
    auc_within_tasks: Measured
    """The same over pairs of one task alone: what is left when no task is told from another."""
    brier: Measured
    """The mean squared difference of score and outcome."""
    brier_constant: float
    """That of the best constant, the share solved: what any score has to beat."""
    ece: Measured
    """The expected calibration error over the bins: the mean distance of mean score and share solved, by count. It is
    above 0 by chance alone: look at the counts."""
    bins: tuple[Bin, ...]


class Selection(Record):
    """What keeping the best-scored attempts of each task is worth."""

    kept: str
    """Which are kept of a task's attempts."""
    attempts: int
    solved: Measured
    """The share of those that are kept which solved their task, as the mean over tasks."""
    solved_of_all: float
    """The same of all attempts."""


class ValueReport(Record):
    """How good a model is on attempts at tasks."""

    tasks: int
    attempts: int
    steps: Ranking
    """The score after every step against the attempt's outcome."""
    halfway: Ranking
    """The score in the middle of each attempt."""
    ends: Ranking
    """The score after its last step."""
    levels: int
    """How many different scores there are."""
    selection: tuple[Selection, ...]


class _Point(NamedTuple):
    task: str
    score: float
    outcome: float


def quality(scored: Sequence[Scored], *, seed: int = 0, resamples: int = _RESAMPLES) -> ValueReport:
    """Measure scores against what became of the attempts.

    Raises:
        ValueError: there are no attempts.
    """
    if not scored:
        raise ValueError("there are no attempts to measure on")
    every = [_Point(one.task_id, score, one.outcome) for one in scored for score in one.scores]
    middle = [_Point(one.task_id, one.scores[(len(one.scores) - 1) // 2], one.outcome) for one in scored]
    ends = [_Point(one.task_id, one.scores[-1], one.outcome) for one in scored]
    return ValueReport(
        tasks=len({one.task_id for one in scored}),
        attempts=len(scored),
        steps=ranking(every, seed, resamples),
        halfway=ranking(middle, seed, resamples),
        ends=ranking(ends, seed, resamples),
        levels=len({score for one in scored for score in one.scores}),
        selection=_selections(ends, seed, resamples),
    )


def ranking(points: Sequence[tuple[str, float, float]], seed: int = 0, resamples: int = _RESAMPLES) -> Ranking:
    """The figures of (task, score from 0 to 1, outcome 0 or 1) triples, of which there is at least one."""
    tasks: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for task, score, outcome in points:
        tasks[task].append((score, outcome))
    members = list(tasks.values())
    wins, pairs = _duels(members)
    sums = [_bin_sums(member) for member in members]
    errors = [sum((score - outcome) ** 2 for score, outcome in member) for member in members]
    sizes = [len(member) for member in members]
    base = sum(outcome for _, _, outcome in points) / len(points)

    def auc(times: Sequence[int]) -> float | None:
        present = [at for at, count in enumerate(times) if count]
        won = all_pairs = 0.0
        for i in present:
            for j in present:
                weight = times[i] * times[j]
                won += weight * wins[i][j]
                all_pairs += weight * pairs[i][j]
        return won / all_pairs if all_pairs else None

    def within(times: Sequence[int]) -> float | None:
        all_pairs = sum(count * pairs[at][at] for at, count in enumerate(times))
        return sum(count * wins[at][at] for at, count in enumerate(times)) / all_pairs if all_pairs else None

    def brier(times: Sequence[int]) -> float:
        total = sum(count * size for count, size in zip(times, sizes, strict=True))
        return sum(count * error for count, error in zip(times, errors, strict=True)) / total

    def ece(times: Sequence[int]) -> float:
        total = sum(count * size for count, size in zip(times, sizes, strict=True))
        gaps = 0.0
        for place in range(BINS):
            gaps += abs(
                sum(count * (sums[at][place].scores - sums[at][place].solved) for at, count in enumerate(times))
            )
        return gaps / total

    def measured(figure: Callable[[Sequence[int]], float | None]) -> Measured:
        return _with_interval(figure, len(members), seed, resamples)

    return Ranking(
        scores=len(points),
        solved=base,
        auc=measured(auc),
        auc_within_tasks=measured(within),
        brier=measured(brier),
        brier_constant=base * (1 - base),
        ece=measured(ece),
        bins=tuple(_bin(place, sums) for place in range(BINS)),
    )


class _BinSums(NamedTuple):
    size: int
    scores: float
    solved: float


def _bin_sums(member: Sequence[tuple[float, float]]) -> list[_BinSums]:
    sums = [_BinSums(0, 0.0, 0.0)] * BINS
    for score, outcome in member:
        place = min(BINS - 1, max(0, int(score * BINS)))
        had = sums[place]
        sums[place] = _BinSums(had.size + 1, had.scores + score, had.solved + outcome)
    return sums


def _bin(place: int, sums: Sequence[Sequence[_BinSums]]) -> Bin:
    count = sum(task[place].size for task in sums)
    return Bin(
        low=place / BINS,
        high=(place + 1) / BINS,
        count=count,
        mean_score=sum(task[place].scores for task in sums) / count if count else None,
        solved=sum(task[place].solved for task in sums) / count if count else None,
    )


def _duels(members: Sequence[Sequence[tuple[float, float]]]) -> tuple[list[list[float]], list[list[int]]]:
    """How often a solved score of one task (row) is above an unsolved one of another (column), and of how many."""
    solved = [[score for score, outcome in member if outcome] for member in members]
    unsolved = [sorted(score for score, outcome in member if not outcome) for member in members]
    wins = [
        [sum(bisect_left(lows, high) + bisect_right(lows, high) for high in highs) / 2 for lows in unsolved]
        for highs in solved
    ]
    return wins, [[len(highs) * len(lows) for lows in unsolved] for highs in solved]


def _with_interval(figure: Callable[[Sequence[int]], float | None], tasks: int, seed: int, resamples: int) -> Measured:
    value = figure([1] * tasks)
    if value is None or tasks < _LEAST_TASKS:
        return Measured(value=value)
    dice = random.Random(seed)
    found = []
    for _ in range(resamples):
        times = [0] * tasks
        for _ in range(tasks):
            times[dice.randrange(tasks)] += 1
        drawn = figure(times)
        if drawn is not None:
            found.append(drawn)
    found.sort()
    if not found:
        return Measured(value=value)
    return Measured(
        value=value, low=found[int(0.025 * len(found))], high=found[min(len(found) - 1, int(0.975 * len(found)))]
    )


def _selections(ends: Sequence[_Point], seed: int, resamples: int) -> tuple[Selection, ...]:
    tasks: dict[str, list[_Point]] = defaultdict(list)
    for point in ends:
        tasks[point.task].append(point)
    groups = [sorted(group, key=lambda point: -point.score) for group in tasks.values() if len(group) > 1]
    if not groups:
        return ()
    everything = sum(_share(group, len(group)) for group in groups) / len(groups)
    found = []
    for name, share in (("the best one", 0.0), ("the best quarter", 0.25), ("the best half", 0.5)):
        kept = [max(1, round(share * len(group))) for group in groups]
        shares = [_share(group, count) for group, count in zip(groups, kept, strict=True)]

        def mean(times: Sequence[int], shares: Sequence[float] = shares) -> float:
            return sum(count * share for count, share in zip(times, shares, strict=True)) / sum(times)

        found.append(
            Selection(
                kept=name,
                attempts=sum(kept),
                solved=_with_interval(mean, len(groups), seed, resamples),
                solved_of_all=everything,
            )
        )
    return tuple(found)


def _share(group: Sequence[_Point], kept: int) -> float:
    """The share solved of the first ``kept``, where those that tie for the last places share them."""
    last = group[kept - 1].score
    above = [point for point in group if point.score > last]
    tied = [point for point in group if point.score == last]
    share = sum(point.outcome for point in tied) / len(tied)
    return (sum(point.outcome for point in above) + share * (kept - len(above))) / kept
