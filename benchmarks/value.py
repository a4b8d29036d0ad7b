"""How fast a frozen value model scores steps, and how long a fit takes.

Prints one JSON document: steps a second of ours (features and trees in plain Python), of the trees alone, of
scikit-learn's own ``predict_proba`` on the same rows, all at once and row by row as a search asks for them, and the
ratios; all on one thread, medians of interleaved repeats.

    python benchmarks/value.py RUN [RUN ...]

``RUN`` are runs with graded attempts at two tasks or more. It needs the value extra.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from threadpoolctl import threadpool_limits

from patchgym.reward.value import FitSettings, fit, label_paths, step_features
from patchgym.reward.value.fit import _boosted, _stacked, matrix
from patchgym.store import RunDirectory

REPEATS = 7
ROWS = 200


def seconds(work: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    clock = time.perf_counter()
    work()
    return time.perf_counter() - clock


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("runs", nargs="+", type=Path)
    runs = [RunDirectory.read(path) for path in parser.parse_args().runs]
    limits = {name: task.limits for run in runs for name, task in run.tasks().items()}
    paths = label_paths(one for run in runs for one in run.trajectories if one.tree_id is None)
    settings = FitSettings()
    clock = time.perf_counter()
    model = fit(paths, settings, limits).model
    fitting = time.perf_counter() - clock
    rows = [row for path in paths for row in step_features(path.steps, limits.get(path.task_id))]
    theirs = _boosted(_stacked([(step_features(path.steps), path) for path in paths]), settings)
    table, few = matrix(rows), [matrix([row]) for row in rows[:ROWS]]
    ways: dict[str, tuple[int, Callable[[], object]]] = {
        "ours": (len(rows), lambda: [model.values(path.steps, limits.get(path.task_id)) for path in paths]),
        "ours_trees_alone": (len(rows), lambda: [model.calibration.probability(model.raw(row)) for row in rows]),
        "sklearn_at_once": (len(rows), lambda: theirs.predict_proba(table)),
        "sklearn_row_by_row": (len(few), lambda: [theirs.predict_proba(row) for row in few]),
    }
    took: dict[str, list[float]] = {name: [] for name in ways}
    with threadpool_limits(limits=1):
        for _ in range(REPEATS):
            for name, (_, work) in ways.items():
                took[name].append(seconds(work))
    speed = {name: ways[name][0] / statistics.median(found) for name, found in took.items()}
    print(
        json.dumps(
            {
                "attempts": len(paths),
                "steps": len(rows),
                "trees": len(model.trees),
                "fit_seconds": round(fitting, 2),
                "steps_a_second": {name: round(value) for name, value in speed.items()},
                "attempts_a_second": round(speed["ours"] * len(paths) / len(rows)),
                "ratio_to_sklearn_row_by_row": round(speed["ours_trees_alone"] / speed["sklearn_row_by_row"], 2),
                "ratio_to_sklearn_at_once": round(speed["ours_trees_alone"] / speed["sklearn_at_once"], 3),
                "python": platform.python_version(),
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
