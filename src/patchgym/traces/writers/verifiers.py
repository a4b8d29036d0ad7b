"""Documents for verifiers v1: the fields of its ``Trace``, one for each trajectory. A node is a message with the ids
that it adds; each root-to-leaf path of nodes is a sample.

The ids of a prompt are not known by message: they all stand before the answer that followed, on its node, unmarked. A
call is an answer with its weights, sampling, token counts and times, as far as they were recorded.
"""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from patchgym.records import Message, Step, StopReason, Trajectory
from patchgym.traces.intake import Intake
from patchgym.traces.paths import paths
from patchgym.traces.writers.samples import TOKEN_PARTS, check, reward_of
from patchgym.traces.writers.writer import Known, Reason, Row, Unwritable

NAME = "verifiers"
ABOUT = "documents for verifiers v1, the fields of its Trace with token ids on the nodes"
FOLDER = False
COLUMNS: Mapping[str, str] = {}
HOLDS: frozenset[str] | None = TOKEN_PARTS | {
    "steps.prompt",
    "steps.message",
    "steps.parent",
    "steps.started_at",
    "steps.sampling",
    "steps.sampling_seconds",
    "steps.policy_version",
    "steps.usage",
    "timing.started_at",
    "timing.total_seconds",
    "tools",
    "stop",
    "status",
}
_STOPS = {
    StopReason.SUBMITTED: "agent_completed",
    StopReason.TURN_LIMIT: "max_turns",
    StopReason.TOKEN_LIMIT: "max_output_tokens",
    StopReason.CONTEXT_LIMIT: "max_total_tokens",
    StopReason.TIME_LIMIT: "agent_timeout",
}
"""Why an episode ended, in verifiers' words where it has some: by these it knows what was cut off."""


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``."""
    check(trajectory, need_logprobs=False)
    if paths(trajectory) is None:
        raise Unwritable(Reason.BROKEN_PATH)
    if not any(step.tokens and any(step.tokens.mask) for step in trajectory.steps):
        raise Unwritable(Reason.NOTHING_TRAINABLE)
    task = known.tasks.get(trajectory.task_id)
    data: dict[str, JsonValue] = {"id": trajectory.task_id, "prompt": task.instruction if task else None}
    nodes = _Nodes(trajectory)
    stop = trajectory.stop
    return [
        {
            "version": 1,
            "id": trajectory.id,
            "task": {"type": "patchgym", "data": data, "key": trajectory.task_id, "hash": trajectory.task_hash},
            "agent": {"config": {}, "name": "agent", "trainable": True},
            "tools": _tools(trajectory),
            "nodes": nodes.made(),
            "calls": nodes.calls,
            "timing": _timing(trajectory),
            "rewards": {"reward": {"score": reward_of(trajectory), "weight": 1.0}},
            "info": {"group_id": trajectory.group_id, "sample_index": trajectory.sample_index},
            "is_completed": True,
            "ok": True,
            "stop_condition": _STOPS.get(stop, str(stop)) if stop is not None else None,
            "is_timeout": stop is StopReason.TIME_LIMIT,
        }
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``: nothing reads it."""
    yield from ()


class _Nodes:
    """Steps as nodes."""

    def __init__(self, trajectory: Trajectory) -> None:
        self._trajectory = trajectory
        self.calls: list[JsonValue] = []
        """The answers among them; filled by ``made``."""
        self._nodes: list[JsonValue] = []
        self._of_step: dict[int, int] = {}

    def made(self) -> list[JsonValue]:
        for step in self._trajectory.steps:
            before = self._of_step[step.parent] if step.parent is not None else None
            if step.continues and before is not None:
                self._of_step[step.index] = before
            else:
                self._of_step[step.index] = self._step(step, before)
        return self._nodes

    def _step(self, step: Step, before: int | None) -> int:
        if step.compacted or (step.tokens is not None and step.tokens.restart):
            before = None
        for message in step.prompt:
            before = self._add(message, step, before, {})
        own: dict[str, JsonValue] = {"sampled": True}
        if step.tokens is not None:
            given, sampled = step.tokens.prompt_ids, step.tokens.sampled_ids
            own["token_ids"] = [*given, *sampled]
            own["mask"] = [*([False] * len(given)), *(bool(bit) for bit in step.tokens.mask)]
            pairs = zip(step.tokens.logprobs or (), step.tokens.mask, strict=False)
            own["logprobs"] = [logprob for logprob, bit in pairs if bit]
        node = self._add(step.message, step, before, own)
        self.calls.append(_call(step, node))
        return node

    def _add(self, message: Message, step: Step, before: int | None, own: dict[str, JsonValue]) -> int:
        node: dict[str, JsonValue] = {"parent": before, "message": _message(message), **own}
        if before is None and self._trajectory.tools:
            node["tools"] = _tools(self._trajectory)
        if step.started_at is not None:
            node["timestamp"] = step.started_at.timestamp()
        self._nodes.append(node)
        return len(self._nodes) - 1


def _call(step: Step, node: int) -> dict[str, JsonValue]:
    call: dict[str, JsonValue] = {"node": node, "model": step.policy_version}
    if step.sampling is not None:
        told = step.sampling
        call["sampling"] = {"temperature": told.temperature, "top_p": told.top_p, "max_tokens": told.max_tokens}
    if step.usage is not None:
        cached = step.usage.cached_tokens
        call["usage"] = {  # verifiers counts what was read from a cache apart
            "prompt_tokens": step.usage.prompt_tokens - (cached or 0),
            "completion_tokens": step.usage.sampled_tokens,
            "cached_input_tokens": cached,
        }
    if step.started_at is not None and step.sampling_seconds is not None:
        began = step.started_at.timestamp()
        call["time"] = {"start": began, "end": began + step.sampling_seconds}
    return call


def _timing(trajectory: Trajectory) -> dict[str, JsonValue]:
    """When the episode began and ended. Their default for what is left out is the time of reading."""
    timing = trajectory.timing
    if timing.started_at is None:
        return {"start": 0.0}
    began = timing.started_at.timestamp()
    ended: dict[str, JsonValue] = {"start": began}
    if timing.total_seconds is not None:
        ended["agent"] = {"start": began, "end": began + timing.total_seconds}
    return ended


def _tools(trajectory: Trajectory) -> list[JsonValue]:
    return [
        {"type": "function", "name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
        for tool in trajectory.tools
    ]


def _message(message: Message) -> dict[str, JsonValue]:
    found: dict[str, JsonValue] = {"role": message.role, "content": message.content}
    if message.role == "tool":
        found["tool_call_id"] = message.tool_call_id or ""
    if message.role == "assistant":
        if message.reasoning is not None:
            found["reasoning_content"] = message.reasoning
        if message.tool_calls:
            found["tool_calls"] = [
                {"id": call.id, "type": "function", "name": call.name, "arguments": call.arguments}
                for call in message.tool_calls
            ]
    return found
