"""An OpenAI-compatible endpoint as a policy, against real HTTP servers that answer well, badly, late or not at all."""

import asyncio
import json
import logging
import socket
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from patchgym.errors import ConfigError, ContextLengthError, EndpointError, EndpointRetryable
from patchgym.policy.openai import OpenAIPolicy
from patchgym.records import Message, Sample, Sampling, ToolCall, ToolSpec
from tests.policy.endpoint import Answer, FakeEndpoint, completion, endpoint, say

KEY = "sk-secret-0123456789"
PLAIN = Sampling()
ASK = [Message(role="user", content="fix it")]
TOOL = ToolSpec(name="read_file", description="Read.", parameters={"type": "object", "properties": {}})


class Outcome:
    """What came of one call, and how long it wanted to wait between tries."""

    def __init__(self) -> None:
        self.sample: Sample | None = None
        self.version = ""
        self.pauses: list[float] = []

    @property
    def answer(self) -> Sample:
        assert self.sample is not None
        return self.sample


def ask(
    url: str,
    messages: list[Message] = ASK,
    tools: tuple[ToolSpec, ...] = (),
    sampling: Sampling = PLAIN,
    outcome: Outcome | None = None,
    **options: Any,
) -> Outcome:
    result = outcome or Outcome()

    async def pause(seconds: float) -> None:
        result.pauses.append(seconds)

    async def run() -> None:
        policy = OpenAIPolicy("coder", base_url=url, sleep=pause, **options)
        try:
            result.sample = await policy.sample(messages, tools, sampling)
            result.version = policy.version
        finally:
            await policy.close()

    asyncio.run(run())
    return result


@pytest.fixture(autouse=True)
def _no_key_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_a_text_answer_comes_with_its_usage_and_version() -> None:
    with endpoint(say(200, completion(system_fingerprint="fp_1"))) as fake:
        outcome = ask(fake.url, sampling=Sampling(temperature=0.5, top_p=0.9, max_tokens=7, seed=3))
    answer = outcome.answer
    assert answer.message == Message(role="assistant", content="hello")
    assert (answer.finish_reason, answer.tokens) == ("stop", None)
    assert answer.usage.model_dump() == {"prompt_tokens": 11, "sampled_tokens": 3, "cached_tokens": 5}
    assert outcome.version == "served@fp_1"
    assert fake.asked == [
        {
            "model": "coder",
            "messages": [{"role": "user", "content": "fix it"}],
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": 3,
            "max_tokens": 7,
        }
    ]
    assert "authorization" not in fake.headers[0]


def test_tool_calls_go_both_ways() -> None:
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}},
        {"type": "function", "function": {"name": "submit", "arguments": {}}},
    ]
    history = [
        *ASK,
        Message(role="assistant", content="", tool_calls=(ToolCall(id="c0", name="read_file", arguments="{bad"),)),
        Message(role="tool", content="text", tool_call_id="c0"),
    ]
    with endpoint(say(200, completion(None, "tool_calls", message_tool_calls=calls))) as fake:
        answer = ask(fake.url, history, (TOOL,)).answer
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content == ""
    assert answer.message.tool_calls == (
        ToolCall(id="c1", name="read_file", arguments='{"path": "a.py"}'),
        ToolCall(id="call_1", name="submit", arguments="{}"),
    )
    sent = fake.asked[0]
    assert sent["tools"] == [{"type": "function", "function": TOOL.model_dump()}]
    assert sent["messages"][1:] == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "c0", "type": "function", "function": {"name": "read_file", "arguments": "{bad"}}],
        },
        {"role": "tool", "tool_call_id": "c0", "content": "text"},
    ]


def test_text_mode_sends_no_tools_and_no_tool_role() -> None:
    with endpoint(say(200, completion(finish="length"))) as fake:
        answer = ask(fake.url, [*ASK, Message(role="tool", content="out \udcff")], (TOOL,), native_tools=False).answer
    assert answer.finish_reason == "length"
    assert "tools" not in fake.asked[0]
    assert fake.asked[0]["messages"][1] == {"role": "user", "content": "out \udcff"}


@pytest.mark.parametrize(
    ("sampling", "logprobs"),
    [(Sampling(), (-0.5, -0.25)), (Sampling(temperature=0.7), None), (Sampling(top_p=0.9), None)],
)
def test_token_ids_are_kept_where_the_endpoint_gives_them(
    sampling: Sampling, logprobs: tuple[float, ...] | None
) -> None:
    told = {"content": [{"token": "a", "logprob": -0.5}, {"token": "b", "logprob": -0.25}]}
    body = completion(choice_token_ids=[7, 8], choice_logprobs=told, prompt_token_ids=[1, 2, 3])
    with endpoint(say(200, body)) as fake:
        tokens = ask(fake.url, sampling=sampling, token_ids=True).answer.tokens
        assert ask(fake.url).answer.tokens is None
    assert fake.asked[0]["logprobs"] is True
    assert fake.asked[0]["return_token_ids"] is True
    assert "logprobs" not in fake.asked[1]
    assert tokens is not None
    assert (tokens.prompt_ids, tokens.sampled_ids, tokens.mask, tokens.restart) == ((1, 2, 3), (7, 8), (1, 1), True)
    assert tokens.logprobs == logprobs


