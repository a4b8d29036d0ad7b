"""What a server is asked before it is sampled from, and what is refused then, with the mend."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from patchgym.errors import ConfigError, EndpointError, EndpointRetryable
from patchgym.policy.server import ServerPolicy
from patchgym.policy.tokens import load_tokens
from patchgym.records import Sample, Sampling
from tests.policy.endpoint import say
from tests.policy.test_server import AGREED, ASK, COMPLETIONS, TOKENS, conversation, no_pause, with_policy
from tests.policy.tiny import save_tiny_model, tiny_network, tiny_tokenizer
from tests.policy.vllm_server import FakeVllm, vllm_server

pytestmark = pytest.mark.train

COOL = {"temperature": 0.7}


async def check(policy: ServerPolicy) -> None:
    await policy.check()


def test_the_handshake_asks_for_names_tokens_and_two_temperatures() -> None:
    with vllm_server() as fake:
        with_policy(fake, check)
    assert [one.path for one in fake.asked] == ["/v1/models", "/tokenize", COMPLETIONS, COMPLETIONS, "/version"]
    first, second = fake.bodies(COMPLETIONS)
    assert (first["temperature"], second["temperature"]) == (1.0, 0.5)
    assert first["logprobs"] == second["logprobs"] == 5


def test_a_server_that_returns_no_ids_is_refused_with_the_version_that_does() -> None:
    def old(reply: dict[str, Any]) -> None:
        del reply["choices"][0]["token_ids"], reply["choices"][0]["prompt_token_ids"]

    with vllm_server(twist=old) as fake, pytest.raises(EndpointError, match=r"vLLM 0\.10\.2 or later"):
        with_policy(fake, check)


@pytest.mark.parametrize("sampling", [COOL, {"temperature": 1.3}, {"top_p": 0.9}], ids=str)
def test_raw_log_probs_of_another_distribution_are_refused(sampling: dict[str, float]) -> None:
    with (
        vllm_server(mode="raw_logprobs") as fake,
        pytest.raises(ConfigError, match="--logprobs-mode processed_logprobs"),
    ):
        with_policy(fake, lambda policy: policy.sample(ASK, (), Sampling(**sampling)))
    assert len(fake.bodies(COMPLETIONS)) == AGREED


@pytest.mark.parametrize("mode", ["raw_logits", "cooled_twice"])
def test_what_is_no_log_prob_of_the_sampling_is_refused(mode: str) -> None:
    with (
        vllm_server(mode=mode) as fake,
        pytest.raises((ConfigError, EndpointError), match="--logprobs-mode processed_logprobs"),
    ):
        with_policy(fake, check)


def test_logits_below_0_are_still_no_log_probs() -> None:
    def shift(reply: dict[str, Any]) -> None:
        told = reply["choices"][0]["logprobs"]
        told["token_logprobs"] = [-0.5 for _ in told["token_logprobs"]]
        told["top_logprobs"] = [dict.fromkeys(row, -0.5) for row in told["top_logprobs"]]

    with vllm_server(twist=shift) as fake, pytest.raises(ConfigError, match="logits"):
        with_policy(fake, check)


def test_processed_log_probs_are_taken_at_any_temperature() -> None:
    with vllm_server(mode="processed_logprobs") as fake:
        assert with_policy(fake, lambda policy: conversation(policy, 2, **COOL))


def test_a_model_too_flat_to_tell_is_sampled_at_temperature_1_alone() -> None:
    flat = tiny_network()
    for parameter in flat.parameters():
        parameter.data.zero_()

    async def work(policy: ServerPolicy) -> None:
        await policy.sample(ASK, (), Sampling(max_tokens=2))
        with pytest.raises(ConfigError):
            await policy.sample(ASK, (), Sampling(temperature=0.5, max_tokens=2))

    with vllm_server(network=flat, mode="processed_logprobs") as fake:
        with_policy(fake, work)


def _other_tokenizer() -> Any:
    other = tiny_tokenizer()
    other.add_tokens(["max"])
    return other


def test_a_server_that_reads_text_otherwise_is_refused() -> None:
    with vllm_server(tokenizer=_other_tokenizer()) as fake, pytest.raises(ConfigError, match="another tokenizer"):
        with_policy(fake, check)
    assert fake.bodies(COMPLETIONS) == []


def test_a_server_that_decodes_otherwise_is_refused_where_it_has_no_tokenize() -> None:
    hi = tiny_tokenizer().encode("hi")

    def twist(text: str) -> Callable[[dict[str, Any]], None]:
        def told(reply: dict[str, Any]) -> None:
            choice = reply["choices"][0]
            choice["token_ids"] = list(hi)
            choice["logprobs"] |= {"tokens": [f"token_id:{one}" for one in hi], "token_logprobs": [-1.0, -1.0]}
            choice["finish_reason"], choice["text"] = "length", text

        return told

    missing = say(404, {"error": {"message": "Not Found"}})
    with vllm_server(twist=twist("zz")) as fake:
        fake.instead["/tokenize"] = [missing, missing]
        with pytest.raises(ConfigError, match="another tokenizer"):
            with_policy(fake, check)
        fake.twist = twist("hi")
        with_policy(fake, check)


def test_a_server_with_one_model_of_another_name_has_the_one_that_is_meant() -> None:
    with vllm_server(base="Qwen/Served") as fake:
        with_policy(fake, lambda policy: policy.sample(ASK, (), Sampling(max_tokens=2)))
    assert {sent["model"] for sent in fake.bodies(COMPLETIONS)} == {"Qwen/Served"}


def test_a_server_with_other_models_names_those_that_it_has() -> None:
    cards = [{"id": name, "parent": None, "max_model_len": 99} for name in ("alpha", "beta")]
    with vllm_server() as fake:
        fake.instead["/v1/models"] = [say(200, {"data": cards})]
        with pytest.raises(EndpointError, match="alpha, beta"):
            with_policy(fake, check)


def test_a_server_that_is_not_there_is_told_at_once() -> None:
    with vllm_server() as fake:
        pass
    with pytest.raises(EndpointRetryable, match=r"\(1 try\)"):
        with_policy(fake, check)


def test_weights_that_can_be_seen_and_are_others_are_refused(tmp_path: Path) -> None:
    ours, other = save_tiny_model(tmp_path / "ours"), tmp_path / "other"
    tiny_network(initializer_range=0.2).save_pretrained(other)
    tokens = load_tokens(str(ours), cache=tmp_path / "cache")

    async def agree(fake: FakeVllm) -> str:
        policy = ServerPolicy("tiny", tokens, base_url=fake.url, sleep=no_pause)
        try:
            await policy.check()
            return policy.version
        finally:
            await policy.close()

    def run(root: str) -> str:
        with vllm_server(root=root) as fake:
            return asyncio.run(agree(fake))

    with pytest.raises(ConfigError, match="other weights"):
        run(str(other))
    assert run(str(ours)) == run("Qwen/elsewhere") == tokens.version


def test_a_model_whose_weights_are_elsewhere_is_named_by_the_servers_set_up() -> None:
    nameless = replace(TOKENS, version=None)

    async def version(fake: FakeVllm) -> str | None:
        policy = ServerPolicy("tiny", nameless, base_url=fake.url)
        sample = await policy.sample(ASK, (), Sampling(max_tokens=2))
        assert sample.policy_version == policy.version
        await policy.close()
        return sample.policy_version

    with vllm_server() as fake:
        assert asyncio.run(version(fake)) == "tiny@vllm-0.32.0-0123abcd"


def test_a_server_that_was_started_otherwise_meanwhile_is_asked_anew() -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.sample(ASK, (), Sampling(max_tokens=2, **COOL))
        fake.restart(mode="raw_logprobs", fingerprint="vllm-0.32.0-ffff0000")
        with pytest.raises(ConfigError, match="processed_logprobs"):
            await policy.sample(ASK, (), Sampling(max_tokens=2, **COOL))
        assert (await policy.sample(ASK, (), Sampling(max_tokens=2))).usage.sampled_tokens

    with vllm_server(mode="processed_logprobs") as fake:
        with_policy(fake, work)
    assert len(fake.bodies("/tokenize")) == 2


def _drop(handler: BaseHTTPRequestHandler) -> None:
    """Break the connection without a word."""
    handler.close_connection = True


@pytest.mark.parametrize("mode", ["raw_logprobs", "processed_logprobs"])
def test_after_a_lost_connection_the_server_is_asked_anew(mode: str) -> None:
    async def work(policy: ServerPolicy) -> Sample:
        await policy.check()
        fake.restart(mode=mode)
        fake.instead[COMPLETIONS] = [_drop]
        return await policy.sample(ASK, (), Sampling(max_tokens=2, **COOL))

    with vllm_server(mode="processed_logprobs") as fake:
        if mode == "raw_logprobs":
            with pytest.raises(ConfigError, match="processed_logprobs"):
                with_policy(fake, work)
        else:
            with_policy(fake, work)
            assert len(fake.sampled()) == 2  # the one that was dropped, and the one that was answered
    assert len(fake.bodies("/tokenize")) == 2


def test_servers_of_different_kinds_behind_one_address_are_refused() -> None:
    count = iter(range(100))

    def flip(reply: dict[str, Any]) -> None:
        reply["system_fingerprint"] = f"vllm-{next(count)}"

    with vllm_server(twist=flip) as fake, pytest.raises(EndpointError, match="Several servers of different kinds"):
        with_policy(fake, lambda policy: policy.sample(ASK, (), Sampling(max_tokens=2)))
