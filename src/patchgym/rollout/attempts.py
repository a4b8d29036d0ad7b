"""One attempt at a task: an episode, its grading and its reward, from the task to the final trajectory."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from pydantic import Field, field_validator

from patchgym.agent import USUAL_TOOLS, Episode, EpisodeSettings, Surroundings, run_episode, tools_named
from patchgym.config import Settings
from patchgym.content import diff_trees
from patchgym.errors import SandboxError
from patchgym.executors import Place
from patchgym.grading import Grader
from patchgym.records import (
    Fault,
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
    Verdict,
)
from patchgym.reward import RewardSettings, score_patch
from patchgym.reward.hacks import attempt_of, find_hacks
from patchgym.rollout.briefings import Briefings
from patchgym.rollout.policies import PolicySource
from patchgym.rollout.shared import Shared
from patchgym.testrun import built_environment, sandbox_spec


class RolloutSettings(Settings):
    """How to sample. ``concurrency`` is how many episodes are under way at once; ``max_tokens`` bounds one message. An
    episode ends after ``protocol_errors`` unreadable messages in a row, and after ``hopeless_after`` times of the same
    action in the same state (0: never). ``tools`` are those that the agent has. With ``briefing`` it is told so many
    lines that are likely to be wrong (``patchgym.rollout.briefings``, found out once a task on this machine). ``turns``
    is a limit of this run where the task's own is higher (0: none). With ``grade_once``, attempts at a task that made
    the same patch share one grading: that is faster, and says less of whether gradings agree. ``gradings`` is how many
    of them and of briefings are made at once (0: all under way): each is a run of tests that fills a core, and more
    than there are cores take a local model's time to sample and run out of their own."""

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
    gradings: int = Field(0, ge=0)

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


