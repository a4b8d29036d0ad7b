"""A model behind an OpenAI-compatible endpoint as a policy, with native tool calls or in plain text."""

import json
import os
from collections.abc import Sequence

from pydantic import BaseModel, Field, ValidationError

from patchgym.errors import EndpointError
from patchgym.policy.endpoint import Endpoint, EndpointRefusal, Sleep
from patchgym.records import Message, Sample, Sampling, StepTokens, ToolCall, ToolSpec, Usage

_DEFAULT_URL = "https://api.openai.com/v1"


class OpenAIPolicy:
    """Samples from ``/chat/completions`` of an endpoint.

    ``version`` is the model's name, with what the endpoint says of itself once it has answered (the name that it
    serves under, its ``system_fingerprint``). It changes in the middle of a run if the endpoint changes.

    Token ids come only with ``token_ids``, which asks for them as vLLM gives them (``return_token_ids``). Endpoints
    report log-probs of the plain softmax, so that they are kept only where that is what was sampled from: at
    temperature 1 and top_p 1. An endpoint renders the whole conversation anew at every turn: ``restart`` is true.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        native_tools: bool = True,
        token_ids: bool = False,
        timeout_s: float = 300.0,
        sleep: Sleep | None = None,
    ) -> None:
        """``base_url`` and ``api_key`` default to ``$OPENAI_BASE_URL`` and ``$OPENAI_API_KEY``; without a key none is
        sent. ``timeout_s`` bounds one try of a request. ``sleep`` replaces ``asyncio.sleep`` between tries.

        Raises:
            ConfigError: ``base_url`` is no http URL.
        """
        self.version = model
        self.native_tools = native_tools
        self._model = model
        self._token_ids = token_ids
        self._limit = "max_tokens"
        self._endpoint = Endpoint(
            base_url or os.environ.get("OPENAI_BASE_URL") or _DEFAULT_URL,
            api_key or os.environ.get("OPENAI_API_KEY") or None,
            timeout_s=timeout_s,
            sleep=sleep,
        )

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """Ask for one answer. Several tool calls in one answer are all kept, in order. Token counts are 0 where the
        endpoint does not say.

        Raises:
            ContextLengthError: the endpoint says that the conversation is too long.
            EndpointRetryable: it was unreachable, stalled, busy or failing, three times in a row.
            EndpointError: it refused the request, or its answer is no answer.
        """
        try:
            reply = await self._ask(messages, tools, sampling)
        except EndpointRefusal as refusal:
            if self._limit != "max_tokens" or "max_completion_tokens" not in refusal.why:
                raise await self._explained(refusal) from refusal
            self._limit = "max_completion_tokens"  # what some newer models insist on
            return await self.sample(messages, tools, sampling)
        choice = reply.choices[0]
        self.version = "@".join(filter(None, (reply.model or self._model, reply.system_fingerprint)))
        calls = tuple(call.as_record(at) for at, call in enumerate(choice.message.tool_calls or []))
        said = choice.message.content or ""
        return Sample(
            message=Message(role="assistant", content=said, tool_calls=calls, sampled_ids=None),
            tokens=_tokens(reply, sampling) if self._token_ids else None,
            usage=reply.usage.as_record() if reply.usage else Usage(prompt_tokens=0, sampled_tokens=0),
            finish_reason="length" if choice.finish_reason == "length" else "tool_calls" if calls else "stop",
        )

    async def check(self) -> None:
        """Find out quickly whether the endpoint answers, takes the key and has the model.

        Raises:
            EndpointRetryable: it cannot be reached.
            EndpointError: it refuses the key, or does not have the model.
        """
        if self._model in await self._models():
            return
        # Not every endpoint lists all that it serves: ask for one token.
        hello = Message(role="user", content="Hello")
        await self.sample([hello], (), Sampling(max_tokens=1))

    async def close(self) -> None:
        """Close the connections. May be called twice."""
        await self._endpoint.close()

    async def _ask(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> "_Reply":
        body: dict[str, object] = {
            "model": self._model,
            "messages": [self._as_json(message) for message in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "seed": sampling.seed,
            self._limit: sampling.max_tokens,
        }
        if self.native_tools and tools:
            body["tools"] = [{"type": "function", "function": tool.model_dump(mode="json")} for tool in tools]
        if self._token_ids:
            body |= {"logprobs": True, "return_token_ids": True}
        text = await self._endpoint.request("POST", "/chat/completions", body)
        try:
            return _Reply.model_validate_json(text)
        except ValidationError as error:
            first = error.errors()[0]
            raise EndpointError(
                f"{self._endpoint.url} did not answer with a chat completion",
                why=f"{'.'.join(map(str, first['loc'])) or 'The body'}: {first['msg']}. It starts {text[:60]!r}.",
                mend="Check that the base URL is that of an OpenAI-compatible API (it mostly ends in /v1).",
            ) from error

    def _as_json(self, message: Message) -> dict[str, object]:
        if message.role == "tool":
            if self.native_tools and message.tool_call_id is not None:
                return {"role": "tool", "tool_call_id": message.tool_call_id, "content": message.content}
            return {"role": "user", "content": message.content}
        if not message.tool_calls:
            return {"role": message.role, "content": message.content}
        calls = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.tool_calls
        ]
        return {"role": message.role, "content": message.content or None, "tool_calls": calls}

    async def _models(self) -> list[str]:
        """What the endpoint offers; nothing where it does not list its models."""
        try:
            listed = _Models.model_validate_json(await self._endpoint.request("GET", "/models", tries=1))
        except ValidationError:
            return []
        except EndpointRefusal as refusal:
            if refusal.status in (401, 403):
                raise await self._explained(refusal) from refusal
            return []
        return [model.id for model in listed.data]

    async def _explained(self, refusal: EndpointRefusal) -> EndpointError:
        """The refusal with what to do about it."""
        mend = "Look into the endpoint's log."
        if refusal.status in (401, 403):
            mend = (
                "The endpoint refuses the key in $OPENAI_API_KEY." if self._endpoint.has_key else "Set OPENAI_API_KEY."
            )
        elif refusal.status == 404:
            offered = await self._models()
            mend = (
                f"Models there: {', '.join(offered[:20])}." if offered else "Check the model's name and the base URL."
            )
        return EndpointError(refusal.what, why=refusal.why, mend=mend)


def _tokens(reply: "_Reply", sampling: Sampling) -> StepTokens | None:
    """The token ids, if the endpoint gave both the context's and the answer's."""
    choice = reply.choices[0]
    prompt_ids, sampled_ids = reply.prompt_token_ids, choice.token_ids
    if prompt_ids is None or sampled_ids is None:
        return None
    told = [token.logprob for token in choice.logprobs.content or []] if choice.logprobs else []
    plain = sampling.temperature == 1 and sampling.top_p == 1 and len(told) == len(sampled_ids)
    return StepTokens(
        prompt_ids=tuple(prompt_ids),
        sampled_ids=tuple(sampled_ids),
        logprobs=tuple(told) if plain else None,
        mask=(1,) * len(sampled_ids),
        restart=True,
    )


class _Function(BaseModel):
    name: str
    arguments: str | dict[str, object] = ""


class _Call(BaseModel):
    id: str | None = None
    function: _Function

    def as_record(self, at: int) -> ToolCall:
        arguments = self.function.arguments
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        return ToolCall(id=self.id or f"call_{at}", name=self.function.name, arguments=text)


class _Said(BaseModel):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _TokenLogprob(BaseModel):
    logprob: float


class _Logprobs(BaseModel):
    content: list[_TokenLogprob] | None = None


class _Choice(BaseModel):
    message: _Said
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    token_ids: list[int] | None = None


class _PromptDetails(BaseModel):
    cached_tokens: int | None = None


class _Usage(BaseModel):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None

    def as_record(self) -> Usage:
        cached = self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None
        return Usage(prompt_tokens=self.prompt_tokens, sampled_tokens=self.completion_tokens, cached_tokens=cached)


class _Reply(BaseModel):
    """A chat completion, as far as it is read. Unknown keys are left alone."""

    choices: list[_Choice] = Field(min_length=1)
    model: str | None = None
    system_fingerprint: str | None = None
    usage: _Usage | None = None
    prompt_token_ids: list[int] | None = None


class _ListedModel(BaseModel):
    id: str


class _Models(BaseModel):
    data: list[_ListedModel]
