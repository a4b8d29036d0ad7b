"""New versions of a policy on a vLLM server: published, named, held while they are needed, and taken off."""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from patchgym.errors import ConfigError, DataError, EndpointError, UsageError
from patchgym.policy.models import load_model
from patchgym.policy.server import ServerPolicy
from patchgym.policy.tokens import load_tokens
from patchgym.records import Sample, Sampling
from tests.policy.endpoint import say
from tests.policy.test_server import ASK, COMPLETIONS, ENCODER, no_pause
from tests.policy.tiny import gap, save_tiny_checkpoint, save_tiny_model, tiny_network
from tests.policy.vllm_server import FakeVllm, vllm_server

pytestmark = pytest.mark.train

LOAD, UNLOAD = "/v1/load_lora_adapter", "/v1/unload_lora_adapter"
FIRST, SECOND = "grpo-1-aaaa", "grpo-2-bbbb"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("base") / "tiny")


@pytest.fixture(scope="module")
def first(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("first"), base, FIRST)


@pytest.fixture(scope="module")
def second(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_checkpoint(tmp_path_factory.mktemp("second"), base, SECOND)


def run(
    fake: FakeVllm, model: Path, cache: Path, work: Callable[[ServerPolicy], Awaitable[None]], name: str = "tiny"
) -> None:
    """Let ``work`` use a policy on the server, whose model's files are at ``model``."""

    async def go() -> None:
        tokens = load_tokens(str(model), cache=cache)
        policy = ServerPolicy(name, tokens, base_url=fake.url, sleep=no_pause)
        try:
            await work(policy)
        finally:
            await policy.close()

    asyncio.run(go())


async def one(policy: ServerPolicy, seed: int = 0) -> Sample:
    return await policy.sample(ASK, (), Sampling(max_tokens=4, seed=seed))


def served(fake: FakeVllm) -> set[str]:
    return set(fake.adapters)


def test_a_checkpoint_is_published_sampled_from_by_name_and_replaced(
    base: Path, first: Path, second: Path, tmp_path: Path
) -> None:
    merged = load_model(str(first), cache=tmp_path).model

    async def work(policy: ServerPolicy) -> None:
        before = await one(policy)
        assert before.policy_version == policy.version == load_model(str(base), cache=tmp_path).version
        await policy.use(first)
        assert policy.version == FIRST
        sample = await one(policy)
        assert sample.tokens is not None
        assert sample.policy_version == FIRST
        assert gap(merged, ENCODER.encode(ASK), sample.tokens) < 1e-4
        assert before.tokens is not None
        assert gap(merged, ENCODER.encode(ASK), before.tokens) > 0.1
        await policy.use(second)
        assert (await one(policy)).policy_version == SECOND

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert fake.bodies(LOAD) == [
        {"lora_name": FIRST, "lora_path": str(first / "adapter")},
        {"lora_name": SECOND, "lora_path": str(second / "adapter")},
    ]
    assert fake.bodies(UNLOAD) == [{"lora_name": FIRST}]
    assert [sent["model"] for sent in fake.sampled()] == ["tiny", FIRST, SECOND]


def test_the_listing_is_waited_for_before_the_first_request(base: Path, first: Path, tmp_path: Path) -> None:
    pauses: list[float] = []

    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        nothing = say(200, {"data": [{"id": "tiny", "parent": None, "max_model_len": 512}]})
        fake.instead["/v1/models"] = [nothing] * 4
        await policy.use(first)

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    async def go() -> None:
        policy = ServerPolicy("tiny", load_tokens(str(base), cache=tmp_path), base_url=fake.url, sleep=pause)
        await work(policy)
        await policy.close()

    with vllm_server() as fake:
        asyncio.run(go())
    assert pauses == [0.5] * 2  # the first two listings are the handshake's and the look before loading


def test_an_adapter_that_is_never_listed_is_an_error_with_its_mend(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)

    with vllm_server(lists_adapters=False) as fake, pytest.raises(EndpointError, match="--api-server-count 1"):
        run(fake, base, tmp_path, work)


def test_requests_in_flight_keep_their_version_and_hold_its_adapter(
    base: Path, first: Path, second: Path, tmp_path: Path
) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.gate = threading.Event()
        under_way = [asyncio.ensure_future(one(policy, seed)) for seed in range(3)]
        await asyncio.to_thread(fake.wait_for, COMPLETIONS, 5)
        await policy.use(second)
        assert served(fake) == {FIRST, SECOND}
        fake.gate.set()
        assert {sample.policy_version for sample in await asyncio.gather(*under_way)} == {FIRST}
        assert served(fake) == {SECOND}
        assert (await one(policy)).policy_version == SECOND

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert [sent["model"] for sent in fake.sampled()] == [FIRST] * 3 + [SECOND]


def test_an_adapter_that_a_restart_lost_is_loaded_once_for_all(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.restart()
        samples = await asyncio.gather(*(one(policy, seed) for seed in range(5)))
        assert {sample.policy_version for sample in samples} == {FIRST}

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 2


def test_a_base_that_answers_for_a_lost_adapter_is_not_taken_for_it(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.restart(validates_names=False)
        assert (await one(policy)).policy_version == FIRST

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 2


def test_a_new_version_is_preceded_by_a_new_handshake(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        cool = Sampling(temperature=0.7, max_tokens=2)
        await policy.sample(ASK, (), cool)
        fake.restart(mode="raw_logprobs")
        await policy.use(first)
        with pytest.raises(ConfigError, match="processed_logprobs"):
            await policy.sample(ASK, (), cool)

    with vllm_server(mode="processed_logprobs") as fake:
        run(fake, base, tmp_path, work)


def test_an_adapter_that_is_lost_again_at_once_is_an_endpoint_fault(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.forgets = True
        await one(policy)

    with vllm_server() as fake, pytest.raises(EndpointError, match="does not have the model grpo-1-aaaa"):
        run(fake, base, tmp_path, work)


@pytest.mark.parametrize(
    ("settings", "mend"),
    [
        ({"updating": False}, "--enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"),
        ({"lora": False}, "--enable-lora"),
        ({"max_lora_rank": 2}, "--max-lora-rank 8"),
    ],
    ids=["updating", "lora", "rank"],
)
def test_a_server_that_does_not_take_adapters_is_told_what_to_be_started_with(
    settings: dict[str, Any], mend: str, base: Path, first: Path, tmp_path: Path
) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        version = policy.version
        with pytest.raises(EndpointError) as caught:
            await policy.use(first)
        assert mend in caught.value.mend
        assert (policy.version, (await one(policy)).policy_version) == (version, version)

    with vllm_server(**settings) as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 1


def test_an_adapter_that_the_server_cannot_see_is_an_error_with_its_mend(
    base: Path, first: Path, tmp_path: Path
) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        why = f"Loading lora {FIRST} failed: No adapter found for {first}/adapter"
        fake.instead[LOAD] = [say(404, {"error": {"message": why, "type": "NotFoundError", "code": 404}})]
        await policy.use(first)

    with vllm_server() as fake, pytest.raises(EndpointError, match="under the same path"):
        run(fake, base, tmp_path, work)


def test_an_adapter_that_is_there_already_is_not_loaded_again(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        await one(policy)

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 1


def test_an_adapter_that_another_client_loads_first_is_taken(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.check()
        fake.adapters[FIRST] = (str(first / "adapter"), tiny_network())
        unaware = say(200, {"data": [{"id": "tiny", "parent": None, "max_model_len": 512}]})
        fake.instead["/v1/models"] = [unaware] * 2
        await policy.use(first)

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 1


def test_a_version_that_is_not_let_go_of_stops_nobody(base: Path, first: Path, second: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.instead[UNLOAD] = [say(500, {"error": {"message": "no"}})]
        await policy.use(second)
        assert served(fake) == {FIRST, SECOND}
        assert (await one(policy)).policy_version == SECOND
        assert served(fake) == {SECOND}

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)


def test_a_version_that_is_gone_back_to_is_not_taken_off(base: Path, first: Path, second: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        fake.instead[UNLOAD] = [say(500, {"error": {"message": "no"}})]
        await policy.use(second)
        await policy.use(first)
        assert served(fake) == {FIRST}

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 2


def test_the_base_can_be_gone_back_to(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        before = (await one(policy)).tokens
        await policy.use(first)
        await policy.use(base)
        assert (await one(policy)).tokens == before

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert served(fake) == set()


def test_a_checkpoint_can_be_named_from_the_start(base: Path, first: Path, tmp_path: Path) -> None:
    async def work(policy: ServerPolicy) -> None:
        assert policy.version == FIRST
        await policy.check()
        assert served(fake) == {FIRST}
        assert (await one(policy)).policy_version == FIRST

    with vllm_server(root=str(base)) as fake:
        run(fake, first, tmp_path, work, name=str(first))


def test_a_checkpoint_of_another_model_is_refused(base: Path, first: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with torch.random.fork_rng():
        tiny_network(initializer_range=0.2).save_pretrained(other)
    foreign = save_tiny_checkpoint(tmp_path / "foreign", other)

    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        with pytest.raises(DataError, match="another model"):
            await policy.use(foreign)
        with pytest.raises(UsageError):
            await policy.use(tmp_path / "absent")
        assert policy.version == FIRST

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert json.loads((foreign / "checkpoint.json").read_text())["base"] == str(other)
    assert len(fake.bodies(LOAD)) == 1


def test_a_checkpoint_of_all_weights_is_refused_with_what_to_serve(base: Path, first: Path, tmp_path: Path) -> None:
    whole = save_tiny_checkpoint(tmp_path / "whole", base, "grpo-3-cccc")
    told = json.loads((whole / "checkpoint.json").read_text())
    (whole / "checkpoint.json").write_text(json.dumps({**told, "weights": "full"}))

    async def work(policy: ServerPolicy) -> None:
        await policy.use(first)
        with pytest.raises(ConfigError, match="cannot take grpo-3-cccc over") as caught:
            await policy.use(whole)
        assert str(whole / "model") in (caught.value.mend or "")
        assert policy.version == FIRST

    with vllm_server() as fake:
        run(fake, base, tmp_path, work)
    assert len(fake.bodies(LOAD)) == 1
