"""pass@1, pass@k and differences between policies, with intervals from a bootstrap over tasks.

Samples of one task depend on each other, so tasks are resampled, not samples.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from math import comb
from statistics import fmean

from patchgym.records import Record

_RESAMPLES = 2000
_TAIL = 0.025


class Estimate(Record):
    """A value with the ends of its 95% percentile-bootstrap interval; ``tasks`` is how many it rests on."""

    value: float
    low: float
    high: float
    tasks: int


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """The unbiased estimate of the chance that one of ``k`` samples solves a task of which ``solved`` of ``samples``
    did: ``1 - C(n - c, k) / C(n, k)`` (Chen et al. 2021, "Evaluating Large Language Models Trained on Code").

    Raises:
        ValueError: ``k`` is not in 1..samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {samples} samples")
    return 1.0 - comb(samples - solved, k) / comb(samples, k)


def pass_at_1(solved: Mapping[str, Sequence[bool]], *, seed: int = 0) -> Estimate | None:
    """The mean over tasks of the share of samples that solved it; None without tasks."""
    shares = [fmean(outcomes) for outcomes in solved.values() if outcomes]
    return bootstrap(shares, fmean, seed=seed) if shares else None


def paired_difference(
    before: Mapping[str, Sequence[bool]], after: Mapping[str, Sequence[bool]], *, seed: int = 0
) -> Estimate | None:
    """pass@1 of ``after`` less that of ``before``, over the tasks that both have; None without any."""
    differences = [fmean(after[task]) - fmean(before[task]) for task in before if before[task] and after.get(task)]
    return bootstrap(differences, fmean, seed=seed) if differences else None


def bootstrap(values: Sequence[float], statistic: Callable[[Sequence[float]], float], *, seed: int = 0) -> Estimate:
    """A statistic of ``values`` (one for each task, at least one) with its percentile-bootstrap interval."""
    draw = random.Random(seed)
    drawn = sorted(statistic(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES))
    return Estimate(
        value=statistic(values),
        low=drawn[int(_TAIL * _RESAMPLES)],
        high=drawn[int((1 - _TAIL) * _RESAMPLES) - 1],
        tasks=len(values),
    )
