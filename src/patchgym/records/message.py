"""What goes to a policy and what comes back, token-exact where the policy can say so."""

from typing import Literal

from pydantic import JsonValue

from patchgym.records.base import Record


class ToolSpec(Record):
    """A tool as a model is told of it: ``parameters`` is a JSON Schema object."""

    name: str
    description: str
    parameters: dict[str, JsonValue]


class ToolCall(Record):
    """One native tool call; ``arguments`` is the JSON text exactly as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(Record):
    """One chat message. On an assistant message ``sampled_ids`` holds the ids that were sampled for it, so that a
    later prompt continues from them and never from re-tokenized text."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    sampled_ids: tuple[int, ...] | None = None


class Sampling(Record):
    """Sampling parameters. ``temperature`` 0 is greedy; ``seed`` makes a local policy repeatable."""

    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    seed: int = 0


class Usage(Record):
    """Token counts as the policy reports them; ``cached_tokens`` is the part of the prompt that was not recomputed."""

    prompt_tokens: int
    sampled_tokens: int
    cached_tokens: int | None = None


class StepTokens(Record):
    """The ids of one step, as sampled.

    ``prompt_ids`` are the ids that were *appended* to the context before sampling (the whole prompt at a
    trajectory's first step, the new observation afterwards); where ``restart`` is true they are the whole context
    instead. The context of step k is therefore the concatenation of ``prompt_ids + sampled_ids`` over the path that
    leads to it, back to the last restart. ``logprobs`` are natural logarithms under the distribution that was really
    sampled from (temperature and truncation applied), one for each sampled id. ``mask`` is 1 where a sampled id may
    be trained on.
    """

    prompt_ids: tuple[int, ...]
    sampled_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    mask: tuple[int, ...]
    restart: bool = False


class Sample(Record):
    """What a policy answers: the message, its tokens where known, and why sampling ended."""

    message: Message
    tokens: StepTokens | None = None
    usage: Usage
    finish_reason: Literal["stop", "length", "tool_calls"]
