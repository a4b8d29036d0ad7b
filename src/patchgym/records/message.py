"""What goes to a policy and what comes back, token-exact where the policy can say so."""

from typing import Literal

from pydantic import JsonValue

from patchgym.records.base import Record


class ToolSpec(Record):
    """A tool as a model is told of it."""

    name: str
    """What it is called by."""
    description: str
    """What the model is told that it does."""
    parameters: dict[str, JsonValue]
    """A JSON Schema object."""


class ToolCall(Record):
    """One native tool call."""

    id: str
    """By which its result is told."""
    name: str
    """The tool."""
    arguments: str
    """The JSON text exactly as the model wrote it."""


class Attachment(Record):
    """What a message carried besides text: an image, a document."""

    media_type: str
    """Such as ``image/png``."""
    size: int | None = None
    """Bytes, where known."""
    blob: str | None = None
    """Its object id in the run's store; None where the bytes were not kept."""


class Message(Record):
    """One chat message."""

    role: Literal["system", "user", "assistant", "tool"]
    """Who speaks."""
    content: str
    """The text."""
    reasoning: str | None = None
    """What an assistant thought before it answered, where it was recorded apart from the content."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Native tool calls of an assistant message."""
    tool_call_id: str | None = None
    """On a tool message: the call that it answers."""
    sampled_ids: tuple[int, ...] | None = None
    """On an assistant message: the ids that were sampled for it, so that a later prompt continues from them and never
    from re-tokenized text."""
    attachments: tuple[Attachment, ...] = ()
    """What came with the text."""


class Sampling(Record):
    """Sampling parameters."""

    temperature: float = 1.0
    """0 is greedy."""
    top_p: float = 1.0
    """Less than 1 samples from the most likely ids alone, which hold this share of the probability."""
    max_tokens: int = 512
    """The most tokens of one message."""
    seed: int = 0
    """Makes a local policy repeatable."""


class Usage(Record):
    """Token counts as the policy reports them."""

    prompt_tokens: int
    """Tokens of the whole prompt."""
    sampled_tokens: int
    """Tokens that were sampled."""
    cached_tokens: int | None = None
    """The part of the prompt that was not recomputed."""


class StepTokens(Record):
    """The ids of one step, as sampled. The context of a step is the concatenation of ``prompt_ids + sampled_ids`` over
    the path that leads to it, back to the last restart."""

    prompt_ids: tuple[int, ...]
    """The ids that were *appended* to the context before sampling (the whole prompt at a trajectory's first step, the
    new observation afterwards); where ``restart`` is true they are the whole context instead."""
    sampled_ids: tuple[int, ...]
    """The ids of the answer, in order."""
    logprobs: tuple[float, ...] | None
    """Natural logarithms under the distribution that was really sampled from (temperature and truncation applied), one
    for each sampled id."""
    mask: tuple[int, ...]
    """1 where a sampled id may be trained on."""
    restart: bool = False
    """Whether ``prompt_ids`` are the whole context."""


class Sample(Record):
    """What a policy answers: the message, its tokens where known, and why sampling ended."""

    message: Message
    tokens: StepTokens | None = None
    usage: Usage
    finish_reason: Literal["stop", "length", "tool_calls"]
    counted: bool = True
    """Whether anybody counted ``usage``. Where not, the step has none."""
    policy_version: str | None = None
    """The version that sampled it, where the policy may have gone on to another one meanwhile."""
