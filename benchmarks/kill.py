"""Killing a collection at random instants: is anything lost, doubled or broken?

``patchgym rollout`` collects with the noisy policy and is killed with SIGKILL again and again, each time going on where
it was. Every finished run is then held against one that was never killed: the same trajectories, each once, with the
same actions, states and verdicts; no line that cannot be read; every object of the store whole (``git fsck``); nothing
left in the scratch folders. Prints one JSON document.

    python benchmarks/kill.py SET [--kills 200] [--tasks 6] [--samples 4]

``SET`` is a task set; its first tasks with the quickest tests are taken.
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from patchgym.records import Task, Trajectory
from patchgym.sandbox.scratch import folders
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet

Shape = tuple[object, ...]


def command(taskset: Path, tasks: list[Task], samples: int, out: Path) -> list[str]:
    """The collection that is killed."""
    chosen = [part for task in tasks for part in ("--task", task.id)]
    line = [sys.executable, "-m", "patchgym", "rollout", str(taskset), "--policy", "noisy:0.6", "--out", str(out)]
    return [*line, "--samples", str(samples), "--concurrency", "4", "--json", *chosen]


def shape(trajectory: Trajectory) -> Shape:
    """What must come out the same however often a run was killed."""
    steps = tuple((step.message.content, step.state_before) for step in trajectory.steps)
    verdict = trajectory.report.verdict if trajectory.report else None
    return steps, trajectory.final_patch, trajectory.stop, verdict


def shapes(run: Path) -> tuple[dict[str, Shape], int, list[str]]:
    """Every trajectory's shape, how many lines there are, and what could not be read."""
    found = RunDirectory.read(run)
    lines = (run / "trajectories.jsonl").read_bytes().count(b"\n")
    return {one.id: shape(one) for one in found.trajectories}, lines, found.problems


def broken_objects(run: Path, folder: Path) -> int:
    """How many objects of a run's store git finds broken, or missing below a recorded state."""
    bare = folder / "fsck.git"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    (bare / "objects" / "info" / "alternates").write_text(f"{(run / 'objects').absolute()}\n")
    done = subprocess.run(
        ["git", "--git-dir", str(bare), "fsck", "--full", "--no-dangling", "--no-progress"],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if "error" in line or "missing" in line]
    objects = RunDirectory.read(run).objects
    for trajectory in RunDirectory.read(run).trajectories:
        for step in trajectory.steps:
            for state in {step.state_before, step.state_after} - {None}:
                assert state is not None
                for entry in objects.entries(state).values():
                    objects.get(entry.id)
    subprocess.run(["rm", "-rf", str(bare)], check=True)
    return len(lines)


def left_behind() -> int:
    """Scratch folders whose owner is gone."""
    names = [place.name for parent in folders() for place in parent.glob("patchgym-[0-9]*")]
    return sum(not Path("/proc", name.split("-")[1]).exists() for name in names)


def killed_until_done(line: list[str], kills: int, seconds: float, dice: random.Random, log: Path) -> int:
    """Run a command to its end, killing it at random instants at most ``kills`` times; how often it was killed. ``log``
    is where it says what it does."""
    killed = 0
    while True:
        with log.open("ab") as said:
            child = subprocess.Popen(line, stdout=said, stderr=said, start_new_session=True)
        try:
            child.wait(timeout=dice.uniform(0.05, seconds) if killed < kills else None)
        except subprocess.TimeoutExpired:
            os.kill(child.pid, signal.SIGKILL)
            child.wait()
            killed += 1
        else:
            if child.returncode:
                sys.exit(f"It ended with {child.returncode}:\n{log.read_text(errors='replace')[-3000:]}")
            return killed


def main() -> None:
    """Parse the command line, kill, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--tasks", type=int, default=6)
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    found = TaskSet.load(options.taskset)
    quickest = sorted(found.tasks, key=lambda task: task.validation.test_seconds if task.validation else 1e9)
    tasks = quickest[: options.tasks]
    dice = random.Random(options.seed)
    counts = {"kills": 0, "runs": 0, "trajectories": 0, "lost": 0, "doubled": 0, "changed": 0, "unreadable": 0}
    counts["broken_objects"] = counts["left_behind"] = 0
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder = Path(scratch)
        began = time.monotonic()
        subprocess.run(
            command(options.taskset, tasks, options.samples, folder / "whole"), check=True, stdout=subprocess.DEVNULL
        )
        seconds = time.monotonic() - began
        wanted, _, _ = shapes(folder / "whole")
        while counts["kills"] < options.kills:
            run = folder / f"run{counts['runs']}"
            line = command(options.taskset, tasks, options.samples, run)
            counts["kills"] += killed_until_done(
                line, options.kills - counts["kills"], seconds / 2, dice, folder / "log"
            )
            have, lines, problems = shapes(run)
            counts["runs"] += 1
            counts["trajectories"] += len(have)
            counts["lost"] += len(wanted.keys() - have.keys())
            counts["doubled"] += lines - len(have)
            counts["changed"] += sum(have[name] != wanted[name] for name in have.keys() & wanted.keys())
            counts["unreadable"] += len(problems)
            counts["broken_objects"] += broken_objects(run, folder)
        counts["left_behind"] = left_behind()
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    print(json.dumps({**counts, "seconds_unkilled": round(seconds, 1), "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
