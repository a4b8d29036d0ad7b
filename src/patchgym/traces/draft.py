"""A trajectory in the making, out of the events of a log."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.records import (
    Action,
    Fault,
    Message,
    Observation,
    Origin,
    PolicyRef,
    Sampling,
    SpawnedBy,
    Step,
    StepTokens,
    StopReason,
    TestReport,
    Timing,
    ToolCall,
    ToolSpec,
    Trajectory,
    Usage,
)
from patchgym.traces.jsontext import parsed

MOST_TEXT = 1 << 26
"""The characters of text that what is read at once may hold."""


@dataclass
class _Open:
    """A step whose observation may still come."""

    parent: int | None
    prompt: tuple[Message, ...]
    message: Message
    continues: bool
    compacted: bool
    action: Action | None
    parse_error: str | None
    call_id: str | None
    model: str | None
    tokens: StepTokens | None
    sampling: Sampling | None
    usage: Usage | None
    sampling_seconds: float | None
    started_at: datetime | None
    observation: Observation | None = None


class Mark(NamedTuple):
    """A point of a conversation: the step before it, and the messages since."""

    at: int | None
    given: tuple[Message, ...]
    compacted: bool


_Asked = tuple[Action | None, str | None, str | None]
"""An action, or why it cannot be read, and the id of the call that asked for it."""


@dataclass
class Draft:
    """Takes in what a log tells, in its order, and makes a trajectory of it.

    ``left_out`` counts what the log holds and a trajectory does not, by its kind. ``at`` is the index of the step that
    the next one follows (``back_to`` an earlier one, it branches); None at the root.
    """

    id: str
    format: str
    file: str
    session: str | None = None
    agent: str | None = None
    model: str | None = None
    repo: str | None = None
    base_commit: str | None = None
    task_id: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    spawned_by: SpawnedBy | None = None
    sample_index: int = 0
    at: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    _steps: list[_Open] = field(default_factory=list)
    _pending: list[Message] = field(default_factory=list)
    _waiting: dict[str, list[int]] = field(default_factory=dict)
    _told: dict[str, int] = field(default_factory=dict)
    _telling: dict[int, Message] = field(default_factory=dict)  # messages whose text an observation holds, too
    _last_answer: int | None = None
    _compacted: bool = False
    _text: int = 0

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    @property
    def text(self) -> int:
        """How many characters of text it holds."""
        return self._text

    @property
    def full(self) -> bool:
        """Whether it holds so much text (64 MiB) that nothing more should be added to it."""
        return self._text > MOST_TEXT

    @property
    def waiting(self) -> tuple[str, ...]:
        """The ids of the calls that nothing has answered."""
        return tuple(self._waiting)

    def given(self, message: Message) -> None:
        """A message of the system, the user or a tool, which the next answer follows."""
        self._text += len(message.content)
        self._pending.append(message)

    def compacted(self) -> None:
        """What is given from here on takes the place of the conversation before it."""
        self._forget_pending("messages_before_a_compaction")
        self._compacted = True

    def mark(self) -> Mark:
        """Where the conversation stands, for ``back_to``."""
        return Mark(self.at, tuple(self._pending), self._compacted)

    def back_to(self, mark: Mark) -> None:
        """Go on from an earlier point: the next answer is a branch there. Messages that were given meanwhile, and that
        nothing answered, are counted as left out."""
        kept = mark.given
        self._pending = [one for one in self._pending if one not in kept]
        self._forget_pending("messages_of_a_branch_without_an_answer")
        self.at, self._pending, self._compacted = mark.at, list(kept), mark.compacted

    def answer_of(self, step: int | None) -> int | None:
        """The step at which the answer begins that a step belongs to."""
        while step is not None and self._steps[step].continues:
            step = self._steps[step].parent
        return step

    def answered(
        self,
        message: Message,
        actions: Sequence[Action] | None = None,
        *,
        parse_error: str | None = None,
        model: str | None = None,
        tokens: StepTokens | None = None,
        sampling: Sampling | None = None,
        usage: Usage | None = None,
        sampling_seconds: float | None = None,
        started_at: datetime | None = None,
    ) -> int:
        """An answer of the model; the index of its first step. ``actions`` are what it asks for; by default its tool
        calls. Each becomes a step."""
        if actions is None:
            asked: list[_Asked] = [(*action_of(call), call.id) for call in message.tool_calls]
        else:
            asked = [(one, None, one.call_id) for one in actions]
        head = len(self._steps)
        self._text += len(message.content) + len(message.reasoning or "")
        self._text += sum(len(call.arguments) for call in message.tool_calls)
        for position, (action, error, call_id) in enumerate(asked or [(None, parse_error, None)]):
            first = position == 0
            self._add(
                _Open(
                    parent=self.at,
                    prompt=tuple(self._pending) if first else (),
                    message=message if first else Message(role="assistant", content=""),
                    continues=not first,
                    compacted=self._compacted and first,
                    action=action,
                    parse_error=error,
                    call_id=call_id,
                    model=model or self.model,
                    tokens=tokens if first else None,
                    sampling=sampling,
                    usage=usage if first else None,
                    sampling_seconds=sampling_seconds if first else None,
                    started_at=started_at,
                )
            )
        self._pending.clear()
        self._compacted = False
        self._last_answer = head
        return head

    def extend_answer(self, message: Message, *, meanwhile: bool = False) -> bool:
        """More of the model's last answer, which the log tells in pieces: further text, thoughts and calls. False where
        there is no answer that it could belong to, because there is none or, unless ``meanwhile`` allows for it,
        something was given since."""
        first = self._last_answer
        if first is None or (self._pending and not meanwhile) or self.answer_of(self.at) != first:
            return False
        head = self._steps[first]
        self._text += len(message.content) + len(message.reasoning or "")
        self._text += sum(len(call.arguments) for call in message.tool_calls)
        head.message = head.message.model_copy(
            update={
                "content": "\n".join(part for part in (head.message.content, message.content) if part),
                "reasoning": "\n".join(p for p in (head.message.reasoning, message.reasoning) if p) or None,
                "tool_calls": (*head.message.tool_calls, *message.tool_calls),
                "attachments": (*head.message.attachments, *message.attachments),
            }
        )
        for call in message.tool_calls:
            action, error = action_of(call)
            if head.call_id is None and head.action is None and self.at == first:
                head.action, head.parse_error, head.call_id = action, error, call.id
                self._waiting.setdefault(call.id, []).append(first)
                continue
            self._add(
                _Open(
                    parent=self.at,
                    prompt=(),
                    message=Message(role="assistant", content=""),
                    continues=True,
                    compacted=False,
                    action=action,
                    parse_error=error,
                    call_id=call.id,
                    model=head.model,
                    tokens=None,
                    sampling=head.sampling,
                    usage=None,
                    sampling_seconds=None,
                    started_at=head.started_at,
                )
            )
        return True

    def _add(self, step: _Open) -> None:
        self._steps.append(step)
        self.at = len(self._steps) - 1
        if step.call_id is not None:
            self._waiting.setdefault(step.call_id, []).append(self.at)

    def _forget_pending(self, why: str) -> None:
        if lost := sum(id(one) not in self._telling for one in self._pending):
            self.left_out[why] += lost
        self._pending.clear()

    def usage_of_answer(self, usage: Usage) -> None:
        """The token counts of the last answer, where the log tells them later."""
        if self._last_answer is not None:
            self._steps[self._last_answer].usage = usage

    @property
    def lacks_usage(self) -> bool:
        """Whether there is a last answer whose token counts are not known."""
        return self._last_answer is not None and self._steps[self._last_answer].usage is None

    def tokens_of_answer(self, tokens: StepTokens) -> bool:
        """The token ids of the last answer, where the log tells them later; False where none lacks them."""
        if self._last_answer is None or self._steps[self._last_answer].tokens is not None:
            return False
        self._steps[self._last_answer].tokens = tokens
        return True

    def observed(self, observation: Observation, call_id: str | None = None, message: Message | None = None) -> bool:
        """What came of a call, or where it has no id, of the last step; ``message`` is what tells it to the model (by
        default a tool's message, or a user's where there is no id). False where no such call waits for its answer."""
        if call_id is None:
            index = len(self._steps) - 1 if self._steps and self._steps[-1].observation is None else None
        else:
            index = self._answering(call_id)
        if index is None:
            return False
        self._steps[index].observation = observation
        streams = (observation.stdout, observation.stderr)
        self._text += len(observation.shown) + sum(len(one.text) for one in streams if one is not None)
        if call_id is not None:
            self._told[call_id] = index
        if message is None:
            role = "user" if call_id is None else "tool"
            message = Message(role=role, content=observation.shown, tool_call_id=call_id)
        self.given(message)
        self._telling[id(message)] = message
        return True

    def more_of_observation(self, call_id: str, **facts: object) -> bool:
        """Facts of an observation (fields of it) that the log tells after it; False where there is none."""
        index = self._told.get(call_id)
        seen = self._steps[index].observation if index is not None else None
        if index is None or seen is None:
            return False
        self._steps[index].observation = Observation.model_validate({**dict(seen), **facts})
        return True

    def interrupted(self, call_ids: Iterable[str]) -> None:
        """Calls that a person stopped and that nothing answered."""
        for call_id in call_ids:
            while (index := self._answering(call_id)) is not None:
                if self._steps[index].observation is None:
                    self._steps[index].observation = Observation(shown="", ending="interrupted")

    def _answering(self, call_id: str) -> int | None:
        """The step whose call is answered next under this id, which no longer waits."""
        steps = self._waiting.get(call_id)
        if not steps:
            return None
        index = steps.pop(0)
        if not steps:
            del self._waiting[call_id]
        return index

    def step_of(self, call_id: str) -> int | None:
        """The index of the step that made a call; None where there is none."""
        return next((index for index, step in enumerate(self._steps) if step.call_id == call_id), None)

    def step_where(self, holds: Callable[[Action], bool]) -> int | None:
        """The index of the first step whose action is so; None where there is none."""
        return next((at for at, one in enumerate(self._steps) if one.action is not None and holds(one.action)), None)

    def finished(
        self,
        *,
        stop: StopReason | None = None,
        final_patch: str | None = None,
        report: TestReport | None = None,
        timing: Timing | None = None,
        started_at: datetime | None = None,
        total_seconds: float | None = None,
        fault: Fault | None = None,
    ) -> Trajectory:
        """The trajectory. Messages that nothing followed are counted as left out; a ``fault`` is one that the policy
        could not cause, and that ended it."""
        self._forget_pending("messages_after_the_last_answer")
        times = [step.started_at for step in self._steps if step.started_at is not None]
        known = timing or Timing(
            started_at=started_at or (min(times) if times else None),
            total_seconds=total_seconds
            if total_seconds is not None
            else ((max(times) - min(times)).total_seconds() if len(times) > 1 else None),
        )
        return Trajectory(
            id=self.id,
            phase="imported",
            task_id=self.task_id or self.id,
            task_hash=None,
            group_id=f"imported/{self.task_id or self.id}",
            sample_index=self.sample_index,
            policy=PolicyRef(spec=self.agent or self.format, version=self.model),
            sandbox=None,
            tools=self.tools,
            steps=tuple(self._step(index, step) for index, step in enumerate(self._steps)),
            final_state=None,
            final_patch=final_patch,
            stop=stop,
            status="infra_error" if fault is not None else "completed",
            faults=(fault,) if fault is not None else (),
            report=report,
            reward=None,
            reward_trusted=False,
            in_baseline=False,
            timing=known,
            origin=Origin(
                format=self.format,
                file=self.file,
                session=self.session,
                agent=self.agent,
                repo=self.repo,
                base_commit=self.base_commit,
                left_out=dict(self.left_out),
            ),
            spawned_by=self.spawned_by,
        )

    @staticmethod
    def _step(index: int, step: _Open) -> Step:
        return Step(
            index=index,
            parent=step.parent,
            prompt=step.prompt,
            message=step.message,
            continues=step.continues,
            compacted=step.compacted,
            action=step.action,
            parse_error=step.parse_error,
            observation=step.observation,
            tokens=step.tokens,
            policy_version=step.model,
            sampling=step.sampling,
            usage=step.usage,
            sampling_seconds=step.sampling_seconds,
            started_at=step.started_at,
        )


def action_of(call: ToolCall) -> tuple[Action | None, str | None]:
    """The action that a tool call asks for, or why it cannot be read."""
    try:
        arguments: JsonValue = parsed(call.arguments or "{}")
    except ValueError:
        return None, f"The arguments of {call.name} are not JSON."
    if not isinstance(arguments, dict):
        return None, f"The arguments of {call.name} are no JSON object."
    return Action(tool=call.name, arguments=arguments, call_id=call.id), None
