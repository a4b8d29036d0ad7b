"""vLLM's own requests and answers, token in and token out, as its OpenAI-compatible server has them since 0.10.2.

A completion is asked for by ids and taken as ids. Nothing of an answer is believed that can be checked against what was
asked: the ids that it read, the name that it answered under, one log-probability for each id, no id after the end.
"""

import hashlib
import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, Field, ValidationError

from patchgym.errors import EndpointError
from patchgym.policy.endpoint import Endpoint, EndpointRefusal
from patchgym.records import Sampling

_M = TypeVar("_M", bound=BaseModel)

_OLD = "Start vLLM 0.10.2 or later there; older versions do not know return_token_ids."
_SLACK = 1e-4  # above 0: float32's rounding of a log-softmax
_IMPOSSIBLE = -9999.0  # what vLLM writes for minus infinity


class ModelMissing(EndpointError):
    """The server does not have the model that was asked for: it was started again without the adapter, say."""


@dataclass(frozen=True)
class Served:
    """A model that the server lists. ``root`` is where it loaded it from, ``parent`` the model that an adapter is on,
    ``max_context`` the most tokens of a context with its answer."""

    name: str
    root: str | None
    parent: str | None
    max_context: int | None


@dataclass(frozen=True)
class Completion:
    """What a server sampled. ``stopped``: it ended by itself; ``cached``: ids of the context that were not read again,
    where told; ``text`` is its own decoding; ``likeliest`` holds log-probabilities of the likeliest first ids, if they
    were asked for; ``fingerprint`` tells one set-up of the server from another."""

    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    cached: int | None
    text: str
    likeliest: dict[int, float]
    fingerprint: str | None


