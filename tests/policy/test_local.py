"""A local model samples token-exactly: batched, cached over turns, repeatable."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError, UsageError
from patchgym.policy.chat import ChatEncoder
from patchgym.policy.local import LocalPolicy
from patchgym.policy.models import load_model
from patchgym.records import Message, Sample, Sampling
from tests.policy.tiny import (
    END,
    forward_logprobs,
    gap,
    save_tiny_checkpoint,
    save_tiny_model,
    tiny_loaded,
    tiny_network,
    tiny_tokenizer,
)

pytestmark = pytest.mark.train

ENCODER = ChatEncoder(tiny_tokenizer())


def opening(salt: int) -> list[Message]:
    return [Message(role="user", content=f"Task {salt}: " + "mend it. " * (1 + 2 * salt))]


async def episode(policy: LocalPolicy, salt: int, turns: int, **sampling: Any) -> list[tuple[list[Message], Sample]]:
    """The samples of one conversation, each with the messages that it was sampled for."""
    messages, seen = opening(salt), []
    for turn in range(turns):
        settings = {"max_tokens": 6 + salt, "seed": 100 * salt + turn} | sampling
        sample = await policy.sample(messages, (), Sampling(**settings))
        seen.append((messages, sample))
        messages = [*messages, sample.message, Message(role="tool", content="line\n" * (salt + turn))]
    return seen


async def episodes(
    policy: LocalPolicy, count: int, turns: int, **sampling: Any
) -> list[list[tuple[list[Message], Sample]]]:
    return list(await asyncio.gather(*(episode(policy, salt, turns, **sampling) for salt in range(count))))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma"])
def test_log_probs_are_those_of_one_plain_forward_pass(kind: str) -> None:
    network = tiny_network(kind, **({"sliding_window": None} if kind == "mistral" else {}))
    policy = LocalPolicy(tiny_loaded(network), max_batch=3)

    async def run() -> None:
        for conversation in await episodes(policy, 5, 4):
            for messages, sample in conversation:
                assert sample.tokens is not None
                assert gap(network, ENCODER.encode(messages), sample.tokens) < 1e-4
        await policy.close()

    asyncio.run(run())


@pytest.mark.parametrize("settings", [{"temperature": 0.6}, {"temperature": 1.7}])
def test_temperature_is_part_of_the_log_probs(settings: dict[str, float]) -> None:
    loaded = tiny_loaded()
    policy = LocalPolicy(loaded)

    async def run() -> None:
        for messages, sample in await episode(policy, 1, 2, **settings):
            assert sample.tokens is not None
            assert gap(loaded.model, ENCODER.encode(messages), sample.tokens, settings["temperature"]) < 1e-4
        await policy.close()

    asyncio.run(run())


def test_greedy_takes_the_likeliest_and_a_nucleus_stays_inside_it() -> None:
    loaded = tiny_loaded()
    policy = LocalPolicy(loaded)

    async def run() -> None:
        context = ENCODER.encode(opening(1))
        greedy = (await policy.sample(opening(1), (), Sampling(temperature=0, max_tokens=5))).tokens
        assert greedy is not None
        logprobs_TV = forward_logprobs(loaded.model, [*context, *greedy.sampled_ids])[len(context) - 1 :]
        assert greedy.sampled_ids == tuple(logprobs_TV.argmax(-1).tolist())
        assert greedy.logprobs == pytest.approx(logprobs_TV.max(-1).values.tolist(), abs=1e-4)
        cut = (await policy.sample(opening(1), (), Sampling(top_p=0.3, max_tokens=5))).tokens
        assert cut is not None
        assert cut.logprobs is not None
        logprobs_TV = forward_logprobs(loaded.model, [*context, *cut.sampled_ids])[len(context) - 1 :]
        for at, (token, logprob) in enumerate(zip(cut.sampled_ids, cut.logprobs, strict=True)):
            sorted_V, order_V = logprobs_TV[at].exp().sort(descending=True)
            size = int((sorted_V.cumsum(0) < 0.3).sum()) + 1
            assert token in order_V[:size].tolist()
            assert logprob == pytest.approx(
                float((logprobs_TV[at, token].exp() / sorted_V[:size].sum()).log()), abs=1e-4
            )
        await policy.close()

    asyncio.run(run())


def test_a_sample_depends_on_its_seed_and_not_on_its_neighbours() -> None:
    async def run(batch: int, count: int) -> list[tuple[int, ...]]:
        policy = LocalPolicy(tiny_loaded(), max_batch=batch)
        conversations = await episodes(policy, count, 3)
        await policy.close()
        return [sample.message.sampled_ids or () for conversation in conversations for _, sample in conversation]

    together, alone = asyncio.run(run(8, 5)), asyncio.run(run(1, 5))
    assert together == alone
    assert together[:6] == asyncio.run(run(8, 2))

    async def seeds() -> set[tuple[int, ...]]:
        policy = LocalPolicy(tiny_loaded())
        samples = [policy.sample(opening(2), (), Sampling(seed=seed, max_tokens=8)) for seed in range(8)]
        drawn = {sample.message.sampled_ids or () for sample in await asyncio.gather(*samples)}
        await policy.close()
        return drawn

    assert len(asyncio.run(seeds())) == 8


def test_step_tokens_chain_into_the_whole_context() -> None:
    policy = LocalPolicy(tiny_loaded())

    async def run() -> None:
        chain: list[int] = []
        for turn, (messages, sample) in enumerate(await episode(policy, 2, 4)):
            tokens = sample.tokens
            assert tokens is not None
            chain += tokens.prompt_ids
            assert chain == ENCODER.encode(messages)
            assert sample.usage.prompt_tokens == len(chain)
            # All but the last sampled id of the turn before was computed already, and is not read again.
            assert sample.usage.cached_tokens == (len(chain) - len(tokens.prompt_ids) - 1 if turn else 0)
            chain += tokens.sampled_ids
            assert tokens.mask == (1,) * len(tokens.sampled_ids)
            assert tokens.logprobs is not None
            assert len(tokens.logprobs) == len(tokens.sampled_ids) == sample.usage.sampled_tokens
            assert tokens.sampled_ids == sample.message.sampled_ids
            assert not tokens.restart
        await policy.close()

    asyncio.run(run())


def test_an_answer_ends_with_its_end_of_turn_or_at_its_length() -> None:
    network = tiny_network(tie_word_embeddings=False)
    network.lm_head.weight[END] *= 3
    policy = LocalPolicy(tiny_loaded(network))

    async def run() -> None:
        samples = [policy.sample(opening(1), (), Sampling(seed=seed, max_tokens=12)) for seed in range(40)]
        for sample in await asyncio.gather(*samples):
            ids = sample.message.sampled_ids or ()
            assert END not in ids[:-1]
            if sample.finish_reason == "stop":
                assert ids[-1] == END
                assert sample.message.content == ENCODER.decode(ids[:-1])
            else:
                assert sample.finish_reason == "length"
                assert len(ids) == 12
                assert ids[-1] != END
        reasons = {
            (await policy.sample(opening(1), (), Sampling(seed=s, max_tokens=12))).finish_reason for s in range(40)
        }
        assert reasons == {"stop", "length"}
        await policy.close()

    asyncio.run(run())


def test_a_full_context_is_an_error_and_a_nearly_full_one_shortens_the_answer() -> None:
    length = len(ENCODER.encode(opening(1)))

    async def run(room: int) -> Sample:
        policy = LocalPolicy(tiny_loaded(max_context=length + room))
        try:
            return await policy.sample(opening(1), (), Sampling(max_tokens=50))
        finally:
            await policy.close()

    with pytest.raises(ContextLengthError):
        asyncio.run(run(0))
    nearly = asyncio.run(run(3))
    assert nearly.usage.sampled_tokens == 3
    assert nearly.finish_reason == "length"


@pytest.mark.parametrize(
    "wrong", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"max_tokens": 0}], ids=lambda wrong: str(wrong)
)
def test_settings_out_of_range_are_refused(wrong: dict[str, Any]) -> None:
    async def run() -> None:
        policy = LocalPolicy(tiny_loaded())
        with pytest.raises(ConfigError):
            await policy.sample(opening(1), (), Sampling(**wrong))
        await policy.close()

    asyncio.run(run())


def test_ids_of_another_model_are_refused() -> None:
    async def run() -> None:
        policy = LocalPolicy(tiny_loaded())
        foreign = Message(role="assistant", content="", sampled_ids=(40_000,))
        with pytest.raises(DataError):
            await policy.sample([*opening(1), foreign], (), Sampling())
        await policy.close()

    asyncio.run(run())


def test_models_that_do_not_see_everything_before_them_are_refused() -> None:
    with pytest.raises(ConfigError, match="sliding_attention"):
        LocalPolicy(tiny_loaded(tiny_network("mistral", sliding_window=64)))


def test_a_cancelled_sample_and_a_closed_policy_leave_nobody_waiting() -> None:
    async def run() -> None:
        policy = LocalPolicy(tiny_loaded(), max_batch=1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await asyncio.gather(*(policy.sample(opening(1), (), Sampling(max_tokens=400)) for _ in range(20)))
        after = await policy.sample(opening(1), (), Sampling(max_tokens=2))
        assert after.usage.sampled_tokens <= 2
        await policy.close()
        await policy.close()
        with pytest.raises(EndpointError):
            await policy.sample(opening(1), (), Sampling())

    asyncio.run(run())


def test_a_checkpoint_takes_over_between_batches(tmp_path: Path) -> None:
    base = save_tiny_model(tmp_path / "base")
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", base)
    merged = load_model(str(checkpoint)).model

    async def run() -> None:
        policy = LocalPolicy(load_model(str(base)), max_batch=4)
        before = (await policy.sample(opening(1), (), Sampling())).tokens
        base_version = policy.version
        await policy.load_checkpoint(checkpoint)
        assert policy.version == "grpo-1-abc"
        sample = await policy.sample(opening(1), (), Sampling())
        assert sample.tokens is not None
        assert sample.usage.cached_tokens == 0
        assert gap(merged, ENCODER.encode(opening(1)), sample.tokens) < 1e-4
        assert before is not None
        assert gap(merged, ENCODER.encode(opening(1)), before) > 0.1
        with pytest.raises(UsageError):
            await policy.load_checkpoint(tmp_path / "absent")
        assert policy.version == "grpo-1-abc"
        await policy.load_checkpoint(base)
        assert policy.version == base_version
        again = (await policy.sample(opening(1), (), Sampling())).tokens
        assert again == before
        await policy.close()

    asyncio.run(run())
