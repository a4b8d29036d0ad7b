"""A trajectory in the making, out of the events of a log."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from pydantic import JsonValue

from patchgym.records import (
    Action,
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
    model: str | None
    tokens: StepTokens | None
    sampling: Sampling | None
    usage: Usage | None
    sampling_seconds: float | None
    started_at: datetime | None
    observation: Observation | None = None


@dataclass
class Draft:
    """Takes in what a log tells, in its order, and makes a trajectory of it.

    ``left_out`` counts what the log holds and a trajectory does not, by its kind. ``at`` is the index of the step that
    the next one follows: setting it to an earlier one begins a branch there, and ``None`` a new root.
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
    at: int | None = None
    left_out: Counter[str] = field(default_factory=Counter)
    _steps: list[_Open] = field(default_factory=list)
    _pending: list[Message] = field(default_factory=list)
    _waiting: dict[str, int] = field(default_factory=dict)
    _compacted: bool = False

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return len(self._steps)

    def given(self, message: Message) -> None:
        """A message of the system, the user or a tool, which the next answer follows."""
        self._pending.append(message)

    def compacted(self) -> None:
        """What is given from here on takes the place of the conversation before it."""
        self._pending.clear()
        self._compacted = True

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
    ) -> None:
        """An answer of the model. ``actions`` are what it asks for; by default its tool calls. Each becomes a step."""
        asked = (
            [action_of(call) for call in message.tool_calls] if actions is None else [(one, None) for one in actions]
        )
        for position, (action, error) in enumerate(asked or [(None, parse_error)]):
            first = position == 0
            self._steps.append(
                _Open(
                    parent=self.at,
                    prompt=tuple(self._pending) if first else (),
                    message=message if first else Message(role="assistant", content=""),
                    continues=not first,
                    compacted=self._compacted and first,
                    action=action,
                    parse_error=error,
                    model=model or self.model,
                    tokens=tokens if first else None,
                    sampling=sampling,
                    usage=usage if first else None,
                    sampling_seconds=sampling_seconds if first else None,
                    started_at=started_at,
                )
            )
            self.at = len(self._steps) - 1
            if action is not None and action.call_id is not None:
                self._waiting[action.call_id] = self.at
        self._pending.clear()
        self._compacted = False

    def extend_answer(self, message: Message) -> bool:
        """More of the model's last answer, which the log tells in pieces: further text, thoughts and calls. False where
        there is no answer that it could belong to, because there is none or something was given meanwhile."""
        first = next((at for at in range(len(self._steps) - 1, -1, -1) if not self._steps[at].continues), None)
        if first is None or self._pending:
            return False
        head = self._steps[first]
        whole = head.message.model_copy(
            update={
                "content": "\n".join(part for part in (head.message.content, message.content) if part),
                "reasoning": "\n".join(p for p in (head.message.reasoning, message.reasoning) if p) or None,
                "tool_calls": (*head.message.tool_calls, *message.tool_calls),
                "attachments": (*head.message.attachments, *message.attachments),
            }
        )
        for call in message.tool_calls:
            action, error = action_of(call)
            if head.action is None and head.parse_error is None and len(self._steps) == first + 1:
                head.action, head.parse_error = action, error
            else:
                self._steps.append(
                    _Open(
                        parent=self.at,
                        prompt=(),
                        message=Message(role="assistant", content=""),
                        continues=True,
                        compacted=False,
                        action=action,
                        parse_error=error,
                        model=head.model,
                        tokens=None,
                        sampling=head.sampling,
                        usage=None,
                        sampling_seconds=None,
                        started_at=head.started_at,
                    )
                )
                self.at = len(self._steps) - 1
            self._waiting[call.id] = len(self._steps) - 1
        head.message = whole
        return True

    def usage_of_answer(self, usage: Usage) -> None:
        """The token counts of the last answer, where the log tells them later."""
        for step in reversed(self._steps):
            if not step.continues:
                step.usage = usage
                return

    def observed(self, observation: Observation, call_id: str | None = None, message: Message | None = None) -> bool:
        """What came of a call, or where it has no id, of the last step; ``message`` is what tells it to the model (by
        default a tool's message, or a user's where there is no id). False where no such call waits for its answer."""
        if call_id is None:
            index = len(self._steps) - 1 if self._steps and self._steps[-1].observation is None else None
        else:
            index = self._waiting.pop(call_id, None)
        if index is None:
            return False
        self._steps[index].observation = observation
        if message is None:
            role = "user" if call_id is None else "tool"
            message = Message(role=role, content=observation.shown, tool_call_id=call_id)
        self._pending.append(message)
        return True

    def step_of(self, call_id: str) -> int | None:
        """The index of the step that made a call; None where there is none."""
        for index, step in enumerate(self._steps):
            if step.action is not None and step.action.call_id == call_id:
                return index
        return None

    def finished(
        self,
        *,
        stop: StopReason | None = None,
        final_patch: str | None = None,
        report: TestReport | None = None,
        timing: Timing | None = None,
        started_at: datetime | None = None,
        total_seconds: float | None = None,
    ) -> Trajectory:
        """The trajectory. Messages that nothing followed are counted as left out."""
        if self._pending:
            shown = {step.observation.shown for step in self._steps[-1:] if step.observation is not None}
            left = [one for one in self._pending if one.role != "tool" and one.content not in shown]
            if left:
                self.left_out["messages_after_the_last_answer"] += len(left)
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
            sample_index=0,
            policy=PolicyRef(spec=self.agent or self.format, version=self.model),
            sandbox=None,
            tools=self.tools,
            steps=tuple(self._step(index, step) for index, step in enumerate(self._steps)),
            final_state=None,
            final_patch=final_patch,
            stop=stop,
            status="completed",
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
        arguments: JsonValue = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        return None, f"The arguments of {call.name} are not JSON."
    if not isinstance(arguments, dict):
        return None, f"The arguments of {call.name} are no JSON object."
    return Action(tool=call.name, arguments=arguments, call_id=call.id), None
