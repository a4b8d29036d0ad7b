"""Sampling from a vLLM server, token in and token out: what is sent, what is taken, what is refused."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError, EndpointRetryable
from patchgym.policy.chat import ChatEncoder
from patchgym.policy.server import ServerPolicy
from patchgym.policy.tokens import ModelTokens
from patchgym.records import Message, Sample, Sampling
from tests.policy.endpoint import say
from tests.policy.tiny import CONTEXT, END, VOCABULARY, gap, tiny_tokenizer
from tests.policy.vllm_server import FakeVllm, vllm_server

pytestmark = pytest.mark.train

ENCODER = ChatEncoder(tiny_tokenizer())
TOKENS = ModelTokens(tiny_tokenizer(), ENCODER, VOCABULARY, ENCODER.stop_ids, None, "tiny@1")
ASK = [Message(role="user", content="mend it")]
COMPLETIONS = "/v1/completions"
_T = TypeVar("_T")
AGREED = 2  # completions that the handshake asks for


@pytest.fixture(autouse=True)
def _no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


async def no_pause(seconds: float) -> None:
    """Do not wait between tries."""


def with_policy(fake: FakeVllm, work: Callable[[ServerPolicy], Awaitable[_T]], **options: Any) -> _T:
    """What ``work`` makes of a policy on the server."""

    async def run() -> _T:
        policy = ServerPolicy("tiny", TOKENS, base_url=fake.url, **{"sleep": no_pause} | options)
        try:
            return await work(policy)
        finally:
            await policy.close()

    return asyncio.run(run())


def sample_of(fake: FakeVllm, messages: list[Message] = ASK, **sampling: Any) -> Sample:
    """One sample of a policy on the server."""
    return with_policy(fake, lambda policy: policy.sample(messages, (), Sampling(**sampling)))


async def conversation(policy: ServerPolicy, turns: int, **sampling: Any) -> list[tuple[list[Message], Sample]]:
    messages, seen = list(ASK), []
    for turn in range(turns):
        sample = await policy.sample(messages, (), Sampling(**{"max_tokens": 9, "seed": turn} | sampling))
        seen.append((messages, sample))
        messages = [*messages, sample.message, Message(role="tool", content="line\n" * turn)]
    return seen


def test_the_request_is_the_one_that_vllm_documents() -> None:
    with vllm_server() as fake:
        sample_of(fake, temperature=1.0, top_p=1.0, max_tokens=7, seed=3)
    sent = fake.bodies(COMPLETIONS)[AGREED]
    prompt = "<|im_start|>system\nYou help.<|im_end|>\n<|im_start|>user\nmend it<|im_end|>\n<|im_start|>assistant\n"
    assert sent.pop("prompt") == tiny_tokenizer().encode(prompt)
    assert json.dumps(sent) == (
        '{"model": "tiny", "max_tokens": 7, "temperature": 1.0, "top_p": 1.0, "top_k": -1, "min_p": 0.0, '
        '"repetition_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "seed": 2238640033393091141, '
        '"stop_token_ids": [256], "logprobs": 0, "return_token_ids": true, "return_tokens_as_token_ids": true, '
        '"skip_special_tokens": false}'
    )
    assert "authorization" not in fake.asked[-1].headers


@pytest.mark.parametrize(
    ("mode", "sampling"),
    [
        ("raw_logprobs", {}),
        ("raw_logprobs", {"temperature": 0.0}),
        ("raw_logprobs", {"temperature": 0.0, "top_p": 0.5}),
        ("processed_logprobs", {}),
        ("processed_logprobs", {"temperature": 0.6}),
        ("processed_logprobs", {"temperature": 1.7}),
        ("processed_logprobs", {"temperature": 0.0}),
    ],
)
def test_log_probs_are_those_of_one_plain_forward_pass(mode: str, sampling: dict[str, float]) -> None:
    with vllm_server(mode=mode) as fake:
        seen = with_policy(fake, lambda policy: conversation(policy, 3, **sampling))
    for messages, sample in seen:
        assert sample.tokens is not None
        temperature = sampling.get("temperature", 1.0) or 1.0
        assert gap(fake.network, ENCODER.encode(messages), sample.tokens, temperature) < 1e-4


def test_later_turns_continue_the_ids_as_sampled() -> None:
    with vllm_server() as fake:
        seen = with_policy(fake, lambda policy: conversation(policy, 4))
    chain: list[int] = []
    for (messages, sample), sent in zip(seen, fake.bodies(COMPLETIONS)[AGREED:], strict=True):
        tokens = sample.tokens
        assert tokens is not None
        chain += tokens.prompt_ids
        assert chain == ENCODER.encode(messages) == sent["prompt"]
        assert sample.usage.prompt_tokens == len(chain)
        chain += tokens.sampled_ids
        assert tokens.sampled_ids == sample.message.sampled_ids
        assert (tokens.mask, tokens.restart) == ((1,) * len(tokens.sampled_ids), False)
    assert len({sent["seed"] for sent in fake.bodies(COMPLETIONS)[AGREED:]}) == 4


def test_the_same_seed_draws_other_numbers_at_every_turn() -> None:
    with vllm_server() as fake:
        with_policy(fake, lambda policy: conversation(policy, 3, seed=5))
        with_policy(fake, lambda policy: conversation(policy, 3, seed=5))
    seeds = [sent["seed"] for sent in fake.bodies(COMPLETIONS)]
    assert len(set(seeds[AGREED : AGREED + 3])) == 3
    assert seeds[AGREED : AGREED + 3] == seeds[2 * AGREED + 3 :]


def test_an_answer_ends_with_its_end_of_turn_or_at_its_length() -> None:
    def ending(token: int) -> Callable[[dict[str, Any]], None]:
        def twist(reply: dict[str, Any]) -> None:
            choice = reply["choices"][0]
            choice["token_ids"][-1], choice["logprobs"]["tokens"][-1] = token, f"token_id:{token}"
            choice["finish_reason"] = "stop" if token == END else "length"

        return twist

    async def both(policy: ServerPolicy) -> tuple[Sample, Sample]:
        await policy.check()
        fake.twist = ending(END)
        stopped = await policy.sample(ASK, (), Sampling(max_tokens=5))
        fake.twist = ending(tiny_tokenizer().encode("A")[0])
        return stopped, await policy.sample(ASK, (), Sampling(max_tokens=5))

    with vllm_server() as fake:
        stopped, cut = with_policy(fake, both)
    assert (stopped.finish_reason, cut.finish_reason) == ("stop", "length")
    assert stopped.message.sampled_ids is not None
    assert stopped.message.sampled_ids[-1] == END
    assert stopped.message.content == ENCODER.decode(stopped.message.sampled_ids[:-1])
    assert cut.message.content.endswith("A")


def test_a_full_context_is_an_error_and_a_nearly_full_one_shortens_the_answer() -> None:
    length = len(ENCODER.encode(ASK))
    long = [Message(role="user", content="mend it" + "." * (CONTEXT - length - 3))]

    async def nearly(policy: ServerPolicy) -> Sample:
        with pytest.raises(ContextLengthError):
            await policy.sample([Message(role="user", content="." * CONTEXT)], (), Sampling())
        return await policy.sample(long, (), Sampling(max_tokens=50))

    with vllm_server() as fake:
        sample = with_policy(fake, nearly)
    assert [sent["max_tokens"] for sent in fake.bodies(COMPLETIONS)[AGREED:]] == [3]
    assert sample.usage.sampled_tokens <= 3


def test_a_context_that_the_server_finds_too_long_ends_the_episode() -> None:
    said = "Input length (9000) exceeds model's maximum context length (8192)."
    with vllm_server() as fake:

        async def work(policy: ServerPolicy) -> None:
            await policy.check()
            fake.instead[COMPLETIONS] = [say(400, {"error": {"message": said, "code": 400}})]
            await policy.sample(ASK, (), Sampling())

        with pytest.raises(ContextLengthError, match="8192"):
            with_policy(fake, work)


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    """A twist that sets one place of a reply's first choice; a callable changes what is there."""

    def twist(reply: dict[str, Any]) -> None:
        place: Any = reply["choices"][0]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to(place[path[-1]]) if callable(to) else to

    return twist


