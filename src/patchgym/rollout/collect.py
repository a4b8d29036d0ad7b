"""The collector: tasks and a policy in, final trajectories in the run directory out."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from patchgym.agent import Episode
from patchgym.errors import WorkLostError
from patchgym.executors import Executor, LocalExecutor, Place
from patchgym.records import (
    Environment,
    Fault,
    Leaf,
    PolicyRef,
    Record,
    Step,
    Task,
    Trajectory,
    Tree,
    Verdict,
)
from patchgym.reward import RewardSettings
from patchgym.reward.value.features import StepsValue
from patchgym.reward.value.opened import opened_value
from patchgym.rollout.attempts import Attempts, RolloutSettings, lost_attempt, name_of
from patchgym.rollout.policies import PolicySource
from patchgym.rollout.search import Search
from patchgym.rollout.strategies import SearchSettings
from patchgym.sandbox import SandboxFactory
from patchgym.store import RunDirectory
from patchgym.testrun import built_environment


@dataclass(frozen=True)
class Phase:
    """A part of a run: its name, its tasks, and how many samples of each."""

    name: str
    tasks: Sequence[Task]
    samples: int


class Attempt(Record):
    """An attempt to be made: a task, and which of its samples."""

    task: Task
    sample: int


class Collector:
    """Collects the trajectories of one run. Their rewards hold the first layer; ``patchgym.reward.settle`` gives those
    of whole groups.

    The run's object store must hold the tasks' trees, and ``factory`` must make its sandboxes from that store;
    ``build`` gives the directory of a built environment (blocking; called in threads). Briefings are kept in ``cache``
    (None: this machine's) and shared with other runs.
    """

    def __init__(
        self,
        run: RunDirectory,
        factory: SandboxFactory,
        build: Callable[[Environment], Path],
        rewards: RewardSettings,
        seed: int,
        *,
        cache: Path | None = None,
    ) -> None:
        self._run, self._factory, self._build = run, factory, build
        self._attempts = Attempts(Place(run.objects, factory, build), rewards, seed, cache=cache)

    async def collect(
        self,
        phase: Phase,
        source: PolicySource,
        settings: RolloutSettings,
        on_final: Callable[[Trajectory], None] = lambda trajectory: None,
    ) -> list[Trajectory]:
        """Make every trajectory of ``phase`` that the run does not have yet, here, and return all of them.

        ``on_final`` is called with each one that is made here. The order in which they become final is not fixed.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be collected on this machine.
        """

        async def make(wanted: Attempt) -> Trajectory:
            return await self.attempt(phase.name, wanted.task, wanted.sample, source, settings)

        here = LocalExecutor[Attempt, Trajectory](make, settings.concurrency)
        return await self.collect_by(here, phase, source.spec, on_final)

    async def attempt(
        self,
        phase: str,
        task: Task,
        sample: int,
        source: PolicySource,
        settings: RolloutSettings,
        on_step: Callable[[Step], None] = lambda step: None,
        on_end: Callable[[Episode], None] = lambda episode: None,
    ) -> Trajectory:
        """One trajectory, for whoever decides one by one what is tried. The run must not have it yet, and it is for the
        caller to append it. ``on_step`` is called with each step, ``on_end`` once the episode is over and before it is
        graded.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be collected on this machine.
        """
        journal = self._run.journal(name_of(phase, task, sample))

        def kept(step: Step) -> None:
            journal.append(step)
            on_step(step)

        return await self._attempts.make(phase, task, sample, source, settings, kept, on_end)

    async def collect_by(
        self,
        executor: Executor[Attempt, Trajectory],
        phase: Phase,
        policy: str,
        on_final: Callable[[Trajectory], None] = lambda trajectory: None,
    ) -> list[Trajectory]:
        """The same by any executor of attempts of the policy that is named ``policy``. The run is written to here
        alone. An attempt that cost its workers again and again is kept as lost to infrastructure, under its name.

        Raises:
            PatchgymError: nothing can be collected there.
        """
        have = {trajectory.id for trajectory in self._run.phase(phase.name)}
        wanted = [
            Attempt(task=task, sample=sample)
            for sample in range(phase.samples)
            for task in phase.tasks
            if name_of(phase.name, task, sample) not in have
        ]

        async def one(attempt: Attempt) -> None:
            try:
                trajectory = await executor.do(attempt)
            except WorkLostError as error:
                ref = PolicyRef(spec=policy, version=None)
                trajectory = lost_attempt(phase.name, attempt.task, attempt.sample, ref, self._factory.kind, error)
            self._run.append(trajectory)
            on_final(trajectory)

        try:
            async with asyncio.TaskGroup() as group:
                for attempt in wanted:
                    group.create_task(one(attempt))
        except BaseExceptionGroup as errors:
            raise _first(errors) from None
        return self._run.phase(phase.name)

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
        around = await self._attempts.around(task, source, settings, name)
        journal, version = self._run.journal(name), source.version
        searched = Search(name, task, around, self._factory, built, search, journal.append, by_steps)

        async def grade(leaf: Leaf, steps: list[Step]) -> Leaf:
            report = await self._attempts.grade(task, leaf.final_patch, settings)
            if report.verdict is Verdict.INFRA_ERROR:
                fault = Fault(kind="SandboxError", where="grading", message=report.why)
                return leaf.model_copy(update={"report": report, "faults": (fault,)})
            reward = self._attempts.reward(task, report, steps, leaf.final_patch)
            return leaf.model_copy(update={"report": report, "reward": reward})

        root = await searched.run()
        return await searched.record(
            root, PolicyRef(spec=source.spec, version=version), self._factory.kind, phase, grade
        )


def _tree_id(phase: str, task: Task, sample: int) -> str:
    return f"{phase}.{task.id}.tree{sample}"


def _first(errors: BaseExceptionGroup[BaseException]) -> BaseException:
    """The first error of a group: the one that made the others be cancelled."""
    inner = errors.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
