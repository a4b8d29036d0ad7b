"""``patchgym rollout``: trajectories of a policy on a task set."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click
from pydantic import JsonValue

from patchgym.cli.asked import Asked, policy_options
from patchgym.cli.console import number, say, show_json, show_line, show_table
from patchgym.cli.workshop import check_sandbox, chosen_tasks, collect, make_manifest, opened_run, sandboxes
from patchgym.records import Task
from patchgym.rollout import Collector, Phase, PolicySource, RunCounts, count_run, open_policy
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet

PHASE = "rollout"
_T = TypeVar("_T")


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@policy_options(split="all", temperature=1.0)
def command(taskset: Path, asked: Asked) -> None:
    """Let a policy work on tasks and keep every trajectory, graded and rewarded.

    A run that was interrupted goes on with the same command.
    """
    tasks = TaskSet.load(taskset)
    counts = rollout(tasks, chosen_tasks(tasks, asked.split, asked.ids), asked)
    if asked.as_json:
        show_json(counts)
    else:
        show_counts(counts)
        show_line(f"\nThe run is in {asked.out}.")
    sys.exit(1 if counts.infra_error * 20 > counts.trajectories else 0)


def rollout(tasks: TaskSet, chosen: tuple[Task, ...], asked: Asked) -> RunCounts:
    """Collect the samples of each chosen task into the run directory that is asked for, and count them.

    Raises:
        PatchgymError: the policy, the sandbox or the run directory cannot be had.
    """

    def work(collector: Collector, run: RunDirectory, source: PolicySource) -> RunCounts:
        phase = Phase(PHASE, chosen, asked.samples)
        return count_run(collect("Rollouts", collector, run, phase, source, asked.settings))

    return with_collector("rollout", asked.config(), tasks, chosen, asked, work)


def with_collector(
    name: str,
    config: dict[str, JsonValue],
    tasks: TaskSet,
    chosen: tuple[Task, ...],
    asked: Asked,
    work: Callable[[Collector, RunDirectory, PolicySource], _T],
) -> _T:
    """Open the policy, the run and its sandboxes, and let ``work`` collect with them.

    Raises:
        PatchgymError: one of them cannot be had.
    """
    check_sandbox()
    source = open_policy(asked.policy, asked.options)
    try:
        asyncio.run(source.check())
        manifest = make_manifest(name, config, chosen, asked.seed)
        with opened_run(asked.out, manifest, chosen, tasks) as run, sandboxes(run.objects) as factory:
            for problem in run.problems:
                say(f"  {problem}")
            return work(Collector(run, factory, build_environment, asked.rewards, asked.seed), run, source)
    finally:
        asyncio.run(source.close())


def show_counts(counts: RunCounts) -> None:
    """The counts as a table."""
    verdicts = ("resolved", "unresolved", "tampered", "invalid", "timeout", "infra_error")
    rows = [(name, str(getattr(counts, name))) for name in ("tasks", "trajectories", *verdicts, "submitted", "steps")]
    rows += [("mean reward", number(counts.mean_reward)), ("valid actions", number(counts.valid_action_rate))]
    show_table("Trajectories", ("", "count"), rows)