def _all(*twists: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def twist(reply: dict[str, Any]) -> None:
        for one in twists:
            one(reply)

    return twist


def _id(at: int, to: int) -> Callable[[dict[str, Any]], None]:
    return _all(_set("token_ids", at, to=to), _set("logprobs", "tokens", at, to=f"token_id:{to}"))


LAST = ("logprobs", "token_logprobs", -1)


@pytest.mark.parametrize(
    ("twist", "said"),
    [
        (_set("token_ids", to=None), "no token ids.*0.10.2"),
        (_set("prompt_token_ids", to=None), "no token ids"),
        (_set("prompt_token_ids", to=lambda ids: ids[1:]), "not the"),
        (_set("token_ids", to=lambda ids: ids[:-1]), "6 log-probabilities for 5 tokens"),
        (_set("logprobs", to=None), "no log-probabilities"),
        (_set("logprobs", "token_logprobs", to=lambda told: told[:-1]), "5 log-probabilities for 6 tokens"),
        (_set("logprobs", "tokens", 0, to="token_id:9"), "of other tokens"),
        (_set("logprobs", "tokens", 0, to="m"), "of other tokens"),
        (_set(*LAST, to=None), "log-probability is missing"),
        (_set(*LAST, to=float("nan")), "log-probability is nan"),
        (_set(*LAST, to=-9999.0), "log-probability is -9999"),
        (_set(*LAST, to=0.5), "log-probability is 0.5"),
        (_id(0, VOCABULARY), "outside the model's vocabulary"),
        (_id(0, -1), "outside the model's vocabulary"),
        (_id(0, END), "past its end of turn"),
        (_set("finish_reason", to="abort"), "given up.*abort"),
        (_set("finish_reason", to=None), "given up"),
        (_all(*(_set(*path, to=[]) for path in (("token_ids",), LAST[:2], ("logprobs", "tokens")))), "after 0 tokens"),
    ],
    ids=range(18),
)
def test_an_answer_that_is_not_exact_is_an_endpoint_fault_at_once(
    twist: Callable[[dict[str, Any]], None], said: str
) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.twist = twist
        await policy.sample(ASK, (), Sampling(max_tokens=6, seed=1))

    with vllm_server() as fake, pytest.raises(EndpointError, match=said) as caught:
        with_policy(fake, work)
    assert not isinstance(caught.value, EndpointRetryable)
    assert len(fake.bodies(COMPLETIONS)) == AGREED + 1


def test_an_answer_under_another_name_is_refused_after_a_second_look() -> None:
    def rename(reply: dict[str, Any]) -> None:
        reply["model"] = "another"

    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.twist = rename
        await policy.sample(ASK, (), Sampling(max_tokens=6))

    with vllm_server() as fake, pytest.raises(EndpointError, match="answered as 'another'"):
        with_policy(fake, work)


def test_a_nan_that_the_server_cannot_write_is_told_as_one() -> None:
    said = "Out of range float values are not JSON compliant: nan"

    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.instead[COMPLETIONS] = [say(400, {"error": {"message": said, "code": 400}})]
        await policy.sample(ASK, (), Sampling())

    with vllm_server() as fake, pytest.raises(EndpointError, match="is no number"):
        with_policy(fake, work)


def test_a_greedy_draw_is_not_cut() -> None:
    with vllm_server() as fake:
        sample_of(fake, temperature=0.0, top_p=0.5, max_tokens=2)
    assert fake.sampled()[0]["top_p"] == 1.0


def test_more_tokens_than_were_asked_for_are_refused() -> None:
    def longer(reply: dict[str, Any]) -> None:
        choice = reply["choices"][0]
        choice["token_ids"] *= 2
        choice["logprobs"]["tokens"] *= 2
        choice["logprobs"]["token_logprobs"] *= 2

    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.twist = longer
        await policy.sample(ASK, (), Sampling(max_tokens=6, seed=1))

    with vllm_server() as fake, pytest.raises(EndpointError, match="12 tokens where 6"):
        with_policy(fake, work)


@pytest.mark.parametrize("body", ["<html>Welcome</html>", "", "[]", "{}", '{"choices": []}', "[" * 100_000])
def test_an_answer_that_is_none_is_an_endpoint_fault_at_once(body: str) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.instead[COMPLETIONS] = [say(200, body)]
        await policy.sample(ASK, (), Sampling())

    with vllm_server() as fake, pytest.raises(EndpointError, match="does not answer as vLLM does") as caught:
        with_policy(fake, work)
    assert len(str(caught.value)) < 600


def test_an_overload_is_waited_for_as_long_as_the_server_says() -> None:
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def work(policy: ServerPolicy) -> Sample:
        await policy.check()
        busy = {"error": {"message": "The engine is currently busy and cannot accept new requests.", "code": 503}}
        fake.instead[COMPLETIONS] = [say(503, busy, retry_after="7"), say(429, "")]
        return await policy.sample(ASK, (), Sampling(max_tokens=3))

    with vllm_server() as fake:
        sample = with_policy(fake, work, sleep=pause)
    assert sample.usage.sampled_tokens <= 3
    assert pauses[0] == 7
    assert 1.5 <= pauses[1] <= 2.5


def test_what_does_not_pass_in_three_tries_is_an_endpoint_fault() -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.instead[COMPLETIONS] = [say(500, {"error": {"message": "EngineCore died"}})] * 3
        await policy.sample(ASK, (), Sampling())

    with vllm_server() as fake, pytest.raises(EndpointRetryable, match="EngineCore died"):
        with_policy(fake, work)


def test_a_lost_connection_is_an_endpoint_fault() -> None:
    with vllm_server() as fake:
        pass
    with pytest.raises(EndpointRetryable):
        sample_of(fake)


@pytest.mark.parametrize(
    "wrong", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"max_tokens": 0}], ids=lambda wrong: str(wrong)
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    with vllm_server() as fake, pytest.raises(ConfigError):
        sample_of(fake, **wrong)
    assert fake.asked == []


