"""A local transformers model as a policy: batched, cached over turns, token-exact."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from patchgym.errors import ConfigError, ContextLengthError, DataError
from patchgym.policy.chat import ChatEncoder, exact_sample
from patchgym.policy.models import DType, LoadedModel, load_model
from patchgym.records import Message, Sample, Sampling, ToolSpec

if TYPE_CHECKING:
    import torch


class LocalPolicy:
    """Samples from a model in this process. It speaks the plain-text protocol: ``tools`` are ignored.

    Concurrent ``sample`` calls share forward passes, on a CUDA device where there is one. The keys and values of a
    conversation are kept between its turns, and contexts that start alike are read once.

    A sample depends on the context and on ``sampling`` alone, seed included, up to float rounding: which other requests
    share a step changes the last bits of the logits, and may so on rare occasions change a token. Log-probs are those
    of the distribution drawn from (temperature and top_p applied); at temperature 0, of the plain softmax.
    """

    native_tools = False

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        dtype: DType = "float32",
        max_batch: int = 16,
        kept_tokens: int = 24_000,
    ) -> None:
        """``max_batch`` requests at most share a step; ``kept_tokens`` bounds the keys and values kept between turns
        (46 KB a token for smollm2); ``dtype`` is what ``load_checkpoint`` loads in.

        Raises:
            ConfigError: the chat template cannot be used token by token, or the model attends through windows or
                recurrent states, which cannot be continued from kept keys and values here.
        """
        from patchgym.policy.engine import Engine

        self._dtype: DType = dtype
        self._take(loaded)
        self._engine = Engine(
            _placed(loaded), _stop_ids(loaded, self._encoder), max_batch=max_batch, kept_tokens=kept_tokens
        )

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """Sample one answer. Where the context leaves fewer than ``max_tokens``, it ends there with ``length``.

        Raises:
            ContextLengthError: the context leaves no room for an answer.
            EndpointError: the engine is closed, out of memory, or the model's logits are not numbers.
            ConfigError: ``sampling`` is out of range.
            DataError: ``sampled_ids`` of a message are no ids of this model.
        """
        from patchgym.policy.engine import Request

        if sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.max_tokens < 1:
            raise ConfigError(
                f"Cannot sample with {sampling!r}", mend="temperature >= 0, 0 < top_p <= 1, max_tokens >= 1."
            )
        encoder = self._encoder
        ids, known = encoder.encode_turn(messages)
        if max(ids) >= self._vocabulary:
            raise DataError(
                "A message holds sampled ids that the model does not know", why="Another model sampled them."
            )
        room = self._max_context - len(ids)
        if room < 1:
            raise ContextLengthError(
                "The conversation no longer fits the model", why=f"{len(ids)} tokens of {self._max_context}."
            )
        request = Request(
            tuple(ids), min(room, sampling.max_tokens), sampling.temperature, sampling.top_p, sampling.seed
        )
        done = await asyncio.wrap_future(self._engine.submit(request))
        return exact_sample(encoder, ids, known, done)

    async def load_checkpoint(self, path: Path | str) -> None:
        """Go on with the model or checkpoint at ``path``, once the requests made so far are answered.

        Raises:
            UsageError, DataError: as ``load_model``; the policy then stays as it is.
        """
        loaded = await asyncio.to_thread(load_model, str(path), dtype=self._dtype)
        stop_ids = _stop_ids(loaded, ChatEncoder(loaded.tokenizer))
        swapped = self._engine.swap(_placed(loaded), stop_ids)
        # In the engine's thread, so that a caller who is cancelled meanwhile cannot leave the new weights unnamed.
        swapped.add_done_callback(lambda done: None if done.cancelled() or done.exception() else self._take(loaded))
        await asyncio.wrap_future(swapped)

    async def rest(self) -> None:
        """Give back the memory of keys and values, once the requests made so far are answered: training needs it."""
        await asyncio.wrap_future(self._engine.rest())

    async def close(self) -> None:
        """End the worker thread. Requests that are not finished fail with ``EndpointError``. May be called twice."""
        await asyncio.to_thread(self._engine.close)

    def _take(self, loaded: LoadedModel) -> None:
        self._encoder = ChatEncoder(loaded.tokenizer)
        self._max_context = loaded.max_context
        self._vocabulary: int = _config(loaded).vocab_size
        self.version: str = loaded.version


def check_attention(loaded: LoadedModel) -> None:
    """See that the engine can sample from a model.

    Raises:
        ConfigError: its layers do not all attend to everything before them.
    """
    config = _config(loaded)
    window = getattr(config, "sliding_window", None)
    kinds = set(getattr(config, "layer_types", None) or (["sliding_attention"] if window else []))
    wide = window is not None and window >= loaded.max_context
    partial = kinds - {"full_attention"} - ({"sliding_attention"} if wide else set())
    if partial:
        raise ConfigError(
            f"The local policy cannot sample from {loaded.version}",
            why=f"It has layers of kind {', '.join(sorted(partial))}; only full attention is supported.",
            mend="Serve it behind an OpenAI-compatible endpoint and use openai:MODEL.",
        )


def _placed(loaded: LoadedModel) -> "torch.nn.Module":
    """The model on the device to sample on.

    Raises:
        ConfigError: as ``check_attention``.
    """
    import torch

    check_attention(loaded)
    return loaded.model.to("cuda" if torch.cuda.is_available() else "cpu")


def _config(loaded: LoadedModel) -> Any:
    """The model's transformers configuration."""
    return loaded.model.config


def _stop_ids(loaded: LoadedModel, encoder: ChatEncoder) -> frozenset[int]:
    """The encoder's, with those of the model's own generation settings."""
    settings = getattr(loaded.model, "generation_config", None)
    eos = getattr(settings, "eos_token_id", None)
    return encoder.stop_ids | frozenset(eos if isinstance(eos, list) else [eos] if isinstance(eos, int) else [])
