"""pass@1, pass@k and differences between policies, with intervals from a bootstrap over tasks."""

from collections.abc import Mapping, Sequence
from math import comb
from statistics import fmean

from patchgym.evaluate.bootstrap import Estimate, mean_estimate, ratio_estimates
from patchgym.records import Record

Solved = Mapping[str, Sequence[bool]]
"""Task ids to whether each of their valid samples solved them."""
_SHARE = (0.0, 1.0)
_DIFFERENCE = (-1.0, 1.0)


class PassAt(Record):
    """pass@k over the tasks that have at least ``k`` valid samples."""

    k: int
    estimate: Estimate


def pass_at_k(samples: int, solved: int, k: int) -> float:
    """The unbiased estimate of the chance that one of ``k`` samples solves a task of which ``solved`` of ``samples``
    did: ``1 - C(n - c, k) / C(n, k)`` (Chen et al. 2021, "Evaluating Large Language Models Trained on Code").

    Raises:
        ValueError: ``k`` is not in 1..samples.
    """
    if not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {samples} samples")
    return 1.0 - comb(samples - solved, k) / comb(samples, k)


def pass_at_1(solved: Solved, *, seed: int = 0) -> Estimate | None:
    """The mean over tasks of the share of samples that solved it; None without tasks."""
    shares = [fmean(outcomes) for outcomes in solved.values() if outcomes]
    return mean_estimate(shares, _SHARE, seed=seed) if shares else None


def pass_at_each(solved: Solved, *, most: int | None = None, seed: int = 0) -> list[PassAt]:
    """pass@k for every k from 1 to the samples of the task that has the most (at most ``most``), all on the same draws
    of tasks. Each rests on the tasks that have ``k`` samples: ``tasks`` says how many."""
    counts = [(len(outcomes), sum(outcomes)) for outcomes in solved.values() if outcomes]
    ks = range(1, min([max((samples for samples, _ in counts), default=0), *([most] if most is not None else [])]) + 1)
    values = [[pass_at_k(n, c, k) if k <= n else 0.0 for k in ks] for n, c in counts]
    known = [[float(k <= n) for k in ks] for n, _ in counts]
    found = ratio_estimates(values, known, _SHARE, seed=seed) if counts else []
    return [PassAt(k=k, estimate=one) for k, one in zip(ks, found, strict=True) if one is not None]


def differences(before: Solved, after: Solved) -> dict[str, float]:
    """By task: the share of samples of ``after`` that solved it less that of ``before``, where both have any."""
    return {task: fmean(after[task]) - fmean(before[task]) for task in before if before[task] and after.get(task)}


def paired_difference(before: Solved, after: Solved, *, seed: int = 0) -> Estimate | None:
    """pass@1 of ``after`` less that of ``before``, over the tasks that both have; None without any."""
    found = list(differences(before, after).values())
    return mean_estimate(found, _DIFFERENCE, seed=seed) if found else None
