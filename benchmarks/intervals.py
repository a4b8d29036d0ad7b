"""How often an interval of pass@1 holds the truth, and how long it takes to make.

Prints one JSON document. ``coverage``: of evaluations drawn from a known truth, the percentage whose 95% interval holds
it, for our interval, scipy's percentile and bias-corrected (BCa) bootstrap, and Student's interval, by kind of task and
number of tasks. ``seconds``: one interval with 10,000 draws of 500 tasks with 8 samples each, of ours and of scipy's
percentile bootstrap, and the floor: drawing as many tasks and adding them up; medians of interleaved repeats.

    python benchmarks/intervals.py [--runs 400] [--tasks 10 30 100 500]

It needs scipy, which comes with the value extra.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy
from scipy import stats

from patchgym.evaluate.bootstrap import RESAMPLES, mean_estimate

REPEATS = 5
DRAWS = 2000
KINDS = ("one sample", "four samples", "rarely solved", "difference", "difference of alike ones")


def drawn(kind: str, random: numpy.random.Generator, runs: int, tasks: int) -> tuple[Any, float, tuple[float, float]]:
    """What tasks came to in each of ``runs`` evaluations, the true mean, and the bounds of a task."""
    share, difference = (0.0, 1.0), (-1.0, 1.0)
    size = runs, tasks
    if kind == "one sample":
        return (random.random(size) < 0.3).astype(float), 0.3, share
    if kind == "four samples":
        return random.binomial(4, random.beta(0.5, 0.9, size)) / 4, 0.5 / 1.4, share
    if kind == "rarely solved":
        return random.binomial(8, random.beta(0.2, 1.8, size)) / 8, 0.1, share
    if kind == "difference":
        chances = random.beta(0.5, 0.9, size) * 0.9
        return (random.binomial(4, chances + 0.1) - random.binomial(4, chances)) / 4, 0.1, difference
    one = random.random(size)
    return numpy.where(one < 0.1, 1.0, numpy.where(one < 0.17, -1.0, 0.0)), 0.03, difference


def intervals(values: Any, bounds: tuple[float, float], seed: int) -> dict[str, tuple[float, float]]:
    """The interval of each method. Where all tasks came out alike the peers have the point."""
    ours = mean_estimate(list(values), bounds, seed=seed)
    found = {"ours": (ours.low, ours.high)}
    if values.min() == values.max():
        return {**found, **dict.fromkeys(("percentile", "bca", "student"), (values[0], values[0]))}
    for name in ("percentile", "bca"):
        method: Any = "BCa" if name == "bca" else name
        ends = stats.bootstrap((values,), numpy.mean, n_resamples=DRAWS, method=method, rng=seed).confidence_interval
        found[name] = (ends.low, ends.high)
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / len(values) ** 0.5
    found["student"] = (values.mean() - half, values.mean() + half)
    return found


def coverage(kind: str, tasks: int, runs: int) -> dict[str, float]:
    """The percentage of intervals that hold the truth, by method."""
    table, truth, bounds = drawn(kind, numpy.random.default_rng(tasks), runs, tasks)
    hits: dict[str, int] = {}
    for seed, row in enumerate(table):
        for name, (low, high) in intervals(row, bounds, seed).items():
            hits[name] = hits.get(name, 0) + bool(low - 1e-9 <= truth <= high + 1e-9)
    return {name: round(100 * count / runs, 1) for name, count in hits.items()}


def speed() -> dict[str, float]:
    """Median seconds of one interval, by who makes it."""
    values, _, bounds = drawn("rarely solved", numpy.random.default_rng(0), 1, 500)
    row = values[0]
    ways: dict[str, Callable[[], object]] = {
        "ours": lambda: mean_estimate(list(row), bounds),
        "scipy": lambda: stats.bootstrap(
            (row,), numpy.mean, n_resamples=RESAMPLES, method="percentile", rng=1, batch=1000
        ),
        "floor": lambda: row[numpy.random.default_rng(0).integers(0, 500, (RESAMPLES, 500))].mean(axis=1),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(REPEATS):
        for name, work in ways.items():
            clock = time.perf_counter()
            work()
            took[name].append(time.perf_counter() - clock)
    return {name: statistics.median(found) for name, found in took.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--tasks", type=int, nargs="+", default=[10, 30, 100, 500])
    asked = parser.parse_args(arguments)
    seconds = speed()
    print(
        json.dumps(
            {
                "runs": asked.runs,
                "coverage": {
                    kind: {str(tasks): coverage(kind, tasks, asked.runs) for tasks in asked.tasks} for kind in KINDS
                },
                "seconds": {name: round(value, 4) for name, value in seconds.items()},
                "ours_over_scipy": round(seconds["ours"] / seconds["scipy"], 4),
                "ours_over_floor": round(seconds["ours"] / seconds["floor"], 2),
                "python": platform.python_version(),
                "numpy": numpy.__version__,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
