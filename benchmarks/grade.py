"""What grading adds to a bare run of the tests.

Prints one JSON document: for each task the bare run (pytest by hand: the same test files, in the same kind of fresh
sandbox, on the same tree) and the whole grading of the gold patch with all layers, interleaved, medians in
milliseconds; what is added, as milliseconds and as a share; and how that holds by the length of the suite. The floor is
the bare run itself.

    python benchmarks/grade.py SET [--tasks 6] [--runs 5] [--without watch --without canaries]

``SET`` is a task set (``patchgym tasks build --out SET``).
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from pathlib import Path
from statistics import median

from patchgym.content import ObjectStore
from patchgym.grading import ALL_LAYERS, Grader, Layer, graded_tree
from patchgym.records import Task, Verdict
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.store.copying import copy_task
from patchgym.tasks import TaskSet
from patchgym.testrun import built_environment, function_of, sandbox_spec

LONG_MS = 2000.0
MOST_SHARE, MOST_MS = 0.30, 300.0


async def bare(factory: NamespaceSandboxes, objects: ObjectStore, task: Task) -> float:
    """Milliseconds of pytest by hand on the solved tree, from a fresh sandbox to its end."""
    tree, _ = graded_tree(objects, task, task.gold_patch)
    built = await built_environment(task.environment, build_environment)
    files = sorted({function_of(test)[0] for test in (*task.tests.fail_to_pass, *task.tests.pass_to_pass)})
    began = time.perf_counter()
    sandbox = await factory.create(sandbox_spec(tree, task.environment, built, base=task.workspace))
    try:
        command = ["python", "-s", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short"]
        done = await sandbox.exec([*command, *files], timeout_s=task.tests.timeout_s * 4)
        assert done.exit_code in (0, 1), done.stderr[-500:]
    finally:
        await sandbox.close()
    return (time.perf_counter() - began) * 1000


async def whole(grader: Grader, task: Task) -> float:
    """Milliseconds of a grading of the gold patch, which must be resolved."""
    began = time.perf_counter()
    report = await grader.grade(task, task.gold_patch)
    assert report.verdict is Verdict.RESOLVED, report.why
    return (time.perf_counter() - began) * 1000


async def measure(
    tasks: list[Task], objects: ObjectStore, layers: frozenset[Layer], runs: int
) -> list[dict[str, str | float | int]]:
    """Every task's figures."""
    factory = NamespaceSandboxes(objects)
    grader = Grader(factory, objects, build_environment, layers=layers)
    rows: list[dict[str, str | float | int]] = []
    for task in tasks:
        await bare(factory, objects, task)
        await whole(grader, task)
        pairs = [(await bare(factory, objects, task), await whole(grader, task)) for _ in range(runs)]
        floor, ours = (median(side) for side in zip(*pairs, strict=True))
        added = median(one - other for other, one in pairs)
        rows.append(
            {
                "task": task.id,
                "tests": len(task.tests.fail_to_pass) + len(task.tests.pass_to_pass),
                "bare_ms": round(floor),
                "graded_ms": round(ours),
                "added_ms": round(added),
                "added_share": round(added / floor, 3),
            }
        )
    factory.close()
    return rows


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset", type=Path)
    parser.add_argument("--tasks", type=int, default=6, help="on how many tasks, spread evenly over the set (0: all)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--without", action="append", default=[], choices=[str(layer) for layer in Layer])
    options = parser.parse_args()
    found = TaskSet.load(options.taskset)
    wanted = min(options.tasks, len(found.tasks)) or len(found.tasks)
    tasks = [found.tasks[number * len(found.tasks) // wanted] for number in range(wanted)]
    layers = ALL_LAYERS - {Layer(name) for name in options.without}
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        objects = ObjectStore(Path(folder) / "objects")
        for task in tasks:
            copy_task(task, found.objects, objects)
        rows = asyncio.run(measure(tasks, objects, layers, options.runs))
    long = [row for row in rows if float(row["bare_ms"]) > LONG_MS]
    short = [row for row in rows if float(row["bare_ms"]) <= LONG_MS]
    print(
        json.dumps(
            {
                "layers": sorted(layers),
                "runs": options.runs,
                "tasks": rows,
                "over_2_s": {
                    "tasks": len(long),
                    "added_share": median(float(row["added_share"]) for row in long) if long else None,
                    "at_most": MOST_SHARE,
                },
                "up_to_2_s": {
                    "tasks": len(short),
                    "added_ms": median(float(row["added_ms"]) for row in short) if short else None,
                    "at_most": MOST_MS,
                },
                "machine": {
                    "cores": os.cpu_count(),
                    "load": [round(load, 2) for load in os.getloadavg()],
                    "kernel": platform.release(),
                    "python": platform.python_version(),
                },
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