def test_the_environment_names_endpoint_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint(say(200, completion())) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.url + "/")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)

        async def run() -> None:
            policy = OpenAIPolicy("coder")
            await policy.sample(ASK, (), Sampling())
            await policy.close()

        asyncio.run(run())
    assert fake.headers[0]["authorization"] == f"Bearer {KEY}"


def test_what_passes_is_tried_again() -> None:
    busy = say(429, {"error": {"message": "slow down"}}, retry_after="7")
    with endpoint(busy, say(503, "down"), say(200, completion())) as fake:
        outcome = ask(fake.url)
    assert outcome.answer.message.content == "hello"
    assert len(fake.asked) == 3
    assert outcome.pauses[0] == 7
    assert 1.5 <= outcome.pauses[1] <= 2.5


def test_a_date_to_retry_after_is_honoured_and_a_far_one_is_not() -> None:
    soon = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    with endpoint(say(429, "", retry_after=soon), say(429, "", retry_after="86400"), say(200, completion())) as fake:
        outcome = ask(fake.url)
    assert 15 <= outcome.pauses[0] <= 20
    assert outcome.pauses[1] == 60


@pytest.mark.parametrize("status", [429, 500, 503])
def test_what_does_not_pass_in_three_tries_is_an_endpoint_fault(status: int) -> None:
    outcome = Outcome()
    with (
        endpoint(say(status, {"error": {"message": "overloaded"}})) as fake,
        pytest.raises(EndpointRetryable) as caught,
    ):
        ask(fake.url, outcome=outcome)
    assert len(fake.asked) == 3
    assert f"HTTP {status}: overloaded (3 tries)" in caught.value.why
    assert 0.75 <= outcome.pauses[0] <= 1.25
    assert 1.5 <= outcome.pauses[1] <= 2.5


def test_a_refused_connection() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(EndpointRetryable) as caught:
            ask(url)
    assert url in caught.value.what
    assert caught.value.mend


