"""The workshop that a trainer's episodes run in: task set, run directory, sandboxes, grading.

Every episode, lost ones included, becomes a trajectory of a run directory, so that what a trainer did can be looked at,
replayed and diagnosed like any other run.
"""

import asyncio
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from pydantic import Field

from patchgym.config import Settings
from patchgym.errors import UsageError
from patchgym.policy import Policy
from patchgym.records import Environment, RunManifest, Task, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, RolloutSettings
from patchgym.rollout.shared import Shared
from patchgym.sandbox.environments import build_environment
from patchgym.sandbox.kinds import sandbox_kind
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_task
from patchgym.tasks import TaskSet


class GymSettings(Settings):
    """Where the tasks are and where trajectories go; the kind of sandbox (one that isolates nothing must be called
    ``unsafe``); how often an attempt that infrastructure lost is made again (``retries``); and whether held-out tasks
    may be tried at all (``heldout``: for validation). Temperature and top-p are the trainer's, the rest of ``rollout``
    is as in ``patchgym rollout``."""

    taskset: str
    out: str
    sandbox: str = "namespace"
    unsafe: bool = False
    retries: int = Field(2, ge=0)
    heldout: bool = False
    seed: int = 0
    rollout: RolloutSettings = RolloutSettings()
    rewards: RewardSettings = RewardSettings()


@dataclass(frozen=True)
class Draw:
    """How a trainer wants an episode to be sampled, and whether it is to measure or to learn."""

    temperature: float = 1.0
    top_p: float = 1.0
    phase: Literal["train", "eval"] = "train"
    step: int | None = None

    @property
    def name(self) -> str:
        """The phase of the run that such episodes belong to."""
        return self.phase if self.step is None else f"{self.phase}-{self.step}"


@dataclass(frozen=True)
class _Source:
    """A policy for one episode, as a collector takes it."""

    spec: str
    policy: Policy

    @property
    def version(self) -> str:
        return self.policy.version

    def for_task(self, task: Task, objects: object) -> Policy:
        return self.policy

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Gym:
    """Runs one episode at a time for whoever asks, many of them at once. Close it at the end."""

    def __init__(
        self, settings: GymSettings, *, worker: str = "0", build: Callable[[Environment], Path] = build_environment
    ) -> None:
        """Open everything. A run directory has one writer, so that each process of a trainer is a ``worker`` with its
        own, ``out/worker-NAME``; one that is started again under its name goes on with it.

        Raises:
            UsageError: there is no such task set or kind of sandbox, or another process writes to that directory.
            ConfigError: the directory holds a run with other settings.
            PrerequisiteError: this machine cannot make the sandboxes.
            DataError: the task set or the directory is damaged.
        """
        kind = sandbox_kind(settings.sandbox)
        if not kind.isolates and not settings.unsafe:
            raise UsageError(
                f"The {settings.sandbox} sandbox isolates nothing: code of tasks and of the model would run as you",
                mend="Say unsafe = true if that is what you want, or leave sandbox out.",
            )
        kind.check()
        self.settings = settings
        self._tasks = TaskSet.load(Path(settings.taskset))
        self._known = {task.id: task for task in self._tasks.tasks}
        self.run = RunDirectory.open_for_writing(
            Path(settings.out) / f"worker-{worker}", _manifest(settings, self._tasks)
        )
        self.run.keep_tasks(self._tasks.tasks)
        self._factory = kind(self.run.objects)
        self._collector = Collector(self.run, self._factory, build, settings.rewards, settings.seed)
        self._copied = Shared[None]()
        self._named = set(self.run.ids)
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    def task(self, name: str, draw: Draw) -> Task:
        """The task that a trainer asks for.

        Raises:
            UsageError: there is none of this id; or it is held out, and the episode is one to learn from.
        """
        task = self._known.get(name)
        if task is None:
            raise UsageError(
                f"The trainer asks for a task {name!r}, and {self._tasks.path} has none of this id",
                why=f"It has {len(self._known)}, such as {', '.join(list(self._known)[:3])}.",
                mend="Make the trainer's prompts of the same set: patchgym tasks prompts SET.",
            )
        if task.split != "train" and draw.phase == "train" and not self.settings.heldout:
            raise UsageError(
                f"The trainer asks for {name}, which is held out",
                why="What is trained on can no longer show whether the policy has learned anything.",
                mend="Train on prompts of --split train. For a validation set that the trainer does not tell from "
                "training, say heldout = true.",
            )
        return task

    async def attempt(self, task: Task, draw: Draw, spec: str, policy_for: Callable[[str], Policy]) -> Trajectory:
        """One graded attempt, with its reward of the first layer. One that infrastructure lost is made again, at most
        ``retries`` times; if the last is lost too, it is given back as it is, without a reward. ``policy_for`` makes
        the policy of an episode from its name; ``spec`` is what the policy is called.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be tried on this machine.
        """
        settings = self.settings.rollout.model_copy(update={"temperature": draw.temperature, "top_p": draw.top_p})
        await self._copied.get(task.id, lambda: asyncio.to_thread(self._copy, task))
        async with self._turn():
            for _ in range(self.settings.retries + 1):
                sample = self._next(draw.name, task)
                source = _Source(spec, policy_for(f"{draw.name}.{task.id}.{sample}"))
                found = await self._collector.attempt(draw.name, task, sample, source, settings)
                self.run.append(found)
                if found.status == "completed":
                    break
        return found

    def close(self) -> None:
        """Release sandboxes and the run directory."""
        self._factory.close()
        self.run.close()

    def _copy(self, task: Task) -> None:
        copy_task(task, self._tasks.objects, self.run.objects)

    def _next(self, phase: str, task: Task) -> int:
        """The first sample index that nobody has."""
        sample = 0
        while f"{phase}.{task.id}.{sample}" in self._named:
            sample += 1
        self._named.add(f"{phase}.{task.id}.{sample}")
        return sample

    def _turn(self) -> asyncio.Semaphore:
        """What lets ``rollout.concurrency`` episodes through; trainers may use one event loop after another."""
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = (loop, asyncio.Semaphore(self.settings.rollout.concurrency))
        return self._gate[1]


def _manifest(settings: GymSettings, tasks: TaskSet) -> RunManifest:
    now = datetime.now(UTC)
    return RunManifest(
        id=f"trainers-{now:%Y%m%d-%H%M%S}",
        command="trainers",
        config=settings.model_dump(mode="json", exclude={"out"}),
        versions={"python": platform.python_version(), "patchgym": version("patchgym")},
        task_hashes={task.id: task.content_hash() for task in tasks.tasks},
        seed=settings.seed,
        created_at=now,
    )
