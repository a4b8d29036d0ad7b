"""A model behind a vLLM server as a policy: token in, token out, and new versions of it handed over as LoRA adapters.

The conversation is encoded here, by the same encoder that the local policy uses; the server reads ids and answers with
ids and their log-probabilities. Text is decoded from the ids and never encoded again.
"""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError
from patchgym.policy.chat import exact_sample
from patchgym.policy.endpoint import Endpoint, Sleep
from patchgym.policy.handshake import Agreement, shake_hands
from patchgym.policy.models import ADAPTER, MODEL, read_checkpoint
from patchgym.policy.tokens import ModelTokens
from patchgym.policy.vllm import Completion, ModelMissing, VllmServer
from patchgym.records import Message, Sample, Sampling, ToolSpec

_DEFAULT_URL = "http://127.0.0.1:8000/v1"
_LISTED_TRIES, _LISTED_PAUSE_S = 20, 0.5


@dataclass(frozen=True)
class _Version:
    """A version that the server has or can be given. ``adapter`` is its directory; the base model has none."""

    version: str
    adapter: Path | None = None


class ServerPolicy:
    """Samples from a vLLM server. It speaks the plain-text protocol: ``tools`` are ignored.

    Before the first sample the server is asked whether it can be used token by token (``patchgym.policy.handshake``);
    one that was started again meanwhile is asked anew, and given the adapter that it lost. Samples in flight keep the
    version that they were asked for with, and carry its name. Log-probs are those of the distribution drawn from; at
    temperature 0, of the plain softmax.

    A sample is not repeatable to the bit: a server's logits differ with what shares a batch. Requests share its batches
    as they come; how many are under way at once is the caller's choice.
    """

    native_tools = False

    def __init__(
        self,
        model: str,
        tokens: ModelTokens,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout_s: float = 300.0,
        sleep: Sleep | None = None,
    ) -> None:
        """``model`` is the base's name on the server, ``tokens`` what is known of it here. ``base_url`` and ``api_key``
        default to ``$OPENAI_BASE_URL`` (else vLLM's own on this machine) and ``$OPENAI_API_KEY``; without a key none is
        sent. ``timeout_s`` bounds one try of a request. ``sleep`` replaces ``asyncio.sleep`` between tries.

        Raises:
            ConfigError: ``base_url`` is no http URL.
            DataError: the checkpoint that ``tokens`` were loaded for is damaged.
        """
        url = base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL
        root = url.rstrip("/").removesuffix("/v1")
        key = api_key or os.environ.get("OPENAI_API_KEY") or None
        self._server = VllmServer(Endpoint(root, key, timeout_s=timeout_s, sleep=sleep))
        self._model, self._tokens = model, tokens
        self._sleep: Sleep = sleep or asyncio.sleep
        self._go_on(self._of(tokens.checkpoint) if tokens.checkpoint else _Version(tokens.version or model))
        self.agreement: Agreement | None = None
        """What the server agreed to; None before it was asked."""
        self._losses = 0
        self._lock: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._in_flight: Counter[str] = Counter()
        self._retired: set[str] = set()

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """Sample one answer. Where the context leaves fewer than ``max_tokens``, it ends there with ``length``.

        Raises:
            ContextLengthError: the context leaves no room for an answer.
            EndpointRetryable: the server was unreachable, stalled or busy, three times in a row.
            EndpointError: it refused, or its answer cannot be taken token by token.
            ConfigError: ``sampling`` is out of range, or the server's log-probs would be of another distribution.
            DataError: ``sampled_ids`` of a message are no ids of this model.
        """
        if sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.max_tokens < 1:
            raise ConfigError(
                f"Cannot sample with {sampling!r}", mend="temperature >= 0, 0 < top_p <= 1, max_tokens >= 1."
            )
        agreement = await self._agreed()
        agreement.refuse_other(sampling)
        ids, known = self._tokens.encoder.encode_turn(messages)
        if max(ids) >= self._tokens.vocabulary:
            raise DataError(
                "A message holds sampled ids that the model does not know", why="Another model sampled them."
            )
        room = agreement.max_context - len(ids)
        if room < 1:
            raise ContextLengthError(
                "The conversation no longer fits the model", why=f"{len(ids)} tokens of {agreement.max_context}."
            )
        wanted = sampling.model_copy(update={"max_tokens": min(room, sampling.max_tokens)})
        async with self._held() as version:
            done = await self._complete(version, ids, wanted)
        return exact_sample(self._tokens.encoder, ids, known, done, version.version)

    async def check(self) -> None:
        """Shake hands with the server, and give it the checkpoint to sample from, if there is one.

        Raises:
            EndpointRetryable: it cannot be reached.
            EndpointError: it does not have the model, cannot be used token by token, or does not take the checkpoint.
            ConfigError: its tokenizer, weights or log-probs are others than those needed.
        """
        await self._agreed()

    async def use(self, checkpoint: Path) -> None:
        """Go on with a checkpoint of this model, or with the model itself where its own directory is given. The version
        before is taken off the server once its requests are through.

        Raises:
            UsageError, DataError: it is no checkpoint, or one of another model; the version before stays.
            EndpointError: the server cannot be reached or does not take it; likewise.
        """
        new = self._of(checkpoint)
        # Between two versions lies an update, long enough for the server to be started again with other flags unseen.
        agreement = await self._agreed(instead_of=self.agreement)
        async with self._alone():
            await self._publish(new, agreement)
            before = self._now
            self._go_on(new)
            self._retired.discard(new.version)
        if before != new and before.adapter is not None:
            self._retired.add(before.version)
        await self._tidy()

    async def close(self) -> None:
        """Close the connections. What was published stays on the server. May be called twice."""
        await self._server.close()

    async def _complete(self, version: _Version, ids: Sequence[int], sampling: Sampling) -> Completion:
        """One completion; once more where the server turns out to be another than the one that was asked before."""
        agreement = await self._agreed()
        done: Completion | None = None
        try:
            done = await self._ask(version, agreement, ids, sampling)
            if done.fingerprint == agreement.fingerprint and self._server.losses == self._losses:
                return done
        except ModelMissing:
            pass
        before, agreement = agreement, await self._agreed(instead_of=agreement)
        if done is not None and agreement == before:
            return done
        agreement.refuse_other(sampling)
        async with self._alone():
            await self._publish(version, agreement)
        done = await self._ask(version, agreement, ids, sampling)
        if done.fingerprint != agreement.fingerprint:
            raise EndpointError(
                f"Several servers of different kinds answer at {self._server.url}",
                why=f"They call themselves {agreement.fingerprint} and {done.fingerprint}.",
                mend="Start them alike.",
            )
        return done

    async def _ask(self, version: _Version, agreement: Agreement, ids: Sequence[int], sampling: Sampling) -> Completion:
        name = version.version if version.adapter is not None else agreement.base
        return await self._server.complete(
            name, ids, sampling, stop_ids=self._tokens.stop_ids, vocabulary=self._tokens.vocabulary
        )

    async def _agreed(self, instead_of: Agreement | None = None) -> Agreement:
        """What the server agreed to, asked for where it was not yet, or was ``instead_of``."""
        if self.agreement is instead_of or self.agreement is None:
            async with self._alone():
                if self.agreement is instead_of or self.agreement is None:
                    self._losses = self._server.losses
                    agreement = await shake_hands(self._server, self._model, self._tokens)
                    if self._now.adapter is None and self._tokens.version is None:
                        self._go_on(_Version("@".join(filter(None, (agreement.base, agreement.fingerprint)))))
                    await self._publish(self._now, agreement)
                    self.agreement = agreement
        return self.agreement

    async def _publish(self, version: _Version, agreement: Agreement) -> None:
        """Make sure that the server has a version."""
        if version.adapter is None or await self._lists(version.version):
            return
        await self._server.load_adapter(version.version, version.adapter)
        for _ in range(_LISTED_TRIES):
            if await self._lists(version.version):
                return
            await self._sleep(_LISTED_PAUSE_S)
        raise EndpointError(
            f"{self._server.url} took the policy version {version.version} and does not list it",
            mend="Start the server with --api-server-count 1: each of its front ends has adapters of its own.",
        )

    def _go_on(self, version: _Version) -> None:
        self._now = version
        self.version: str = version.version

    async def _lists(self, name: str) -> bool:
        return any(one.name == name for one in await self._server.models())

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[_Version]:
        """The version that samples now, which stays on the server until the block ends."""
        version = self._now
        self._in_flight[version.version] += 1
        try:
            yield version
        finally:
            self._in_flight[version.version] -= 1
            await self._tidy()

    async def _tidy(self) -> None:
        """Take versions off the server that nothing samples from any more. One that it does not let go of is tried
        again later: it costs the server memory and nobody a sample."""
        for version in [one for one in self._retired if not self._in_flight[one]]:
            self._retired.discard(version)
            try:
                await self._server.unload_adapter(version)
            except EndpointError:
                self._retired.add(version)

    def _of(self, path: Path) -> _Version:
        """The version in a directory.

        Raises:
            UsageError, DataError: it is no checkpoint, or one of another model.
            ConfigError: it holds all weights, and no adapter.
        """
        ours = self._tokens.weights
        if ours is not None and self._tokens.version is not None and self._tokens.weights_of(str(path)) == ours:
            return _Version(self._tokens.version)
        info = read_checkpoint(path)
        theirs = self._tokens.weights_of(info.base)
        if ours is not None and theirs is not None and theirs != ours:
            raise DataError(
                f"The checkpoint {path} is one of another model",
                why=f"It belongs on {info.base}, and the server has {self._tokens.version}.",
            )
        if info.weights == "full":
            raise ConfigError(
                f"A server cannot take {info.version} over",
                why="All its weights were trained, and a running server takes LoRA adapters alone.",
                mend=f"Serve {path / MODEL} itself, or train with an adapter.",
            )
        return _Version(info.version, (path / ADAPTER).resolve())

    def _alone(self) -> asyncio.Lock:
        """The lock of the running event loop around what changes on the server."""
        loop = asyncio.get_running_loop()
        if self._lock is None or self._lock[0] is not loop:
            self._lock = (loop, asyncio.Lock())
        return self._lock[1]
