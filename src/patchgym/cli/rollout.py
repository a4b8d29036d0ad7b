"""``patchgym rollout``: trajectories of a policy on a task set."""

import asyncio
import sys
from pathlib import Path

import click
from pydantic import JsonValue

from patchgym.cli.console import number, say, show_json, show_line, show_table
from patchgym.cli.workshop import (
    check_sandbox,
    chosen_tasks,
    collect,
    make_manifest,
    opened_run,
    policy_options,
    sandboxes,
)
from patchgym.records import Task
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, RunCounts, count_run, open_policy
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet

PHASE = "rollout"


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@policy_options(split="all", temperature=1.0)
def command(
    taskset: Path,
    policy: str,
    out: Path,
    samples: int,
    split: str,
    ids: tuple[str, ...],
    concurrency: int,
    temperature: float,
    max_tokens: int,
    seed: int,
    base_url: str | None,
    protocol: str,
    as_json: bool,
) -> None:
    """Let a policy work on tasks and keep every trajectory, graded and rewarded.

    A run that was interrupted goes on with the same command.
    """
    tasks = TaskSet.load(taskset)
    settings = RolloutSettings(concurrency=concurrency, temperature=temperature, max_tokens=max_tokens)
    options = PolicyOptions(base_url=base_url, native_tools=protocol == "native", batch=concurrency)
    chosen = chosen_tasks(tasks, split, ids)
    counts = rollout(tasks, chosen, policy, options, settings, samples, seed, out)
    if as_json:
        show_json(counts)
    else:
        show_counts(counts)
        show_line(f"\nThe run is in {out}.")
    sys.exit(1 if counts.infra_error * 20 > counts.trajectories else 0)


def rollout(
    tasks: TaskSet,
    chosen: tuple[Task, ...],
    policy: str,
    options: PolicyOptions,
    settings: RolloutSettings,
    samples: int,
    seed: int,
    out: Path,
) -> RunCounts:
    """Collect ``samples`` trajectories of each chosen task into the run directory ``out``, and count them.

    Raises:
        PatchgymError: the policy, the sandbox or the run directory cannot be had.
    """
    config: dict[str, JsonValue] = {
        "policy": policy,
        "samples": samples,
        "base_url": options.base_url,
        "native_tools": options.native_tools,
        "rollout": settings.model_dump(mode="json"),
    }
    check_sandbox()
    source = open_policy(policy, options)
    try:
        asyncio.run(source.check())
        manifest = make_manifest("rollout", config, chosen, seed)
        with opened_run(out, manifest, chosen, tasks) as run, sandboxes(run.objects) as factory:
            for problem in run.problems:
                say(f"  {problem}")
            collector = Collector(run, factory, build_environment, RewardSettings(), seed)
            return count_run(collect("Rollouts", collector, run, Phase(PHASE, chosen, samples), source, settings))
    finally:
        asyncio.run(source.close())


def show_counts(counts: RunCounts) -> None:
    """The counts as a table."""
    verdicts = ("resolved", "unresolved", "tampered", "invalid", "timeout", "infra_error")
    rows = [(name, str(getattr(counts, name))) for name in ("tasks", "trajectories", *verdicts, "submitted", "steps")]
    rows += [("mean reward", number(counts.mean_reward)), ("valid actions", number(counts.valid_action_rate))]
    show_table("Trajectories", ("", "count"), rows)
