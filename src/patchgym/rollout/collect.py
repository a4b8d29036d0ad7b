"""The collector: tasks and a policy in, final trajectories in the run directory out."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, field_validator

from patchgym.agent import USUAL_TOOLS, Episode, EpisodeSettings, Surroundings, brief, run_episode, tools_named
from patchgym.config import Settings
from patchgym.content import diff_trees
from patchgym.errors import SandboxError
from patchgym.grading import Grader
from patchgym.records import (
    Environment,
    Fault,
    Leaf,
    PolicyRef,
    Reward,
    Sampling,
    Step,
    StopReason,
    Task,
    TaskView,
    TestReport,
    Timing,
    Trajectory,
    Tree,
    Verdict,
)
from patchgym.reward import RewardSettings, score_patch
from patchgym.reward.hacks import attempt_of, find_hacks
from patchgym.reward.value.features import StepsValue
from patchgym.reward.value.opened import opened_value
from patchgym.rollout.policies import PolicySource
from patchgym.rollout.search import Search
from patchgym.rollout.shared import Shared
from patchgym.rollout.strategies import SearchSettings
from patchgym.sandbox import SandboxFactory
from patchgym.store import RunDirectory
from patchgym.testrun import built_environment, coverage_tool, sandbox_spec


class RolloutSettings(Settings):
    """How to sample. ``concurrency`` is how many episodes are under way at once; ``max_tokens`` bounds one message. An
    episode ends after ``protocol_errors`` unreadable messages in a row, and after ``hopeless_after`` times of the same
    action in the same state (0: never). ``tools`` are those that the agent has. With ``briefing`` it is told so many
    lines that are likely to be wrong, as ``patchgym.agent.briefing`` finds them. ``turns`` is a limit of this run where
    the task's own is higher (0: none). With ``grade_once``, attempts at a task that made the same patch share one
    grading: that is faster, and says less of whether gradings agree."""

    concurrency: int = 16
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 256
    protocol_errors: int = 3
    hopeless_after: int = 0
    tools: tuple[str, ...] = USUAL_TOOLS
    briefing: int = Field(0, ge=0)
    turns: int = Field(0, ge=0)
    grade_once: bool = False

    @field_validator("tools")
    @classmethod
    def _known_tools(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(tools_named(names))

    def view(self, task: Task) -> TaskView:
        """A task as the agent sees it in this run."""
        view = task.view()
        turns = min(self.turns or view.limits.turns, view.limits.turns)
        return view.model_copy(update={"limits": view.limits.model_copy(update={"turns": turns})})

    def episode(self, sampling: Sampling) -> EpisodeSettings:
        """The settings of one episode."""
        return EpisodeSettings(sampling, self.protocol_errors, self.hopeless_after, self.tools)


@dataclass(frozen=True)
class Phase:
    """A part of a run: its name, its tasks, and how many samples of each."""

    name: str
    tasks: Sequence[Task]
    samples: int


class Collector:
    """Collects the trajectories of one run. Their rewards hold the first layer; ``patchgym.reward.settle`` gives those
    of whole groups.

    The run's object store must hold the tasks' trees, and ``factory`` must make its sandboxes from that store;
    ``build`` gives the directory of a built environment (blocking; called in threads).
    """

    def __init__(
        self,
        run: RunDirectory,
        factory: SandboxFactory,
        build: Callable[[Environment], Path],
        rewards: RewardSettings,
        seed: int,
    ) -> None:
        self._run, self._factory, self._build = run, factory, build
        self._rewards, self._seed = rewards, seed
        self._grader = Grader(factory, run.objects, build)
        self._briefings = Shared[str]()
        self._gradings = Shared[TestReport]()

    async def collect(
        self,
        phase: Phase,
        source: PolicySource,
        settings: RolloutSettings,
        on_final: Callable[[Trajectory], None] = lambda trajectory: None,
    ) -> list[Trajectory]:
        """Make every trajectory of ``phase`` that the run does not have yet, and return all of them.

        ``on_final`` is called with each one that is made here. The order in which they become final is not fixed.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be collected on this machine.
        """
        have = {trajectory.id for trajectory in self._run.phase(phase.name)}
        wanted = [
            (task, sample)
            for sample in range(phase.samples)
            for task in phase.tasks
            if _trajectory_id(phase.name, task, sample) not in have
        ]
        gate = asyncio.Semaphore(settings.concurrency)

        async def one(task: Task, sample: int) -> None:
            async with gate:
                trajectory = await self._rollout(phase.name, task, sample, source, settings)
            self._run.append(trajectory)
            on_final(trajectory)

        try:
            async with asyncio.TaskGroup() as group:
                for task, sample in wanted:
                    group.create_task(one(task, sample))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return self._run.phase(phase.name)

    async def attempt(
        self, phase: str, task: Task, sample: int, source: PolicySource, settings: RolloutSettings
    ) -> Trajectory:
        """One trajectory more, for whoever decides one by one what is tried. The run must not have it yet.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be collected on this machine.
        """
        trajectory = await self._rollout(phase, task, sample, source, settings)
        self._run.append(trajectory)
        return trajectory

    async def search(
        self,
        phase: Phase,
        source: PolicySource,
        settings: RolloutSettings,
        search: SearchSettings,
        on_final: Callable[[Tree], None] = lambda tree: None,
    ) -> list[Tree]:
        """Make every search tree of ``phase`` that the run does not have yet (a sample is a tree), and return all.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be collected on this machine.
            DataError: there is no value model such as ``search`` names, or its hash is another.
        """
        have = set(self._run.tree_ids)
        by_steps = opened_value(search.value, search.value_hash)[0] if search.by_steps else None
        gate = asyncio.Semaphore(settings.concurrency)

        async def one(task: Task, sample: int) -> None:
            async with gate:
                tree = await self._tree(phase.name, task, sample, source, settings, search, by_steps)
            self._run.append_tree(tree)
            on_final(tree)

        try:
            async with asyncio.TaskGroup() as group:
                for sample in range(phase.samples):
                    for task in phase.tasks:
                        if _tree_id(phase.name, task, sample) not in have:
                            group.create_task(one(task, sample))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return [tree for tree in self._run.trees if tree.phase == phase.name]

    async def _tree(
        self,
        phase: str,
        task: Task,
        sample: int,
        source: PolicySource,
        settings: RolloutSettings,
        search: SearchSettings,
        by_steps: StepsValue | None,
    ) -> Tree:
        name = _tree_id(phase, task, sample)
        built = await built_environment(task.environment, self._build)
        around = await self._around(task, source, settings, name)
        journal, version = self._run.journal(name), source.version
        searched = Search(name, task, around, self._factory, built, search, journal.append, by_steps)

        async def grade(leaf: Leaf, steps: list[Step]) -> Leaf:
            report = await self._grader.grade(task, leaf.final_patch)
            if report.verdict is Verdict.INFRA_ERROR:
                fault = Fault(kind="SandboxError", where="grading", message=report.why)
                return leaf.model_copy(update={"report": report, "faults": (fault,)})
            reward = self._reward(task, report, steps, leaf.final_patch)
            return leaf.model_copy(update={"report": report, "reward": reward})

        root = await searched.run()
        return await searched.record(
            root, PolicyRef(spec=source.spec, version=version), self._factory.kind, phase, grade
        )

    def _sampling(self, name: str, settings: RolloutSettings) -> Sampling:
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}/{name}".encode()).digest()[:4], "big")
        return Sampling(
            temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_tokens, seed=seed
        )

    async def _rollout(
        self, phase: str, task: Task, sample: int, source: PolicySource, settings: RolloutSettings
    ) -> Trajectory:
        started_at, clock = datetime.now(UTC), time.monotonic()
        trajectory_id = _trajectory_id(phase, task, sample)
        version = source.version
        episode = await self._episode(task, trajectory_id, source, settings)
        patch = diff_trees(self._run.objects, task.workspace, episode.final_state)
        graded_from = time.monotonic()
        report = await self._graded(task, patch, settings) if not episode.faults else None
        if report is not None and report.verdict is Verdict.INFRA_ERROR:
            episode.faults.append(Fault(kind="SandboxError", where="grading", message=report.why))
        sound = not episode.faults
        return Trajectory(
            id=trajectory_id,
            phase=phase,
            task_id=task.id,
            task_hash=task.content_hash(),
            group_id=f"{phase}/{task.id}",
            sample_index=sample,
            policy=PolicyRef(spec=source.spec, version=version),
            sandbox=self._factory.kind,
            tools=episode.tools,
            steps=tuple(episode.steps),
            final_state=episode.final_state,
            final_patch=patch,
            stop=episode.stop,
            status="completed" if sound else "infra_error",
            faults=tuple(episode.faults),
            report=report,
            reward=self._reward(task, report, episode.steps, patch) if sound and report is not None else None,
            reward_trusted=sound,
            in_baseline=sound,
            timing=Timing(
                started_at=started_at,
                total_seconds=time.monotonic() - clock,
                sampling_seconds=episode.sampling_seconds,
                acting_seconds=episode.acting_seconds,
                grading_seconds=time.monotonic() - graded_from,
            ),
        )

    async def _episode(
        self, task: Task, trajectory_id: str, source: PolicySource, settings: RolloutSettings
    ) -> Episode:
        built = await built_environment(task.environment, self._build)
        journal = self._run.journal(trajectory_id)
        try:
            around = await self._around(task, source, settings, trajectory_id)
            sandbox = await self._factory.create(sandbox_spec(task.workspace, task.environment, built))
        except SandboxError as error:
            fault = Fault(kind=type(error).__name__, where="sandbox", message=str(error))
            return Episode(final_state=task.workspace, stop=StopReason.INFRASTRUCTURE, faults=[fault])
        try:
            return await run_episode(around, sandbox, on_step=journal.append)
        finally:
            await sandbox.close()

    async def _around(self, task: Task, source: PolicySource, settings: RolloutSettings, name: str) -> Surroundings:
        """Raises:
        SandboxError: no sandbox could be had for the briefing.
        """
        briefing = await self._briefing(task, settings.briefing) if settings.briefing else ""
        policy, objects = source.for_task(task, self._run.objects), self._run.objects
        episode = settings.episode(self._sampling(name, settings))
        return Surroundings(settings.view(task), policy, objects, episode, briefing)

    async def _briefing(self, task: Task, lines: int) -> str:
        """What an agent is told beforehand; found out once a task."""
        return await self._briefings.get((task.content_hash(), lines), lambda: self._brief(task, lines))

    async def _brief(self, task: Task, lines: int) -> str:
        built = await built_environment(task.environment, self._build)
        if built.folder is None:  # coverage.py is for our Pythons
            return ""
        tool = await asyncio.to_thread(coverage_tool, task.environment, self._build)
        sandbox = await self._factory.create(sandbox_spec(task.workspace, task.environment, built, coverage=tool))
        try:
            return await brief(sandbox, task.view(), self._run.objects, lines)
        finally:
            await sandbox.close()

    async def _graded(self, task: Task, patch: str, settings: RolloutSettings) -> TestReport:
        if not settings.grade_once:
            return await self._grader.grade(task, patch)
        report = await self._gradings.get((task.content_hash(), patch), lambda: self._grader.grade(task, patch))
        if report.verdict is Verdict.INFRA_ERROR:  # it was not the patch: the next one is graded by itself
            self._gradings.forget((task.content_hash(), patch))
        return report

    def _reward(self, task: Task, report: TestReport, steps: Sequence[Step], patch: str) -> Reward:
        evidence = find_hacks(attempt_of(task, self._run.objects, patch, steps, report))
        return score_patch(task, report, steps, patch, self._rewards, evidence)


def _trajectory_id(phase: str, task: Task, sample: int) -> str:
    return f"{phase}.{task.id}.{sample}"


def _tree_id(phase: str, task: Task, sample: int) -> str:
    return f"{phase}.{task.id}.tree{sample}"


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: the one that made the others be cancelled."""
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
