"""What was said between a policy and a workspace, and the next turn of it."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Self

from patchgym.agent.acting import act, checked
from patchgym.agent.prompt import answers, opening, read_action
from patchgym.agent.tools import USUAL_TOOLS, Tool, Workbench, tools_named
from patchgym.content import ObjectStore, written_out
from patchgym.policy import Policy, ProtocolError
from patchgym.records import Action, Message, Observation, Sample, Sampling, Step, StopReason, TaskView, ToolSpec
from patchgym.sandbox import Sandbox


@dataclass(frozen=True)
class EpisodeSettings:
    """How to sample; after how many unreadable messages in a row to stop; after how many times of the same action in
    the same state (0: never); and the names of the tools that the agent has."""

    sampling: Sampling
    protocol_errors: int = 3
    hopeless_after: int = 0
    tools: tuple[str, ...] = USUAL_TOOLS


@dataclass(frozen=True)
class Surroundings:
    """What every turn of an episode needs: the task as the agent may know it, who answers, the store that the sandbox
    snapshots into, the settings, and what the agent is told besides (``patchgym.agent.briefing``)."""

    view: TaskView
    policy: Policy
    objects: ObjectStore
    settings: EpisodeSettings
    briefing: str = ""

    @cached_property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that the agent has."""
        return tools_named(self.settings.tools)

    @cached_property
    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools as a model with native calls is told of them."""
        return tuple(tool.spec() for tool in self.tools.values())

    @property
    def told(self) -> tuple[ToolSpec, ...]:
        """What the endpoint tells the model of its tools; none where the system message does."""
        return self.specs if self.policy.native_tools else ()


@dataclass
class Conversation:
    """A conversation up to now. ``state`` is the tree id of the workspace, ``index`` the last step's (None before the
    first)."""

    around: Surroundings
    state: str
    pending: tuple[Message, ...]
    messages: list[Message] = field(default_factory=list)
    index: int | None = None
    turns: int = 0
    sampled: int = 0
    unreadable: int = 0
    repeated: int = 0
    last: tuple[Action, str] | None = None

    @classmethod
    def begun(cls, around: Surroundings) -> Self:
        """The beginning: the instruction, and the workspace as it is given."""
        view, native = around.view, around.policy.native_tools
        told = opening(view, native=native, tools=around.tools, briefing=around.briefing)
        return cls(around, view.workspace, told)

    def forked(self) -> Self:
        """A copy that goes on by itself."""
        return replace(self, messages=list(self.messages))

    def limit_reached(self) -> StopReason | None:
        """The limit that keeps the next turn from being taken, if any; wall time is the caller's."""
        limits, settings = self.around.view.limits, self.around.settings
        if self.unreadable >= settings.protocol_errors:
            return StopReason.PROTOCOL
        if settings.hopeless_after and self.repeated >= settings.hopeless_after:
            return StopReason.HOPELESS_LOOP
        if self.turns >= limits.turns:
            return StopReason.TURN_LIMIT
        if self.sampled >= limits.tokens:
            return StopReason.TOKEN_LIMIT
        return None

    async def turn(self, sandbox: Sandbox, index: int, seconds_left: float, *, seed: int | None = None) -> Step:
        """One turn, which becomes the step ``index``: sample, act in ``sandbox``, look at the state. ``seed`` takes the
        place of the settings' own.

        Raises:
            ContextLengthError: the conversation no longer fits the model.
            EndpointError: the model could not be asked.
            SandboxError: the sandbox was lost.
        """
        around, started_at, prompt = self.around, datetime.now(UTC), self.pending
        asked = [*self.messages, *prompt]
        sampling = self._sampling(seed)
        clock = time.monotonic()
        sample = await around.policy.sample(asked, around.specs, sampling)
        sampling_seconds = time.monotonic() - clock
        before = self.state
        seconds = max(1.0, min(around.view.limits.command_seconds, seconds_left - sampling_seconds))
        action, error, observation = await self._act(sandbox, sample, seconds)
        after = await sandbox.snapshot() if action is not None else before
        step = Step(
            index=index,
            parent=self.index,
            prompt=prompt,
            message=sample.message,
            action=action,
            parse_error=error,
            observation=observation,
            state_before=before,
            state_after=after,
            changed_paths=tuple(map(written_out, around.objects.changed_paths(before, after))),
            tokens=sample.tokens,
            policy_version=sample.policy_version or around.policy.version,
            sampling=sampling,
            usage=sample.usage if sample.counted else None,
            sampling_seconds=sampling_seconds,
            started_at=started_at,
        )
        self._advance(step, asked, sample)
        return step

    def _advance(self, step: Step, asked: Sequence[Message], sample: Sample) -> None:
        assert step.observation is not None
        assert step.state_before is not None
        assert step.state_after is not None
        done = (step.action.model_copy(update={"call_id": None}), step.state_before) if step.action else None
        self.repeated = self.repeated + 1 if done is not None and done == self.last else 1
        self.last = done
        self.messages = [*asked, sample.message]
        self.pending = answers(sample.message, step.observation.shown)
        self.state, self.index, self.turns = step.state_after, step.index, self.turns + 1
        self.sampled += sample.usage.sampled_tokens
        self.unreadable = self.unreadable + 1 if step.action is None else 0

    def _sampling(self, seed: int | None) -> Sampling:
        """The settings' sampling, with no more tokens than the episode has left."""
        wanted, left = self.around.settings.sampling, self.around.view.limits.tokens - self.sampled
        update = {"max_tokens": min(wanted.max_tokens, left), **({"seed": seed} if seed is not None else {})}
        return wanted.model_copy(update=update)

    async def _act(
        self, sandbox: Sandbox, sample: Sample, seconds: float
    ) -> tuple[Action | None, str | None, Observation]:
        around = self.around
        try:
            action = read_action(sample.message, native=around.policy.native_tools, tools=around.tools)
            checked(action, around.tools)
        except (ProtocolError, ValueError) as error:
            cut = " The message was cut at the token limit." if sample.finish_reason == "length" else ""
            text = f"{error}{cut}"
            return None, text, Observation(shown=text, ok=False)
        bench = Workbench(sandbox, around.view, around.objects, self.state, seconds)
        return action, None, await act(bench, action)


def submitted(step: Step) -> bool:
    """Whether a step handed in the work."""
    done = step.observation is not None and step.observation.ok is True
    return done and step.action is not None and step.action.tool == "submit"
