"""The small model that patchgym carries a pin for, downloaded, rewritten and sampled from."""

import asyncio

import pytest

from patchgym.policy.chat import ChatEncoder
from patchgym.policy.local import LocalPolicy
from patchgym.policy.models import load_model, resolve_model
from patchgym.records import Message, Sample, Sampling
from tests.policy.tiny import gap

pytestmark = [pytest.mark.train, pytest.mark.network, pytest.mark.slow]


def test_smollm2_is_whole_and_samples_token_exactly(capfd: pytest.CaptureFixture[str]) -> None:
    directory = resolve_model("smollm2")
    loaded = load_model("smollm2")
    assert capfd.readouterr() == ("", "")
    assert resolve_model("smollm2") == directory
    assert loaded.version.startswith("smollm2@")
    weights = dict(loaded.model.named_parameters())
    assert "lm_head.weight" not in weights, "the head is tied to the embeddings"
    assert (directory / "model.safetensors").stat().st_size < 4 * 1.01 * sum(part.numel() for part in weights.values())
    encoder = ChatEncoder(loaded.tokenizer)
    assert encoder.stop_ids == {encoder.end_of_turn} == {2}
    policy = LocalPolicy(loaded, max_batch=3)

    async def conversation(question: str, seed: int) -> list[tuple[list[Message], Sample]]:
        messages, seen = [Message(role="user", content=question)], []
        for turn in range(2):
            sample = await policy.sample(messages, (), Sampling(seed=seed + turn, max_tokens=20))
            seen.append((messages, sample))
            messages = [*messages, sample.message, Message(role="tool", content="def f():\n    return '<|im_end|>'\n")]
        return seen

    async def run() -> None:
        capital = Message(role="user", content="What is the capital of France?")
        answer = await policy.sample([capital], (), Sampling(temperature=0, max_tokens=40))
        assert "Paris" in answer.message.content
        assert answer.finish_reason == "stop"
        questions = [("Say hello.", 1), ("Say hello.", 2), ("Write a Python function that adds two numbers.", 3)]
        for seen in await asyncio.gather(*(conversation(*question) for question in questions)):
            for messages, sample in seen:
                assert sample.tokens is not None
                assert gap(loaded.model, encoder.encode(messages), sample.tokens) < 1e-3
            assert (seen[1][1].usage.cached_tokens or 0) > 30
        await policy.close()

    asyncio.run(run())
