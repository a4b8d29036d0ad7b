"""Patches of a run graded again: what differs then is grading's, not the policy's."""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

from patchgym.diagnose.variance import Grading, recorded_grading
from patchgym.grading import Grader
from patchgym.records import Task, Trajectory

TIMES = 2
"""How often a patch is graded again. With the recorded grading that makes three: a test that fails every other time
stays unseen in one patch of four, and in all of five patches one time in a thousand."""


def to_regrade(trajectories: Iterable[Trajectory], count: int) -> list[Trajectory]:
    """Up to ``count`` trajectories with different patches, turn by turn through the tasks."""
    tasks: dict[str, dict[str, Trajectory]] = {}
    for one in trajectories:
        made = recorded_grading(one)
        if made is not None:
            tasks.setdefault(one.task_id, {}).setdefault(made.patch, one)
    turns = [list(patches.values()) for _, patches in sorted(tasks.items())]
    longest = max(map(len, turns), default=0)
    ordered = [patches[turn] for turn in range(longest) for patches in turns if turn < len(patches)]
    return ordered[:count]


async def graded_again(
    grader: Grader,
    tasks: Mapping[str, Task],
    chosen: Sequence[Trajectory],
    on_graded: Callable[[int], None] = lambda done: None,
) -> list[Grading]:
    """Further gradings of the patches of ``chosen``, ``TIMES`` of each; what infrastructure failed at is left out.

    Raises:
        DataError, EnvironmentBuildError, PrerequisiteError: as ``Grader.grade``.
    """
    slots = asyncio.Semaphore(len(os.sched_getaffinity(0)))
    found: list[Grading] = []
    done = 0

    async def one(trajectory: Trajectory) -> None:
        nonlocal done
        async with slots:
            report = await grader.grade(tasks[trajectory.task_id], trajectory.final_patch or "")
        made = recorded_grading(trajectory.model_copy(update={"report": report}))
        found.extend([made] if made is not None else [])
        done += 1
        on_graded(done)

    try:
        async with asyncio.TaskGroup() as group:
            for trajectory in chosen:
                for _ in range(TIMES):
                    group.create_task(one(trajectory))
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found
