"""``patchgym eval --attempts RUN``: attempts of other agents, graded on the tasks that they are at."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

from patchgym.cli.asked import Asked
from patchgym.cli.console import say, stage
from patchgym.cli.rollout import PHASE
from patchgym.cli.workshop import check_sandbox, make_manifest, opened_run, sandboxes
from patchgym.errors import UsageError
from patchgym.evaluate.taken import Judge, Taking
from patchgym.records import Task, Trajectory
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_objects
from patchgym.tasks import TaskSet


def take_attempts(path: Path, tasks: TaskSet, chosen: tuple[Task, ...], asked: Asked) -> list[str]:
    """Write the attempts of the run at ``path`` that are at ``chosen`` tasks into the run that is asked for, graded;
    what there is to know of them. An interrupted one goes on where it was.

    Raises:
        UsageError: there is no run, or no attempt at one of these tasks in it.
        PatchgymError: it cannot be graded on this machine.
    """
    check_sandbox()
    source = RunDirectory.read(path)
    for problem in source.problems:
        say(f"  {problem}")
    taking = Taking(tasks.tasks, chosen, PHASE)
    wanted = [(one.id, task) for one, task in taking.attempts(_light(source))]
    if not wanted:
        told = taking.notes()
        raise UsageError(
            f"No trajectory of {path} is an attempt at a task of {tasks.path}",
            why=" ".join(told[:2]) or "It holds none.",
            mend="A log belongs to a task by the task's id, or by its repository and base commit.",
        )
    used = {task.id: task for _, task in wanted}
    manifest = make_manifest(
        "eval",
        {"attempts": source.manifest.id, "reward": asked.rewards.model_dump(mode="json")},
        [*used.values()],
        asked.seed,
    )
    with opened_run(asked.out, manifest, [*used.values()], tasks) as run, sandboxes(run.objects) as factory:
        judge = Judge(factory, run.objects, build_environment)
        asyncio.run(_grade(source, run, judge, Taking(tasks.tasks, chosen, PHASE), asked, len(wanted)))
    return taking.notes()


def _light(source: RunDirectory) -> Iterator[Trajectory]:
    """The trajectories with their first step alone."""
    return (one.model_copy(update={"steps": one.steps[:1]}) for one in source.trajectories)


async def _grade(
    source: RunDirectory, run: RunDirectory, judge: Judge, taking: Taking, asked: Asked, total: int
) -> None:
    """Grade what the run does not hold yet, a few at a time."""
    have = set(run.ids)
    slots = asyncio.Semaphore(min(asked.concurrency, len(os.sched_getaffinity(0))))
    done = len(have)
    with stage("Grade attempts", total) as shown:

        async def one(trajectory: Trajectory, task: Task) -> None:
            nonlocal done
            try:
                judged = await judge.judged(trajectory, task, asked.rewards)
            finally:
                slots.release()
            copy_objects(judged, source.objects, run.objects)
            run.append(judged)
            done += 1
            shown.update(done, total)

        try:
            async with asyncio.TaskGroup() as group:
                for trajectory, task in taking.attempts(source.trajectories):
                    if trajectory.id not in have:
                        await slots.acquire()  # before the next one is read: no more than these are in memory
                        group.create_task(one(trajectory, task))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