def _stall(fake: FakeEndpoint, dribble: bool) -> Answer:
    """Say nothing for as long as the endpoint lives, or send a blank now and then."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("connection", "close")
        handler.end_headers()
        while not fake.released.wait(0.05):
            if dribble:
                handler.wfile.write(b" ")
                handler.wfile.flush()

    return answer


@pytest.mark.parametrize("dribble", [False, True])
def test_a_stalled_endpoint_is_given_up(dribble: bool) -> None:
    with endpoint() as fake:
        fake.answers = [_stall(fake, dribble)]
        started = time.monotonic()
        with pytest.raises(EndpointRetryable, match=r"within 0\.3 s"):
            ask(fake.url, timeout_s=0.3)
        assert len(fake.asked) == 3
        assert time.monotonic() - started < 10


def _dropped(handler: BaseHTTPRequestHandler) -> None:
    say(200, b'{"choices": [', content_length="5000")(handler)
    handler.close_connection = True


def test_a_dropped_connection_is_tried_again() -> None:
    with endpoint(_dropped, say(200, completion())) as fake:
        assert ask(fake.url).answer.message.content == "hello"
    assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "body",
    [
        "<html><body>Welcome</body></html>",
        "",
        '{"choices": [{"message": {"cont',
        "[]",
        "null",
        "{}",
        '{"choices": []}',
        '{"choices": [{}]}',
        '{"choices": [{"message": {"content": 5}}]}',
        '{"choices": [{"message": {"content": "x", "tool_calls": [{"function": {}}]}}]}',
        "[" * 100_000,
        b"\xff\xfe\x00",
        'data: {"choices": [{"delta": {"content": "x"}}]}\n\n',
    ],
    ids=range(13),
)
def test_an_answer_that_is_none_is_an_endpoint_fault_at_once(body: bytes | str) -> None:
    with endpoint(say(200, body)) as fake, pytest.raises(EndpointError, match="chat completion") as caught:
        ask(fake.url)
    assert not isinstance(caught.value, EndpointRetryable)
    assert len(fake.asked) == 1
    assert len(str(caught.value)) < 600


def test_a_flood_is_cut_off() -> None:
    with endpoint(say(200, b" " * 50_000_000)) as fake, pytest.raises(EndpointError, match="more than 8 MB"):
        ask(fake.url)
    assert len(fake.asked) == 1


def test_a_damaged_compression_is_an_endpoint_fault() -> None:
    with (
        endpoint(say(200, b"not gzip", content_encoding="gzip")) as fake,
        pytest.raises(EndpointError, match="damaged"),
    ):
        ask(fake.url)


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_names_its_variable_and_never_the_key(status: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    refusal = say(status, {"error": {"message": f"Incorrect API key provided: {KEY}"}})
    with endpoint(refusal) as fake:
        with pytest.raises(EndpointError, match="OPENAI_API_KEY") as with_key:
            ask(fake.url, api_key=KEY)
        with pytest.raises(EndpointError) as without:
            ask(fake.url)
    assert without.value.mend == "Set OPENAI_API_KEY."
    assert len(fake.asked) == 2
    assert KEY not in str(with_key.value)
    assert KEY not in caplog.text
    assert KEY not in repr(vars(with_key.value))


def test_an_unknown_model_is_answered_with_those_there_are() -> None:
    with endpoint(say(404, {"message": "no model coder"}), models=["alpha", "beta"]) as fake:
        with pytest.raises(EndpointError) as caught:
            ask(fake.url)
        fake.models = None
        with pytest.raises(EndpointError, match="base URL"):
            ask(fake.url)
    assert caught.value.mend == "Models there: alpha, beta."
    assert "no model coder" in caught.value.why


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens.",
        "the request exceeds the available context size (4096 tokens)",
        "Requested token count exceeds the model's maximum context length",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
def test_a_context_that_is_too_long_ends_the_episode(message: str) -> None:
    with endpoint(say(400, {"error": {"message": message}})) as fake, pytest.raises(ContextLengthError):
        ask(fake.url)
    assert len(fake.asked) == 1


def test_other_bad_requests_are_endpoint_faults_at_once() -> None:
    bad = say(400, {"error": {"message": "bad tool schema"}})
    with endpoint(bad) as fake, pytest.raises(EndpointError, match="bad tool schema") as caught:
        ask(fake.url)
    assert not isinstance(caught.value, EndpointRetryable)
    assert len(fake.asked) == 1


def test_a_refusal_that_is_no_sound_json_is_shown_in_part() -> None:
    with endpoint(say(400, "[" * 100_000)) as fake, pytest.raises(EndpointError) as caught:
        ask(fake.url)
    assert "HTTP 400: [[[" in caught.value.why
    assert len(caught.value.why) < 500


def test_a_model_that_wants_another_name_for_the_limit_gets_it() -> None:
    wish = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    with endpoint(say(400, {"error": {"message": wish}}), say(200, completion())) as fake:
        assert ask(fake.url).answer.message.content == "hello"
    assert "max_completion_tokens" in fake.asked[1]
    assert "max_tokens" not in fake.asked[1]


def test_the_check_asks_for_the_list_and_then_for_a_token() -> None:
    async def check(fake: FakeEndpoint) -> None:
        policy = OpenAIPolicy("coder", base_url=fake.url, api_key=KEY)
        await policy.check()
        await policy.close()

    with endpoint(say(200, completion()), models=["coder"]) as fake:
        asyncio.run(check(fake))
        assert fake.asked == []
        fake.models = ["other"]
        asyncio.run(check(fake))
        assert [sent["max_tokens"] for sent in fake.asked] == [1]
        fake.answers = [say(404, {"error": "unknown model"})]
        with pytest.raises(EndpointError, match="Models there: other"):
            asyncio.run(check(fake))
    with pytest.raises(EndpointRetryable, match=r"\(1 try\)"):
        asyncio.run(check(fake))


def test_one_policy_serves_several_event_loops_and_many_calls_at_once() -> None:
    with endpoint(say(200, completion())) as fake:
        policy = OpenAIPolicy("coder", base_url=fake.url)

        async def run() -> None:
            await asyncio.gather(*(policy.sample(ASK, (), Sampling(seed=seed)) for seed in range(20)))

        asyncio.run(run())
        asyncio.run(run())
        asyncio.run(policy.close())
    assert sorted(sent["seed"] for sent in fake.asked) == sorted([*range(20)] * 2)


@pytest.mark.parametrize("url", ["127.0.0.1:8000/v1", "ftp://host/v1", "http://"])
def test_a_base_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        OpenAIPolicy("coder", base_url=url)


def test_the_request_is_json_whatever_the_text_holds() -> None:
    text = '\0 \ud800 € \u2028 "quotes" \\'
    with endpoint(say(200, completion())) as fake:
        ask(fake.url, [Message(role="user", content=text)])
    assert json.loads(json.dumps(fake.asked[0]))["messages"][0]["content"] == text
