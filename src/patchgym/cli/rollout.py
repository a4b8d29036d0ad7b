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
from patchgym.cli.executing import (
    Afar,
    asked_afar,
    executor_options,
    given_concurrency,
    joined,
    noted,
    redone_and_set_aside,
)
from patchgym.cli.workshop import (
    check_sandbox,
    chosen_kind,
    chosen_tasks,
    collect,
    collect_with,
    make_manifest,
    opened_run,
    sandboxes,
)
from patchgym.executors.crew import Crew
from patchgym.records import Task, Trajectory
from patchgym.rollout import Collector, Phase, PolicySource, RunCounts, count_run, open_policy
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet

PHASE = "rollout"
_T = TypeVar("_T")


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@policy_options(split="all", temperature=1.0)
@executor_options
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
        PatchgymError: the policy, the sandbox, the cluster or the run directory cannot be had.
    """
    afar = asked_afar()
    if afar is not None:
        return _rollout_afar(afar, tasks, chosen, asked)

    def work(collector: Collector, run: RunDirectory, source: PolicySource) -> RunCounts:
        phase = Phase(PHASE, chosen, asked.samples)
        return count_run(collect("Rollouts", collector, run, phase, source, asked.settings))

    return with_collector("rollout", asked.config(), tasks, chosen, asked, work)


def _rollout_afar(afar: Afar, tasks: TaskSet, chosen: tuple[Task, ...], asked: Asked) -> RunCounts:
    """The same on a cluster: nothing is sampled and no sandbox is made here."""
    from patchgym.rollout.sent import attempt_spec

    phase = Phase(PHASE, chosen, asked.samples)
    with joined(afar) as cluster:
        work = attempt_spec(
            PHASE,
            asked.policy,
            asked.options,
            asked.settings,
            asked.rewards,
            asked.seed,
            sandbox=chosen_kind(),
            gpus=float(cluster.gpus() > 0),
        )
        manifest = make_manifest("rollout", asked.config(), chosen, asked.seed)
        with opened_run(asked.out, manifest, chosen, tasks) as run, sandboxes(run.objects) as factory:
            for problem in run.problems:
                say(f"  {problem}")
            collector = Collector(run, factory, build_environment, asked.rewards, asked.seed)

            async def by_crew(final: Callable[[Trajectory], None]) -> list[Trajectory]:
                most = given_concurrency(asked.concurrency)
                async with Crew(
                    cluster, work, run.objects, afar.settings, concurrency=most, on_event=noted(run)
                ) as crew:
                    return await collector.collect_by(crew, phase, asked.policy, final)

            counts = count_run(collect_with("Rollouts", run, phase, by_crew))
            redone, aside = redone_and_set_aside(run)
            return counts.model_copy(update={"redone": redone, "set_aside": aside})


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
    if counts.redone is not None:
        rows += [("done again, a worker was lost", str(counts.redone)), ("set aside", str(counts.set_aside))]
    show_table("Trajectories", ("", "count"), rows)
