"""Tree search against repeated sampling, for the same budget: different states reached, tasks solved.

Each strategy gets the same number of turns a task as repeated sampling takes (or, with a model that counts tokens, the
same number of sampled tokens). Prints one JSON document: for each way, over all tasks, different workspace states a
task, the share of tasks with a solution, turns and tokens spent, and seconds; and how many steps were run again (none
is by a tree: it forks).

    python benchmarks/tree.py SET [--policy noisy:0.7] [--tasks 12] [--turns 60] [--tokens 0]

``SET`` is a task set. The noisy policy needs no model; ``local:smollm2`` is one.
"""

import argparse
import asyncio
import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchgym.cli.workshop import copy_task_objects
from patchgym.records import RunManifest, Step, Task, Trajectory, Verdict
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, PolicySource, RolloutSettings, open_policy
from patchgym.rollout.strategies import STRATEGIES, SearchSettings
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet

SETTINGS = RolloutSettings(concurrency=8, max_tokens=160)


def opened(path: Path, tasks: Sequence[Task], found: TaskSet) -> RunDirectory:
    """A run directory for one way of collecting."""
    manifest = RunManifest.model_validate(
        {
            "id": path.name,
            "command": "benchmark",
            "config": {},
            "versions": {},
            "task_hashes": {},
            "seed": 0,
            "created_at": "2026-01-01T00:00:00Z",
        }
    )
    run = RunDirectory.open_for_writing(path, manifest)
    copy_task_objects(tasks, found.objects, run.objects)
    return run


def told(steps: dict[str, list[Step]], solved: set[str], tasks: int, seconds: float) -> dict[str, Any]:
    """What one way came to; ``steps`` are those of each task."""
    states = [len({step.state_after for step in taken}) for taken in steps.values()]
    return {
        "states_a_task": round(sum(states) / tasks, 2),
        "solved": round(len(solved) / tasks, 3),
        "turns_a_task": round(sum(map(len, steps.values())) / tasks, 1),
        "tokens_a_task": round(sum(s.usage.sampled_tokens for t in steps.values() for s in t if s.usage) / tasks, 1),
        "seconds_a_task": round(seconds / tasks, 2),
    }


def within(trajectories: Sequence[Trajectory], turns: int, tokens: int) -> list[Trajectory]:
    """The first trajectories that the budget pays for: those that begin before it is spent."""
    kept: list[Trajectory] = []
    spent = sampled = 0
    for one in trajectories:
        if (turns and spent >= turns) or (tokens and sampled >= tokens):
            break
        kept.append(one)
        spent += len(one.steps)
        sampled += sum(step.usage.sampled_tokens for step in one.steps if step.usage)
    return kept


async def repeated(
    folder: Path, found: TaskSet, tasks: Sequence[Task], source: PolicySource, turns: int, tokens: int, samples: int
) -> dict[str, Any]:
    """Samples, one after another, until the budget is spent."""
    run = opened(folder / "repeated", tasks, found)
    factory = NamespaceSandboxes(run.objects)
    collector = Collector(run, factory, build_environment, RewardSettings(), 1)
    began = time.monotonic()
    made = await collector.collect(Phase("r", tasks, samples), source, SETTINGS)
    seconds = time.monotonic() - began
    factory.close()
    run.close()
    steps: dict[str, list[Step]] = {task.id: [] for task in tasks}
    solved = set()
    paid = every = 0
    for task in tasks:
        mine = [one for one in made if one.task_id == task.id]
        kept = within(mine, turns, tokens)
        paid, every = paid + sum(len(one.steps) for one in kept), every + sum(len(one.steps) for one in mine)
        steps[task.id] = [step for one in kept for step in one.steps]
        if any(one.report is not None and one.report.verdict is Verdict.RESOLVED for one in kept):
            solved.add(task.id)
    return told(steps, solved, len(tasks), seconds * paid / max(1, every))


async def by_tree(
    strategy: str, folder: Path, found: TaskSet, tasks: Sequence[Task], source: PolicySource, turns: int, tokens: int
) -> dict[str, Any]:
    """One tree a task, within the budget."""
    run = opened(folder / strategy, tasks, found)
    factory = NamespaceSandboxes(run.objects)
    collector = Collector(run, factory, build_environment, RewardSettings(), 1)
    search = SearchSettings.model_validate({"strategy": strategy, "nodes": turns, "tokens": tokens, "branches": 3})
    began = time.monotonic()
    trees = await collector.search(Phase("s", tasks, 1), source, SETTINGS, search)
    seconds = time.monotonic() - began
    factory.close()
    run.close()
    steps = {tree.task_id: [node.step for node in tree.nodes] for tree in trees}
    solved = {
        tree.task_id
        for tree in trees
        if any(leaf.report is not None and leaf.report.verdict is Verdict.RESOLVED for leaf in tree.leaves)
    }
    return told(steps, solved, len(tasks), seconds)


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Every way on the same tasks with the same policy."""
    found = TaskSet.load(options.taskset)
    count = min(options.tasks, len(found.tasks))
    tasks = [found.tasks[number * len(found.tasks) // count] for number in range(count)]
    source = open_policy(options.policy, PolicyOptions(batch=8))
    ways = {"repeated": await repeated(folder, found, tasks, source, options.turns, options.tokens, options.samples)}
    for strategy in STRATEGIES:
        ways[strategy] = await by_tree(strategy, folder, found, tasks, source, options.turns, options.tokens)
    await source.close()
    return {"tasks": count, "policy": options.policy, "turns": options.turns, "tokens": options.tokens, "ways": ways}


def main() -> None:
    """Parse the command line, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("taskset", type=Path)
    parser.add_argument("--policy", default="noisy:0.7")
    parser.add_argument("--tasks", type=int, default=12)
    parser.add_argument("--turns", type=int, default=60, help="turns a task (0: no limit)")
    parser.add_argument("--tokens", type=int, default=0, help="sampled tokens a task (0: no limit)")
    parser.add_argument("--samples", type=int, default=12, help="how many samples of a task may be tried")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        found = asyncio.run(measure(options, Path(scratch)))
    machine = {"cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    print(json.dumps({**found, "machine": machine}, indent=2))


if __name__ == "__main__":
    main()