class VllmServer:
    """The requests to one server."""

    def __init__(self, endpoint: Endpoint) -> None:
        """``endpoint`` is at the server's root, above ``/v1``."""
        self._endpoint = endpoint
        self.url = endpoint.url

    @property
    def losses(self) -> int:
        """How often a connection to it was lost or could not be made."""
        return self._endpoint.losses

    async def complete(
        self,
        model: str,
        ids: Sequence[int],
        sampling: Sampling,
        *,
        stop_ids: Collection[int],
        vocabulary: int,
        likeliest: int = 0,
    ) -> Completion:
        """Continue ``ids`` by at most ``sampling.max_tokens``.

        What the model's own generation settings would add on the server (a top-k, a repetition penalty) is switched
        off by name. The seed that is sent is made of the sampling's and the length of the context, so that the turns of
        a conversation do not draw the same numbers.

        Raises:
            ModelMissing: the server does not have ``model``.
            ContextLengthError: it says that the context is too long.
            EndpointRetryable: it was unreachable, stalled or busy, three times in a row.
            EndpointError: it refused, or its answer is no sound one.
        """
        body = {
            "model": model,
            "prompt": list(ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": sampling.top_p if sampling.temperature else 1.0,  # or a greedy draw's would be another softmax
            "top_k": -1,
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "seed": _seed(sampling.seed, len(ids)),
            "stop_token_ids": sorted(stop_ids),
            "logprobs": likeliest,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "skip_special_tokens": False,
        }
        try:
            reply = self._read(_Reply, await self._endpoint.request("POST", "/v1/completions", body))
        except EndpointRefusal as refusal:
            raise self._refused(refusal, model) from refusal
        if reply.model != model:
            raise ModelMissing(
                f"{self.url} does not have the model {model}", why=f"It answered as {reply.model!r} instead."
            )
        return _Answer(self.url, reply, sampling.max_tokens, vocabulary).checked(ids, stop_ids)

    async def models(self) -> list[Served]:
        """What it serves.

        Raises:
            EndpointRetryable: it cannot be reached, by one try.
            EndpointError: it does not list its models.
        """
        try:
            listed = self._read(_Models, await self._endpoint.request("GET", "/v1/models", tries=1))
        except EndpointRefusal as refusal:
            raise self.explained(refusal) from refusal
        return [Served(one.id, one.root, one.parent, one.max_model_len) for one in listed.data]

    async def encode(self, model: str, text: str) -> list[int] | None:
        """A text as the server's tokenizer reads it, special tokens among it; None where it does not tell."""
        body = {"model": model, "prompt": text, "add_special_tokens": False}
        try:
            return self._read(_Tokens, await self._endpoint.request("POST", "/tokenize", body)).tokens
        except EndpointRefusal:
            return None

    async def software(self) -> str | None:
        """Its version; None where it does not tell."""
        try:
            return self._read(_Version, await self._endpoint.request("GET", "/version")).version
        except EndpointError:
            return None

    async def load_adapter(self, name: str, path: Path) -> None:
        """Load the LoRA adapter in the directory ``path`` of the server's machine, to be asked for as ``name``. One of
        that name that is loaded already stays.

        Raises:
            EndpointRetryable: it cannot be reached.
            EndpointError: it refuses; the mend says what to start it with.
        """
        body = {"lora_name": name, "lora_path": str(path)}
        try:
            await self._endpoint.request("POST", "/v1/load_lora_adapter", body, final=(500,))
        except EndpointRefusal as refusal:
            if not re.search(r"already been loaded", refusal.why):
                raise EndpointError(
                    f"{self.url} does not take the policy version {name}",
                    why=refusal.why,
                    mend=_mend_of_loading(refusal, path),
                ) from refusal

    async def unload_adapter(self, name: str) -> None:
        """Forget an adapter. One that is not there is fine.

        Raises:
            EndpointError: it cannot be reached, or refuses.
        """
        try:
            await self._endpoint.request("POST", "/v1/unload_lora_adapter", {"lora_name": name}, final=(500,))
        except EndpointRefusal as refusal:
            if refusal.status != 404:
                raise

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        await self._endpoint.close()

    def explained(self, refusal: EndpointRefusal) -> EndpointError:
        """A refusal with what to do about it."""
        mend = "Look into the server's log."
        if refusal.status in (401, 403):
            mend = "The server refuses the key in $OPENAI_API_KEY." if self._endpoint.has_key else "Set OPENAI_API_KEY."
        elif refusal.status == 404:
            mend = "Check that --base-url is that of a vLLM server."
        return EndpointError(refusal.what, why=refusal.why, mend=mend)

    def _refused(self, refusal: EndpointRefusal, model: str) -> EndpointError:
        if refusal.status == 404 and "does not exist" in refusal.why:
            return ModelMissing(f"{self.url} does not have the model {model}", why=refusal.why)
        if "Out of range float values" in refusal.why:  # what its JSON says of a NaN
            return _unsound(self.url, "A log-probability is no number", _NOT_A_NUMBER)
        return self.explained(refusal)

    def _read(self, kind: type[_M], text: str) -> _M:
        try:
            return kind.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise EndpointError(
                f"{self.url} does not answer as vLLM does",
                why=f"{'.'.join(map(str, first['loc'])) or 'The body'}: {first['msg']}. It starts {text[:60]!r}.",
                mend="Check that --base-url is that of a vLLM server.",
            ) from error


@dataclass(frozen=True)
class _Answer:
    """A reply that is looked at against what was asked."""

    url: str
    reply: "_Reply"
    max_tokens: int
    vocabulary: int

    def checked(self, asked: Sequence[int], stop_ids: Collection[int]) -> Completion:
        """What it holds.

        Raises:
            EndpointError: it is not what was asked for, or not whole.
        """
        reply, choice = self.reply, self.reply.choices[0]
        if choice.token_ids is None or choice.prompt_token_ids is None:
            raise self._unsound("It holds no token ids", _OLD)
        if choice.prompt_token_ids != list(asked):
            raise self._unsound(f"It read {len(choice.prompt_token_ids)} ids that are not the {len(asked)} it was sent")
        ids = tuple(choice.token_ids)
        if not ids or choice.finish_reason not in ("stop", "length"):
            raise self._unsound(f"It was given up after {len(ids)} tokens (finish_reason {choice.finish_reason!r})")
        if len(ids) > self.max_tokens:
            raise self._unsound(f"It has {len(ids)} tokens where {self.max_tokens} were asked for")
        if not 0 <= min(ids) <= max(ids) < self.vocabulary:
            raise self._unsound(f"It holds ids outside the model's vocabulary of {self.vocabulary}", _OTHER_MODEL)
        if any(one in stop_ids for one in ids[:-1]):
            raise self._unsound("It goes on past its end of turn")
        details = reply.usage.prompt_tokens_details if reply.usage else None
        return Completion(
            ids=ids,
            logprobs=self._logprobs(ids),
            stopped=choice.finish_reason == "stop",
            cached=details.cached_tokens if details else None,
            text=choice.text,
            likeliest=self._likeliest(),
            fingerprint=reply.system_fingerprint,
        )

    def _logprobs(self, ids: tuple[int, ...]) -> tuple[float, ...]:
        told = self.reply.choices[0].logprobs
        if told is None:
            raise self._unsound("It holds no log-probabilities")
        if not len(told.token_logprobs) == len(told.tokens) == len(ids):
            raise self._unsound(f"It has {len(told.token_logprobs)} log-probabilities for {len(ids)} tokens")
        if told.tokens != [f"token_id:{one}" for one in ids]:
            raise self._unsound("Its log-probabilities are of other tokens than its ids", _OLD)
        found = tuple(one for one in told.token_logprobs if one is not None)
        bad = [one for one in found if not _IMPOSSIBLE < one <= _SLACK or math.isnan(one)]
        if bad or len(found) < len(ids):
            mend = "Start vLLM with --logprobs-mode processed_logprobs." if bad and bad[0] > 0 else _NOT_A_NUMBER
            raise self._unsound(f"A log-probability is {bad[0] if bad else 'missing'}", mend)
        return found

    def _likeliest(self) -> dict[int, float]:
        told = self.reply.choices[0].logprobs
        tops = told.top_logprobs if told else None
        first = tops[0] if tops else None
        ids = {name.removeprefix("token_id:"): value for name, value in (first or {}).items()}
        return {int(name): value for name, value in ids.items() if name.isdecimal() and value > _IMPOSSIBLE}

    def _unsound(self, why: str, mend: str = "") -> EndpointError:
        return _unsound(self.url, why, mend)


def _unsound(url: str, why: str, mend: str = "") -> EndpointError:
    return EndpointError(f"The answer of {url} cannot be taken token by token", why=f"{why}.", mend=mend)


_NOT_A_NUMBER = "Look into the server's log: its model may overflow in the dtype that it runs in."
_OTHER_MODEL = "Check that the server has the model whose tokenizer is used here."


def _mend_of_loading(refusal: EndpointRefusal, path: Path) -> str:
    """What to do about an adapter that was not taken, by what vLLM says."""
    said = refusal.why
    if refusal.status == 404 and not re.search("adapter", said, re.IGNORECASE):
        return "Start the server with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment."
    if rank := re.search(r"rank (\d+) is greater than max_lora_rank", said):
        return f"Start the server with --max-lora-rank {_next_rank(int(rank.group(1)))}."
    if re.search("no adapter found|no such file", said, re.IGNORECASE):
        return f"The server must see {path} under the same path: share that folder with its machine."
    if re.search("lora is not enabled", said, re.IGNORECASE):
        return "Start the server with --enable-lora."
    return "Look into the server's log."


def _next_rank(rank: int) -> int:
    """The least rank that vLLM can be started with and that holds ``rank``."""
    return next((one for one in (8, 16, 32, 64, 128, 256, 320) if one >= rank), 512)


def _seed(seed: int, length: int) -> int:
    """63 bits, which vLLM's 64 signed ones hold."""
    return int.from_bytes(hashlib.sha256(f"{seed}/{length}".encode()).digest()[:8], "big") >> 1


class _Logprobs(BaseModel):
    tokens: list[str] = Field(default_factory=list)
    token_logprobs: list[float | None] = Field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(BaseModel):
    text: str
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None
    prompt_token_ids: list[int] | None = None


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens_details: _PromptDetails | None = None


class _Reply(BaseModel):
    """A completion, as far as it is read. Unknown keys are left alone."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    system_fingerprint: str | None = None
    usage: _Usage | None = None


class _Card(BaseModel):
    id: str
    root: str | None = None
    parent: str | None = None
    max_model_len: int | None = None


class _Models(BaseModel):
    data: list[_Card]


class _Tokens(BaseModel):
    tokens: list[int]


class _Version(BaseModel):
    version: str
