"""Attempts and replays as work that can be done elsewhere."""

import tempfile
from pathlib import Path
from typing import ClassVar

from patchgym.errors import UsageError
from patchgym.executors import Need, Place, WorkSpec
from patchgym.policy.scripted import ScriptFile
from patchgym.records import PolicyRef, Record, Task, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout.attempts import Attempts, RolloutSettings, name_of
from patchgym.rollout.collect import Attempt
from patchgym.rollout.policies import PolicyOptions, PolicySource, open_policy
from patchgym.rollout.replay import Replayed, Replayer
from patchgym.store.copying import named_objects

_WAITING_SLOTS = 4  # an episode waits for its policy, or for its sandbox, most of the time
_MODEL_BYTES = 4 * 1024**3


class AttemptSpec(WorkSpec[Attempt, Trajectory]):
    """Attempts of one phase. Each worker opens the ``policy`` for itself: an endpoint must be within its reach, a
    model's directory on its disk. Of ``scripted:FILE`` the file's text travels along, as ``script``."""

    ITEM: ClassVar[type[Record]] = Attempt
    RESULT: ClassVar[type[Record]] = Trajectory

    phase: str
    policy: str
    options: PolicyOptions
    settings: RolloutSettings
    rewards: RewardSettings
    seed: int
    script: str | None = None
    gpus: float = 0.0

    @property
    def need(self) -> Need:
        """A local model takes a worker for itself, with as many episodes as it samples at once; of others a few share
        a CPU."""
        if self.policy.startswith("local:"):
            return Need(gpus=self.gpus, memory_bytes=_MODEL_BYTES, slots=self.options.batch)
        return Need(slots=_WAITING_SLOTS)

    async def open(self, place: Place) -> "_Attempting":
        """See ``WorkSpec.open``.

        Raises:
            UsageError, PrerequisiteError, EndpointError, DataError: the policy cannot be had there.
        """
        source = self._source()
        await source.check()
        return _Attempting(self, place, source)

    def _source(self) -> PolicySource:
        if self.script is None:
            return open_policy(self.policy, self.options)
        with tempfile.TemporaryDirectory(prefix="patchgym-script-") as folder:
            path = Path(folder) / "script.json"
            path.write_text(self.script, encoding="utf-8")
            return open_policy(f"scripted:{path}", self.options)

    def name(self, item: Attempt) -> str:
        """The id of its trajectory."""
        return name_of(self.phase, item.task, item.sample)

    def needs(self, item: Attempt) -> frozenset[str]:
        """The task's."""
        return needs_of(item.task)

    def leaves(self, result: Trajectory) -> frozenset[str]:
        """Its states, streams and attachments."""
        return named_objects(result)


class _Attempting:
    def __init__(self, spec: AttemptSpec, place: Place, source: PolicySource) -> None:
        self._spec, self._source = spec, source
        self._attempts = Attempts(place, spec.rewards, spec.seed)

    async def do(self, item: Attempt) -> Trajectory:
        spec = self._spec
        made = await self._attempts.make(spec.phase, item.task, item.sample, self._source, spec.settings)
        return made.model_copy(update={"policy": PolicyRef(spec=spec.policy, version=made.policy.version)})

    async def close(self) -> None:
        await self._source.close()


def attempt_spec(
    phase: str,
    policy: str,
    options: PolicyOptions,
    settings: RolloutSettings,
    rewards: RewardSettings,
    seed: int,
    *,
    sandbox: str,
    gpus: float = 0.0,
) -> AttemptSpec:
    """The spec of a phase. ``gpus`` is what a local model gets. A policy that needs nothing but this package is tried
    here, so that a wrong name is told before anything is sent.

    Raises:
        UsageError, DataError: there is no such policy, or its script is none.
    """
    kind, _, target = policy.partition(":")
    script = None
    if kind == "scripted" and target:
        ScriptFile(Path(target))
        script = Path(target).read_text(encoding="utf-8")
    elif kind in ("local", "vllm", "openai"):
        if not target:
            raise UsageError(f"{kind} needs a model", mend=f"Write {kind}:MODEL.")
    else:
        open_policy(policy, options)
    return AttemptSpec(
        sandbox=sandbox,
        phase=phase,
        policy=policy,
        options=options,
        settings=settings,
        rewards=rewards,
        seed=seed,
        script=script,
        gpus=gpus,
    )


class Replaying(Record):
    """A trajectory to be done again, with its task."""

    task: Task
    trajectory: Trajectory


class ReplaySpec(WorkSpec[Replaying, Replayed]):
    """Replays (``patchgym.rollout.replay``)."""

    ITEM: ClassVar[type[Record]] = Replaying
    RESULT: ClassVar[type[Record]] = Replayed

    async def open(self, place: Place) -> "_Replaying":
        """See ``WorkSpec.open``."""
        return _Replaying(place)

    def name(self, item: Replaying) -> str:
        """The id of the trajectory."""
        return item.trajectory.id

    def needs(self, item: Replaying) -> frozenset[str]:
        """The task's, and the states and streams that were recorded."""
        return needs_of(item.task) | named_objects(item.trajectory)


class _Replaying:
    def __init__(self, place: Place) -> None:
        self._tasks: dict[str, Task] = {}
        self._replayer = Replayer(place.objects, place.factory, place.build, self._tasks)

    async def do(self, item: Replaying) -> Replayed:
        self._tasks[item.task.id] = item.task
        return await self._replayer.replay(item.trajectory)

    async def close(self) -> None:
        """Nothing is held."""


def needs_of(task: Task) -> frozenset[str]:
    """The ids of the objects that work on a task begins with."""
    return frozenset({task.workspace, *task.blobs})
