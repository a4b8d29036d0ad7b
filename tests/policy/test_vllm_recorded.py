"""What a real vLLM 0.32 (on a CPU, with SmolLM2-135M) answered is read as it is meant, and the fake answers alike.

``docs/serving.md`` says how the answers in ``vllm_recorded.json`` were recorded; machine paths in them are replaced.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from patchgym.errors import ContextLengthError, EndpointError
from patchgym.policy.endpoint import Endpoint
from patchgym.policy.vllm import Completion, ModelMissing, Served, VllmServer
from patchgym.records import Sampling
from tests.policy.endpoint import say
from tests.policy.test_server import no_pause
from tests.policy.vllm_server import FakeVllm, vllm_server

pytestmark = pytest.mark.train

RECORDED: dict[str, Any] = json.loads(Path(__file__).with_name("vllm_recorded.json").read_text(encoding="utf-8"))
CHOICE = RECORDED["completion"]["answer"]["choices"][0]
_T = TypeVar("_T")


def asked(fake: FakeVllm, work: Callable[[VllmServer], Awaitable[_T]]) -> _T:
    async def run() -> _T:
        server = VllmServer(Endpoint(fake.url.removesuffix("/v1"), None, timeout_s=20, sleep=no_pause))
        try:
            return await work(server)
        finally:
            await server.close()

    return asyncio.run(run())


def replayed(name: str, work: Callable[[VllmServer], Awaitable[_T]]) -> _T:
    """What ``work`` makes of one recorded answer."""
    one = RECORDED[name]
    with vllm_server() as fake:
        fake.instead[one["path"]] = [say(one["status"], one["answer"])]
        return asked(fake, work)


def complete(server: VllmServer) -> Awaitable[Completion]:
    return server.complete(
        "smollm2", CHOICE["prompt_token_ids"], Sampling(max_tokens=3), stop_ids={2}, vocabulary=49152
    )


def load(server: VllmServer) -> Awaitable[None]:
    return server.load_adapter("x", Path("/nowhere"))


def test_a_completion_is_taken_as_sampled() -> None:
    done = replayed("completion", complete)
    assert (done.ids, done.text, done.stopped) == ((22234, 346, 28), "Hey you,", False)
    assert done.logprobs == (-3.730679750442505, -6.810791492462158, -1.8720169067382812)
    assert (done.cached, done.fingerprint) == (None, "vllm-0.32.0-256290a2")


def test_the_listing_tells_the_base_from_its_adapters() -> None:
    base, adapter = replayed("models", lambda server: server.models())
    assert base == Served("smollm2", "/models/smollm2", None, 2048)
    assert adapter == Served(
        "grpo-2-bbbb2222", "/runs/checkpoints/grpo-2-bbbb2222/adapter", parent="smollm2", max_context=None
    )


def test_the_version_and_the_tokens_of_a_text() -> None:
    assert replayed("version", lambda server: server.software()) == "0.32.0"
    assert replayed("tokenize", lambda server: server.encode("smollm2", "hi<|im_end|>")) == [6004, 2]


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("no_such_model", ModelMissing, "does not have the model smollm2"),
        ("too_long", ContextLengthError, "2048"),
        ("out_of_vocabulary", EndpointError, "out of vocabulary"),
    ],
)
def test_refused_completions_are_told_apart(name: str, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        replayed(name, complete)


@pytest.mark.parametrize(
    ("name", "mend"), [("no_adapter", "under the same path"), ("rank_too_high", "--max-lora-rank 32")]
)
def test_refused_adapters_come_with_their_mend(name: str, mend: str) -> None:
    with pytest.raises(EndpointError) as caught:
        replayed(name, load)
    assert mend in caught.value.mend


def test_what_is_loaded_already_or_gone_already_is_fine() -> None:
    replayed("already_loaded", load)
    replayed("nothing_to_unload", lambda server: server.unload_adapter("nope"))


def _shape(value: Any) -> Any:
    """The keys of nested JSON."""
    if isinstance(value, dict):
        return {key: _shape(inner) for key, inner in value.items()}
    return [_shape(value[0])] if isinstance(value, list) and value and isinstance(value[0], dict) else None


def _within(ours: Any, theirs: Any) -> bool:
    """Whether each key of ours is one of theirs, all the way down."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return all(key in theirs and _within(inner, theirs[key]) for key, inner in ours.items())
    if isinstance(ours, list) and isinstance(theirs, list):
        return _within(ours[0], theirs[0])
    return ours == theirs or ours is None


def test_the_fake_says_nothing_that_the_real_one_does_not() -> None:
    seen: list[dict[str, Any]] = []
    with vllm_server() as fake:
        fake.twist = seen.append
        asked(fake, lambda server: server.complete("tiny", [72], Sampling(max_tokens=3), stop_ids={}, vocabulary=258))
        cards = fake._cards()
    theirs = RECORDED["completion"]["answer"]
    for place in (seen[0]["choices"][0]["logprobs"], theirs["choices"][0]["logprobs"]):
        place["top_logprobs"] = None
    assert _within(_shape(seen[0]), _shape(theirs))
    assert _within(_shape(cards[0]), _shape(RECORDED["models"]["answer"]["data"][0]))
