"""Does it learn? A recipe with several seeds, and what came of them together.

Each seed is one ``patchgym loop`` in a folder of its own: warm start, rounds of reinforcement learning, and the same
held-out tasks before, after the warm start and after the rounds. What is done stays: the same command goes on where it
was interrupted, and with ``--only-pool`` it tells what there is. Then all seeds are pooled (``pooling.py``) and told as
tables, or with ``--json`` as one document.

    patchgym tasks build --recipe cpu_smollm2 --out tasks
    patchgym tasks build --recipe cpu_commits --out commits
    python benchmarks/learn.py --tasks tasks --commits commits --seeds 1 2 3 --out runs/learn
    python benchmarks/learn.py --tiny --seeds 1 --out runs/tiny

``--commits`` holds out, beside the recipe's own, the tasks of a set that people made by fixing something, as far as
their packages are not trained on. ``--tiny`` makes a model and tasks on the spot (``lesson.py``, recipe ``cpu_tiny``).
Other keys of the recipe: ``--set KEY=VALUE``.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore, publish_directory
from patchgym.errors import PatchgymError
from patchgym.records import Task, TaskSetManifest
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_task
from patchgym.store.jsonl import append_line, read_lines
from patchgym.store.whole import beside
from patchgym.tasks import TaskSet
from patchgym.tasks.taskset import write_task_set
from pooling import pool, tables

NATURAL = ("git", "release_pair")
DONE = "eval-final"
TRIES = "tries.jsonl"


def main() -> int:
    """Run what is not done, and tell what came."""
    asked = arguments()
    asked.out.mkdir(parents=True, exist_ok=True)
    overrides: list[str] = asked.overrides
    tasks, recipe = asked.tasks, asked.recipe
    if asked.tiny:
        tasks, recipe, model = asked.out / "tasks", "cpu_tiny", asked.out / "model"
        if not model.is_dir():
            from lesson import make_model, make_tasks  # they load torch

            publish_directory(tasks, make_tasks)
            publish_directory(model, lambda folder: make_model(folder, TaskSet.load(asked.out / "tasks").tasks))
        overrides = [f"policy=local:{model.resolve()}", *overrides]
    if asked.commits:
        tasks = joined(tasks, asked.commits, asked.out / "tasks-and-commits")
    for number, seed in enumerate(asked.seeds if not asked.only_pool else [], start=1):
        code = run_seed(seed, recipe, tasks, asked.out, overrides)
        if code:
            return code
        say_left(asked.out, number, asked.seeds)
    there = [seed for seed in asked.seeds if (seed_folder(asked.out, seed) / "run.json").is_file()]
    if not there:
        print(f"There is no run in {asked.out}.", file=sys.stderr)
        return 2
    told = {
        "recipe": recipe,
        "machine": {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()},
        **pool({seed: RunDirectory.read(seed_folder(asked.out, seed)) for seed in there}),
        "time": {str(seed): spent(asked.out, seed) for seed in there},
    }
    print(json.dumps(told, indent=1) if asked.json else tables(told))
    return 0


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--recipe", default="cpu_smollm2", help="An embedded recipe or a .toml file.")
    parser.add_argument("--tasks", type=Path, help="The task set. [the recipe's own, built once into the cache]")
    parser.add_argument("--commits", type=Path, help="A task set whose natural fixes are held out besides.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("runs/learn"))
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--tiny", action="store_true", help="A lesson of minutes, made on the spot.")
    parser.add_argument("--only-pool", action="store_true", help="Run nothing; tell what there is.")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if asked.commits and not asked.tasks:
        parser.error("--commits needs --tasks: the two sets are joined")
    return asked


def seed_folder(out: Path, seed: int) -> Path:
    """Where the run of a seed is."""
    return out / f"seed-{seed}"


def run_seed(seed: int, recipe: str, tasks: Path | None, out: Path, overrides: list[str]) -> int:
    """Run a seed as far as it is not done; 0, or the exit code of a loop that did not come to its end."""
    folder = seed_folder(out, seed)
    if is_done(folder):
        return 0
    settings = [f"seed={seed}", f"warm_start.seed={seed}", f"grpo.seed={seed}", *overrides]
    command = [sys.executable, "-m", "patchgym", "loop", recipe, "--out", str(folder), "--yes", "--json"]
    command += ["--tasks", str(tasks)] if tasks is not None else []
    command += [part for setting in settings for part in ("--set", setting)]
    began, cpu = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    append_line(out / TRIES, json.dumps({"seed": seed, "began": began}))
    print(f"Seed {seed}: {' '.join(command[1:])}", file=sys.stderr)
    loop = subprocess.Popen(command, stdout=subprocess.DEVNULL)  # progress goes to standard error
    try:
        code = loop.wait()
    except KeyboardInterrupt:  # the loop heard it as well, and cleans up
        loop.wait()
        raise
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_seconds = used.ru_utime + used.ru_stime - cpu.ru_utime - cpu.ru_stime
    append_line(out / TRIES, json.dumps({"seed": seed, "began": began, "ended": time.time(), "cpu": cpu_seconds}))
    return 0 if is_done(folder) else code or 1


def is_done(folder: Path) -> bool:
    """Whether the last evaluation of a run was made; a loop whose checks find something broken has made it, too."""
    return (folder / "report.json").is_file() and DONE in RunDirectory.read(folder).evaluations()


def spent(out: Path, seed: int) -> dict[str, float | int] | None:
    """Wall minutes of a seed over all its tries, and the CPU minutes of its loop's own process and those that it waited
    for, of the tries that came to their end. A try that was killed ended with the last file that it wrote. None where
    no try is on record."""
    tries: dict[float, dict[str, float]] = {}
    for _, line in read_lines(out / TRIES):
        row = json.loads(line)
        if row["seed"] == seed:
            tries.setdefault(row["began"], {}).update(row)
    if not tries:
        return None
    begins = sorted(tries)
    last = max(path.stat().st_mtime for path in seed_folder(out, seed).iterdir())
    latest = [min(last, after) for after in begins[1:]] + [last]
    seconds = [max(0.0, tries[began].get("ended", end) - began) for began, end in zip(begins, latest, strict=True)]
    cpu = sum(row.get("cpu", 0.0) for row in tries.values())
    return {"minutes": round(sum(seconds) / 60, 1), "cpu_minutes": round(cpu / 60, 1), "tries": len(tries)}


def say_left(out: Path, done: int, seeds: list[int]) -> None:
    """How long the seeds so far took, and what is left at that pace."""
    known = [time["minutes"] for time in (spent(out, seed) for seed in seeds[:done]) if time is not None]
    if known:
        left = (len(seeds) - done) * sum(known) / len(known)
        print(f"Seed {seeds[done - 1]} is done; {left:.0f} min left for the others.", file=sys.stderr)


def joined(tasks: Path, commits: Path, out: Path) -> Path:
    """The task set with natural tasks of another held out besides: those of packages that it does not train on."""
    if (out / "taskset.json").is_file():
        return out
    first, second = TaskSet.load(tasks), TaskSet.load(commits)
    trained = {task.source.repo for task in first.split("train")}
    known = {task.id for task in first.tasks}
    natural = [
        task.model_copy(update={"split": "heldout"})
        for task in second.tasks
        if task.source.kind in NATURAL and task.source.repo not in trained and task.id not in known
    ]
    tasks_of_both: list[Task] = [*first.tasks, *natural]
    made: dict[str, Any] = {"name": "learn", "recipe": first.manifest.recipe, "funnel": first.manifest.funnel}
    with beside(out) as scratch:
        objects = ObjectStore(scratch / "objects", beneath=first.objects)
        for task in natural:
            copy_task(task, second.objects, objects)
        (scratch / "set").mkdir()
        manifest = TaskSetManifest(**made, created_at=datetime.now(UTC))
        write_task_set(scratch / "set", manifest, tasks_of_both, objects)
        (scratch / "set").rename(out)
    return out


if __name__ == "__main__":
    try:
        sys.exit(main())
    except PatchgymError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