def test_ids_of_another_model_are_refused_before_they_are_sent() -> None:
    foreign = Message(role="assistant", content="", sampled_ids=(40_000,))
    with vllm_server() as fake, pytest.raises(DataError):
        sample_of(fake, [*ASK, foreign])
    assert len(fake.bodies(COMPLETIONS)) == AGREED


def test_the_key_goes_into_the_header_and_never_into_an_error() -> None:
    key = "sk-secret-0123456789"
    refusal = say(401, {"error": f"Unauthorized {key}"})
    with vllm_server() as fake:
        fake.instead["/v1/models"] = [refusal, refusal]
        with pytest.raises(EndpointError, match="OPENAI_API_KEY") as caught:
            with_policy(fake, lambda policy: policy.check(), api_key=key)
        with pytest.raises(EndpointError, match="Set OPENAI_API_KEY"):
            with_policy(fake, lambda policy: policy.check())
    assert fake.asked[0].headers["authorization"] == f"Bearer {key}"
    assert key not in str(caught.value)


@pytest.mark.parametrize("ending", ["", "/", "/v1/"])
def test_the_base_url_may_be_given_with_or_without_its_v1(ending: str) -> None:
    with vllm_server() as fake:
        fake.url = fake.url.removesuffix("/v1") + ending
        assert sample_of(fake, max_tokens=2).usage.sampled_tokens


def test_many_samples_at_once_shake_hands_once_and_in_several_event_loops() -> None:
    with vllm_server() as fake:
        policy = ServerPolicy("tiny", TOKENS, base_url=fake.url)

        async def run() -> None:
            await asyncio.gather(*(policy.sample(ASK, (), Sampling(seed=seed, max_tokens=2)) for seed in range(10)))

        asyncio.run(run())
        asyncio.run(run())
        asyncio.run(policy.close())
    assert len(fake.bodies(COMPLETIONS)) == AGREED + 20
    assert len(fake.bodies("/tokenize")) == 1


def test_cached_tokens_are_none_where_the_server_does_not_tell() -> None:
    def told(reply: dict[str, Any]) -> None:
        reply["usage"]["prompt_tokens_details"] = {"cached_tokens": 16}

    with vllm_server() as fake:
        plain = sample_of(fake, max_tokens=2)
        assert (plain.usage.cached_tokens, plain.policy_version) == (None, "tiny@1")
        fake.twist = told
        assert sample_of(fake, max_tokens=2).usage.cached_tokens == 16
