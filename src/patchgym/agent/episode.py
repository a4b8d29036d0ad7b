"""One episode, from the instruction to the last state of the workspace."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from patchgym.agent.acting import act, checked
from patchgym.agent.prompt import answers, opening, read_action
from patchgym.agent.tools import TOOLS, Workbench
from patchgym.content import ObjectStore
from patchgym.errors import ContextLengthError, EndpointError, SandboxError
from patchgym.policy import Policy, ProtocolError
from patchgym.records import (
    Action,
    Fault,
    Message,
    Observation,
    Sample,
    Sampling,
    Step,
    StopReason,
    TaskView,
)
from patchgym.sandbox import Sandbox


@dataclass(frozen=True)
class EpisodeSettings:
    """How to sample, and after how many unreadable messages in a row to stop."""

    sampling: Sampling
    protocol_errors: int = 3


@dataclass
class Episode:
    """What came of an episode. ``final_state`` is a tree id of the run's store; ``faults`` are infrastructure's."""

    steps: list[Step] = field(default_factory=list)
    final_state: str = ""
    stop: StopReason = StopReason.TURN_LIMIT
    faults: list[Fault] = field(default_factory=list)
    sampling_seconds: float = 0.0
    acting_seconds: float = 0.0


async def run_episode(
    view: TaskView,
    sandbox: Sandbox,
    policy: Policy,
    objects: ObjectStore,
    settings: EpisodeSettings,
    *,
    on_step: Callable[[Step], None] = lambda step: None,
) -> Episode:
    """Let ``policy`` work in ``sandbox`` until it submits or a limit of the task is reached.

    ``objects`` is the store that the sandbox snapshots into. ``on_step`` is called with each step once it is whole.
    Faults of the sandbox or the policy's endpoint end the episode and are recorded, not raised.
    """
    episode = Episode(final_state=view.workspace)
    runner = _Runner(view, sandbox, policy, objects, settings, episode)
    try:
        while True:
            stop = runner.limit_reached()
            if stop is not None:
                episode.stop = stop
                break
            step = await runner.step()
            episode.steps.append(step)
            on_step(step)
            if step.action is not None and step.action.tool == "submit" and step.observation and step.observation.ok:
                episode.stop = StopReason.SUBMITTED
                break
    except ContextLengthError:
        episode.stop = StopReason.CONTEXT_LIMIT
    except SandboxError as error:
        _fault(episode, Fault(kind=type(error).__name__, where="sandbox", message=str(error)))
    except EndpointError as error:
        _fault(episode, Fault(kind=type(error).__name__, where="policy", message=str(error)))
    return episode


def _fault(episode: Episode, fault: Fault) -> None:
    episode.stop = StopReason.INFRASTRUCTURE
    episode.faults.append(fault)


class _Runner:
    """The state of one episode between turns."""

    def __init__(
        self,
        view: TaskView,
        sandbox: Sandbox,
        policy: Policy,
        objects: ObjectStore,
        settings: EpisodeSettings,
        episode: Episode,
    ) -> None:
        self._view, self._sandbox, self._policy = view, sandbox, policy
        self._objects, self._settings, self._episode = objects, settings, episode
        self._pending = opening(view, native=policy.native_tools)
        self._messages: list[Message] = []
        self._specs = [tool.spec() for tool in TOOLS.values()]
        self._started = time.monotonic()
        self._unreadable = self._sampled = 0

    def limit_reached(self) -> StopReason | None:
        """The limit that keeps the next turn from being taken, if any."""
        limits, steps = self._view.limits, self._episode.steps
        if self._unreadable >= self._settings.protocol_errors:
            return StopReason.PROTOCOL
        if len(steps) >= limits.turns:
            return StopReason.TURN_LIMIT
        if self._sampled >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        if time.monotonic() - self._started >= limits.seconds:
            return StopReason.TIME_LIMIT
        return None

    async def step(self) -> Step:
        """One turn: sample, act, look at the state."""
        index, started_at, prompt = len(self._episode.steps), datetime.now(UTC), self._pending
        self._messages += prompt
        sampling = self._sampling()
        clock = time.monotonic()
        sample = await self._policy.sample(self._messages, self._specs, sampling)
        sampled = time.monotonic()
        self._sampled += sample.usage.sampled_tokens
        before = self._episode.final_state
        action, error, observation = await self._act(sample, before)
        after = await self._sandbox.snapshot() if action is not None else before
        self._episode.final_state = after
        self._episode.sampling_seconds += sampled - clock
        self._episode.acting_seconds += time.monotonic() - sampled
        self._unreadable = self._unreadable + 1 if action is None else 0
        self._messages.append(sample.message)
        self._pending = answers(sample.message, observation.shown)
        return Step(
            index=index,
            parent=index - 1 if index else None,
            prompt=prompt,
            message=sample.message,
            action=action,
            parse_error=error,
            observation=observation,
            state_before=before,
            state_after=after,
            changed_paths=self._objects.changed_paths(before, after),
            tokens=sample.tokens,
            policy_version=self._policy.version,
            sampling=sampling,
            usage=sample.usage,
            sampling_seconds=sampled - clock,
            started_at=started_at,
        )

    def _sampling(self) -> Sampling:
        """The settings' sampling, with no more tokens than the episode has left."""
        wanted, left = self._settings.sampling, self._view.limits.tokens - self._sampled
        return wanted.model_copy(update={"max_tokens": min(wanted.max_tokens, left)})

    async def _act(self, sample: Sample, tree: str) -> tuple[Action | None, str | None, Observation]:
        try:
            action = read_action(sample.message, native=self._policy.native_tools)
            checked(action)
        except (ProtocolError, ValueError) as error:
            cut = " The message was cut at the token limit." if sample.finish_reason == "length" else ""
            text = f"{error}{cut}"
            return None, text, Observation(shown=text, ok=False)
        left = self._view.limits.seconds - (time.monotonic() - self._started)
        seconds = max(1.0, min(self._view.limits.command_seconds, left))
        return action, None, await act(Workbench(self._sandbox, self._view, self._objects, tree, seconds), action)
