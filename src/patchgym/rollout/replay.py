"""Replay: every recorded action done again, and what comes of it compared with what was recorded.

Each step is held to its own record: when a step leaves another state than it left before, the next one begins in a
fresh sandbox at the state that was recorded. So one divergence is counted once. Files alone are restored; a step that
needs what an earlier one left running or in ``/tmp`` diverges after such a restart, and the report says that there was
one.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from patchgym.agent.acting import act
from patchgym.agent.tools import Workbench
from patchgym.content import ObjectStore
from patchgym.errors import SandboxError
from patchgym.grading import Grader
from patchgym.records import Environment, Observation, Record, Step, Task, Trajectory
from patchgym.rollout.likeness import Difference, compare, reason_of
from patchgym.sandbox import Sandbox, SandboxFactory
from patchgym.testrun import Built, built_environment, sandbox_spec


class Divergence(Record):
    """A step that came out otherwise. ``what`` are the parts that differ, ``reason`` is the likely cause (see
    ``likeness.reason_of``), ``diff`` shows recorded against replayed text. ``restarted`` says that the sandbox had been
    begun anew since the trajectory's first step."""

    trajectory: str
    step: int
    tool: str
    what: tuple[str, ...]
    reason: str
    diff: str
    restarted: bool


class Replayed(Record):
    """What became of one trajectory. ``skipped`` counts steps without an action that can be done again; ``verdict`` is
    the new one, None where none was recorded."""

    trajectory: str
    exact: int = 0
    normalised: int = 0
    diverged: int = 0
    skipped: int = 0
    recorded_verdict: str | None = None
    verdict: str | None = None
    divergences: tuple[Divergence, ...] = ()
    fault: str | None = None
    """Why it could not be replayed to its end, where a sandbox was lost."""


class Certificate(Record):
    """``replay.json``: how much of a run reproduces. ``of`` is how many trajectories the run has that can be replayed,
    ``sample_seed`` how they were drawn where not all were."""

    run: str
    of: int
    trajectories: int
    sample_seed: int | None
    steps: int
    exact: int
    normalised: int
    diverged: int
    skipped: int
    verdicts: int
    verdicts_same: int
    faults: int
    reasons: dict[str, int]
    divergences: tuple[Divergence, ...]
    verdict_changes: dict[str, str]

    @property
    def share(self) -> float | None:
        """The share of steps that came out the same, exactly or after normalising; None where there is none."""
        return (self.exact + self.normalised) / self.steps if self.steps else None


class Replayer:
    """Replays trajectories of a run. ``factory`` must make sandboxes from the run's object store; ``again`` is how
    often a step that diverged is run once more to find out why."""

    def __init__(
        self,
        objects: ObjectStore,
        factory: SandboxFactory,
        build: Callable[[Environment], Path],
        tasks: Mapping[str, Task],
        *,
        again: int = 2,
    ) -> None:
        self._objects, self._factory, self._build = objects, factory, build
        self._tasks, self._again = tasks, again
        self._grader = Grader(factory, objects, build)

    async def replay(self, trajectory: Trajectory) -> Replayed:
        """Do every step of a trajectory again, and grade its patch again.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be replayed on this machine.
        """
        task = self._tasks[trajectory.task_id]
        built = await built_environment(task.environment, self._build)
        run = _Run(self, task, built, trajectory.id)
        fault = None
        try:
            for step in trajectory.steps:
                await run.step(step)
        except SandboxError as error:
            fault = str(error)
        finally:
            await run.close()
        verdict = None
        if trajectory.report is not None and trajectory.final_patch is not None:
            verdict = (await self._grader.grade(task, trajectory.final_patch)).verdict.value
        return Replayed(
            trajectory=trajectory.id,
            **run.counts,
            recorded_verdict=trajectory.report.verdict.value if trajectory.report else None,
            verdict=verdict,
            divergences=tuple(run.divergences),
            fault=fault,
        )


