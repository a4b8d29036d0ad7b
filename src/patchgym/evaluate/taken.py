"""Attempts that were made elsewhere, taken in: graded here, on the task that they are at."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.evaluate.belonging import Belonging, NoAttempt
from patchgym.grading import GRADER_VERSION, Grader
from patchgym.records import Environment, Fault, Task, Trajectory, Verdict
from patchgym.reward import RewardSettings, score_patch
from patchgym.reward.hacks import attempt_of, find_hacks
from patchgym.sandbox import SandboxFactory


class Taking:
    """What was taken in, and what not. ``left_out`` counts by the reason, ``own`` are attempts that their task was made
    of, ``without_patch`` those that hold no patch to grade."""

    def __init__(self, tasks: Iterable[Task], chosen: Iterable[Task], phase: str) -> None:
        self.left_out: dict[NoAttempt, int] = {}
        self.own: list[str] = []
        self.without_patch: list[str] = []
        self._belonging = Belonging(tasks, chosen)
        self._phase = phase
        self._samples: dict[str, int] = {}

    def attempts(self, trajectories: Iterable[Trajectory]) -> Iterator[tuple[Trajectory, Task]]:
        """Those of ``trajectories`` that are attempts, each with its task and numbered among the attempts at that, not
        graded yet. The same ones in the same order come out the same."""
        for trajectory in trajectories:
            found = self._belonging.of(trajectory)
            if isinstance(found, NoAttempt):
                self.left_out[found] = self.left_out.get(found, 0) + 1
                continue
            task = found.task
            number = self._samples[task.id] = self._samples.get(task.id, -1) + 1
            self.own += [trajectory.id] if found.own else []
            self.without_patch += [trajectory.id] if trajectory.final_patch is None else []
            update = {
                "phase": self._phase,
                "task_id": task.id,
                "group_id": f"{self._phase}/{task.id}",
                "sample_index": number,
                "tree_id": None,
            }
            yield trajectory.model_copy(update=update), task

    def notes(self) -> list[str]:
        """What a person has to know of it."""
        found = [f"Left out, {count}: trajectories that {reason.value}." for reason, count in self.left_out.items()]
        if self.own:
            found.append(
                f"{len(self.own)} attempts are the sessions that their tasks were made of: what they came to is the "
                f"solution, first {self.own[0]}."
            )
        if self.without_patch:
            found.append(
                f"{len(self.without_patch)} attempts hold no patch that could be graded, first "
                f"{self.without_patch[0]}: patchgym replay RUN --repos DIR --out RUN2 makes patches of what was done."
            )
        return found


class Judge:
    """Grades attempts that were made elsewhere, in fresh sandboxes with pristine tests. ``objects`` must hold the
    tasks' trees, and ``factory`` make its sandboxes from that store."""

    def __init__(self, factory: SandboxFactory, objects: ObjectStore, build: Callable[[Environment], Path]) -> None:
        self._grader = Grader(factory, objects, build)
        self._objects = objects

    async def judged(self, trajectory: Trajectory, task: Task, rewards: RewardSettings) -> Trajectory:
        """The attempt with a verdict and a reward. One that this grader judged on this very task keeps its own; one
        without a patch keeps what its log says, if it says anything; one that infrastructure lost stays lost.

        Raises:
            DataError, EnvironmentBuildError, PrerequisiteError: as ``Grader.grade``.
        """
        known = task.content_hash()
        graded_here = trajectory.report is not None and trajectory.report.grader_version == GRADER_VERSION
        if trajectory.final_patch is None or trajectory.faults or (graded_here and trajectory.task_hash == known):
            return trajectory.model_copy(update={"task_hash": known})
        started = time.monotonic()
        report = await self._grader.grade(task, trajectory.final_patch)
        faults, reward = trajectory.faults, None
        if report.verdict is Verdict.INFRA_ERROR:
            faults = (*faults, Fault(kind="SandboxError", where="grading", message=report.why))
        else:
            looked = attempt_of(task, self._objects, trajectory.final_patch, trajectory.steps, report)
            reward = score_patch(task, report, trajectory.steps, trajectory.final_patch, rewards, find_hacks(looked))
        return trajectory.model_copy(
            update={
                "task_hash": known,
                "report": report,
                "reward": reward,
                "faults": faults,
                "status": "infra_error" if faults else "completed",
                "reward_trusted": not faults,
                "in_baseline": not faults,
                "timing": trajectory.timing.model_copy(update={"grading_seconds": time.monotonic() - started}),
            }
        )