class Attempts:
    """Makes attempts at a place. Their rewards hold the first layer; ``patchgym.reward.settle`` gives those of whole
    groups. The same seed, task and sample give the same attempt wherever it is made, as far as the policy lets it."""

    def __init__(self, place: Place, rewards: RewardSettings, seed: int, *, cache: Path | None = None) -> None:
        """``place`` must hold the trees of the tasks; briefings are kept in ``cache`` (None: this machine's)."""
        self._place, self._rewards, self._seed = place, rewards, seed
        self._grader = Grader(place.factory, place.objects, place.build)
        self._briefings = Briefings(place.factory, place.objects, place.build, cache)
        self._gradings = Shared[TestReport]()
        self._rooms: dict[tuple[asyncio.AbstractEventLoop, int], asyncio.Semaphore] = {}

    async def make(
        self,
        phase: str,
        task: Task,
        sample: int,
        source: PolicySource,
        settings: RolloutSettings,
        on_step: Callable[[Step], None] = lambda step: None,
        on_end: Callable[[Episode], None] = lambda episode: None,
    ) -> Trajectory:
        """The trajectory of one attempt; ``on_step`` is called with each step once it is whole, ``on_end`` once the
        episode is over and before it is graded.

        Raises:
            PrerequisiteError, StorageError, EnvironmentBuildError: nothing can be attempted on this machine.
        """
        started_at, clock = datetime.now(UTC), time.monotonic()
        trajectory_id = name_of(phase, task, sample)
        version = source.version
        episode = await self._episode(task, trajectory_id, source, settings, on_step)
        on_end(episode)
        patch = diff_trees(self._place.objects, task.workspace, episode.final_state)
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
            sandbox=self._place.factory.kind,
            tools=episode.tools,
            steps=tuple(episode.steps),
            final_state=episode.final_state,
            final_patch=patch,
            stop=episode.stop,
            status="completed" if sound else "infra_error",
            faults=tuple(episode.faults),
            report=report,
            reward=self.reward(task, report, episode.steps, patch) if sound and report is not None else None,
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
        self,
        task: Task,
        trajectory_id: str,
        source: PolicySource,
        settings: RolloutSettings,
        on_step: Callable[[Step], None],
    ) -> Episode:
        built = await built_environment(task.environment, self._place.build)
        try:
            around = await self.around(task, source, settings, trajectory_id)
            sandbox = await self._place.factory.create(sandbox_spec(task.workspace, task.environment, built))
        except SandboxError as error:
            fault = Fault(kind=type(error).__name__, where="sandbox", message=str(error))
            return Episode(final_state=task.workspace, stop=StopReason.INFRASTRUCTURE, faults=[fault])
        try:
            return await run_episode(around, sandbox, on_step=on_step)
        finally:
            await sandbox.close()

    def _sampling(self, name: str, settings: RolloutSettings) -> Sampling:
        seed = int.from_bytes(hashlib.sha256(f"{self._seed}/{name}".encode()).digest()[:4], "big")
        return Sampling(
            temperature=settings.temperature, top_p=settings.top_p, max_tokens=settings.max_tokens, seed=seed
        )

    async def around(self, task: Task, source: PolicySource, settings: RolloutSettings, name: str) -> Surroundings:
        """What an attempt called ``name`` works with.

        Raises:
            SandboxError: no sandbox could be had for the briefing.
        """
        room = self._room(settings)
        briefing = await self._briefings.text(task, settings.briefing, room) if settings.briefing else ""
        policy, objects = source.for_task(task, self._place.objects), self._place.objects
        episode = settings.episode(self._sampling(name, settings))
        return Surroundings(settings.view(task), policy, objects, episode, briefing)

    async def grade(self, task: Task, patch: str, settings: RolloutSettings) -> TestReport:
        """The report on a patch, as soon as there is room for one more grading."""
        async with self._room(settings):
            return await self._grader.grade(task, patch)

    def _room(self, settings: RolloutSettings) -> asyncio.Semaphore:
        """The places for gradings and briefings; of each event loop anew, which a semaphore belongs to."""
        key = asyncio.get_running_loop(), settings.gradings or settings.concurrency
        if key not in self._rooms:
            self._rooms = {key: asyncio.Semaphore(key[1])}
        return self._rooms[key]

    async def _graded(self, task: Task, patch: str, settings: RolloutSettings) -> TestReport:
        if not settings.grade_once:
            return await self.grade(task, patch, settings)
        report = await self._gradings.get((task.content_hash(), patch), lambda: self.grade(task, patch, settings))
        if report.verdict is Verdict.INFRA_ERROR:  # it was not the patch: the next one is graded by itself
            self._gradings.forget((task.content_hash(), patch))
        return report

    def reward(self, task: Task, report: TestReport, steps: Sequence[Step], patch: str) -> Reward:
        """What an attempt is worth by itself."""
        evidence = find_hacks(attempt_of(task, self._place.objects, patch, steps, report))
        return score_patch(task, report, steps, patch, self._rewards, evidence)


def name_of(phase: str, task: Task, sample: int) -> str:
    """The id of an attempt's trajectory."""
    return f"{phase}.{task.id}.{sample}"


def lost_attempt(
    phase: str, task: Task, sample: int, policy: PolicyRef, sandbox: str, error: SandboxError
) -> Trajectory:
    """The trajectory of an attempt of which nothing came back: infrastructure's, without steps and without a reward."""
    return Trajectory(
        id=name_of(phase, task, sample),
        phase=phase,
        task_id=task.id,
        task_hash=task.content_hash(),
        group_id=f"{phase}/{task.id}",
        sample_index=sample,
        policy=policy,
        sandbox=sandbox,
        steps=(),
        final_state=task.workspace,
        final_patch="",
        stop=StopReason.INFRASTRUCTURE,
        status="infra_error",
        faults=(Fault(kind=type(error).__name__, where="sandbox", message=str(error)),),
        report=None,
        reward=None,
        reward_trusted=False,
        in_baseline=False,
        timing=Timing(),
    )