class _Run:
    """The replay of one trajectory, between its steps."""

    def __init__(self, replayer: Replayer, task: Task, built: Built, name: str) -> None:
        self._all, self._task, self._built, self._name = replayer, task, built, name
        self._view = task.view()
        self._sandbox: Sandbox | None = None
        self._at = ""
        self._restarted = False
        self.counts = {"exact": 0, "normalised": 0, "diverged": 0, "skipped": 0}
        self.divergences: list[Divergence] = []

    async def step(self, step: Step) -> None:
        if step.action is None or step.observation is None or step.state_before is None or step.state_after is None:
            self.counts["skipped"] += 1
            return
        if self._sandbox is None or self._at != step.state_before:
            await self._begin(step.state_before)
        assert self._sandbox is not None
        seen, after = await self._do(self._sandbox, step)
        self._at = after
        differences = compare(step.observation, seen, self._all._objects.get)
        if after != step.state_after:
            objects = self._all._objects
            paths = objects.changed_paths(step.state_after, after)
            listings = [_listing(objects, tree, paths) for tree in (step.state_after, after)]
            differences.append(Difference("state", *listings))
        hard = [difference for difference in differences if not difference.normalised]
        if not hard:
            self.counts["normalised" if differences else "exact"] += 1
            return
        self.counts["diverged"] += 1
        others = [await self._alone(step) for _ in range(self._all._again)]
        self.divergences.append(
            Divergence(
                trajectory=self._name,
                step=step.index,
                tool=step.action.tool,
                what=tuple(difference.what for difference in hard),
                reason=reason_of(step.observation, seen, others, hard),
                diff="\n".join(difference.shown() for difference in hard),
                restarted=self._restarted,
            )
        )

    async def _begin(self, state: str) -> None:
        self._restarted = self._sandbox is not None
        await self.close()
        self._sandbox = await self._all._factory.create(sandbox_spec(state, self._task.environment, self._built))
        self._at = state

    async def _do(self, sandbox: Sandbox, step: Step) -> tuple[Observation, str]:
        assert step.action is not None
        assert step.state_before is not None
        bench = Workbench(sandbox, self._view, self._all._objects, step.state_before, self._view.limits.command_seconds)
        return await act(bench, step.action), await sandbox.snapshot()

    async def _alone(self, step: Step) -> Observation:
        """What the step shows in a sandbox of its own."""
        assert step.state_before is not None
        sandbox = await self._all._factory.create(sandbox_spec(step.state_before, self._task.environment, self._built))
        try:
            return (await self._do(sandbox, step))[0]
        finally:
            await sandbox.close()

    async def close(self) -> None:
        if self._sandbox is not None:
            await self._sandbox.close()
            self._sandbox = None


def certificate(
    run: str, of: int, sample_seed: int | None, replayed: Sequence[Replayed], *, most: int = 200
) -> Certificate:
    """What replays come to; at most ``most`` divergences are told one by one, all of them are counted."""
    graded = [one for one in replayed if one.recorded_verdict is not None]
    divergences = [divergence for one in replayed for divergence in one.divergences]
    return Certificate(
        run=run,
        of=of,
        trajectories=len(replayed),
        sample_seed=sample_seed,
        steps=sum(one.exact + one.normalised + one.diverged for one in replayed),
        exact=sum(one.exact for one in replayed),
        normalised=sum(one.normalised for one in replayed),
        diverged=sum(one.diverged for one in replayed),
        skipped=sum(one.skipped for one in replayed),
        verdicts=len(graded),
        verdicts_same=sum(one.verdict == one.recorded_verdict for one in graded),
        faults=sum(one.fault is not None for one in replayed),
        reasons=dict(Counter(divergence.reason for divergence in divergences).most_common()),
        divergences=tuple(divergences[:most]),
        verdict_changes={
            one.trajectory: f"{one.recorded_verdict} -> {one.verdict}"
            for one in graded
            if one.verdict != one.recorded_verdict
        },
    )


def _listing(objects: ObjectStore, tree: str, paths: Sequence[str]) -> str:
    """The mode and content of these paths in a tree, a line each."""
    entries = objects.entries(tree)
    return "\n".join(
        f"{path} {entries[path].mode:o} {entries[path].id}" if path in entries else f"{path} is not there"
        for path in paths
    )
