"""Somebody else's sampler as our policy: token in, token out.

A trainer samples with its own server, whose weights it keeps in step with the ones it trains. All that is asked of it
here is to continue a list of ids. The conversation is encoded by the same encoder as everywhere else
(``patchgym.policy.chat``): what was sampled stays as it was sampled, observations are appended, and every context
begins with the one before it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError
from patchgym.policy.chat import ChatEncoder, exact_sample
from patchgym.records import Message, Sample, Sampling, ToolSpec

_ANY = 2**31
_SLACK = 1e-4  # above 0: float32's rounding of a log-softmax
_NEUTRAL: Mapping[str, tuple[object, ...]] = {
    "top_k": (-1, 0, None),
    "min_p": (0, None),
    "repetition_penalty": (1, None),
    "presence_penalty": (0, None),
    "frequency_penalty": (0, None),
}


@dataclass(frozen=True)
class Generated:
    """What was drawn: the ids, the end of turn among them where it was; the log-probability of each in nats under the
    distribution that it was drawn from (None where the sampler does not say); whether it ended by itself; how many ids
    of the context were not read again; and the name of the weights, where they may change under way."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    stopped: bool
    cached: int | None = None
    version: str | None = None


class Generator(Protocol):
    """What a trainer samples with. ``version`` names the weights."""

    @property
    def version(self) -> str:
        """The name of the weights that sample now."""
        ...

    async def generate(self, session: str, ids: Sequence[int], sampling: Sampling) -> Generated:
        """Continue ``ids`` by at most ``sampling.max_tokens``. The turns of one episode have the same ``session``, so
        that a server can send them where the start of their context is known.

        Raises:
            EndpointError: it could not be asked.
        """
        ...


@dataclass(frozen=True)
class TokenLimits:
    """The most ids of a whole context with its answer; of the opening, before anything was sampled; and of all that
    follows the opening. None: no limit of its own."""

    context: int
    opening: int | None = None
    response: int | None = None


class TokenPolicy:
    """A policy that samples through a ``Generator``. It speaks the plain-text protocol: ``tools`` are ignored."""

    native_tools = False

    def __init__(
        self,
        generator: Generator,
        encoder: ChatEncoder,
        *,
        session: str,
        limits: TokenLimits,
        vocabulary: int | None = None,
    ) -> None:
        """One for each episode, which ``session`` names. ``vocabulary`` is the number of ids that the model has logits
        for (often more than its tokenizer knows), where that is known."""
        self.version: str = generator.version
        self._generator, self._encoder = generator, encoder
        self._session, self._limits = session, limits
        self._vocabulary = vocabulary if vocabulary is not None else _ANY
        self._opening: int | None = None

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """Sample one answer. Where the limits leave fewer than ``max_tokens``, it ends there with ``length``.

        Raises:
            ContextLengthError: the limits leave no room for an answer.
            EndpointError: the generator could not be asked, or what it answers cannot be what it sampled.
            ConfigError: the opening alone is over its limit: no policy could do better.
            DataError: ``sampled_ids`` of a message are no ids of this model.
        """
        ids, known = self._encoder.encode_turn(messages)
        if max(ids) >= self._vocabulary:
            raise DataError("A message holds ids that the model does not know", why="Another model sampled them.")
        room = self._room(messages, len(ids))
        wanted = sampling.model_copy(update={"max_tokens": min(room, sampling.max_tokens)})
        self.version = self._generator.version
        drawn = await self._generator.generate(self._session, ids, wanted)
        self._refuse_unsound(drawn, wanted)
        return exact_sample(self._encoder, ids, known, drawn, drawn.version)

    def _room(self, messages: Sequence[Message], length: int) -> int:
        """How many ids an answer may have."""
        limits = self._limits
        if self._opening is None:
            first = next((at for at, message in enumerate(messages) if message.role == "assistant"), len(messages))
            self._opening = len(self._encoder.encode(messages[:first]))
        opening = self._opening
        if limits.opening is not None and opening > limits.opening:
            raise ConfigError(
                "The instruction of a task is longer than the trainer's prompts may be",
                why=f"It has {opening} ids, and {limits.opening} are allowed.",
                mend="Raise the trainer's prompt length, or leave the task out.",
            )
        whole = limits.context if limits.response is None else min(limits.context, opening + limits.response)
        if length >= whole and length == opening:
            raise ConfigError(
                "The instruction of a task leaves no room for an answer",
                why=f"It has {opening} ids of {whole}.",
                mend="Raise the trainer's lengths, or leave the task out.",
            )
        if length >= whole:
            raise ContextLengthError("The conversation no longer fits", why=f"{length} tokens of {whole}.")
        return whole - length

    def _refuse_unsound(self, drawn: Generated, sampling: Sampling) -> None:
        ids, logprobs = drawn.ids, drawn.logprobs
        if not ids:
            raise _unsound("It has no ids")
        if len(ids) > sampling.max_tokens:
            raise _unsound(f"It has {len(ids)} ids, and {sampling.max_tokens} were asked for")
        if not all(0 <= one < self._vocabulary for one in ids):
            raise _unsound("It has ids that are none of the model's")
        if any(one in self._encoder.stop_ids for one in ids[:-1]):
            raise _unsound("It goes on after its end of turn")
        if logprobs is not None and len(logprobs) != len(ids):
            raise _unsound(f"It has {len(ids)} ids and {len(logprobs)} log-probabilities")
        if logprobs is not None and not all(math.isfinite(one) and one <= _SLACK for one in logprobs):
            raise _unsound("A log-probability is none")


def neutral_sampling(told: Mapping[str, Any], who: str) -> tuple[float, float]:
    """Temperature and top-p out of a trainer's sampling parameters. ``who`` is named in messages.

    Raises:
        ConfigError: it would sample in a way that an episode's record has no place for, so that its log-probabilities
            would be those of another distribution.
    """
    for name, allowed in _NEUTRAL.items():
        if told.get(name) not in allowed:
            raise ConfigError(
                f"{who} samples with {name} = {told[name]!r}",
                why="Trajectories record temperature and top_p, and log-probabilities under these.",
                mend=f"Leave {name} at {allowed[0]}.",
            )
    return float(told.get("temperature", 1.0)), float(told.get("top_p", 1.0))


def _unsound(why: str) -> EndpointError:
    return EndpointError("The trainer's sampler gave an answer that it cannot have sampled", why=f"{why}.")
