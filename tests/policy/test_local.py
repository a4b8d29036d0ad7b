"""A local model samples token-exactly: batched, cached over turns, repeatable."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
import torch

from patchgym.errors import ConfigError, ContextLengthError, DataError, EndpointError, UsageError
from patchgym.policy.local import LocalPolicy, open_local
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
)

pytestmark = pytest.mark.train


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


async def episodes(policy: LocalPolicy, count: int, turns: int, **sampling: Any) -> list[list[tuple[list[Message], Sample]]]:
    return list(await asyncio.gather(*(episode(policy, salt, turns, **sampling) for salt in range(count))))


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "mistral", "gemma"])
def test_log_probs_are_those_of_one_plain_forward_pass(kind: str) -> None:
    network = tiny_network(kind, **({"sliding_window": None} if kind == "mistral" else {}))
    policy = LocalPolicy(tiny_loaded(network), max_batch=3)

    async def run() -> None:
        for conversation in await episodes(policy, 5, 4):
            for messages, sample in conversation:
                assert sample.tokens is not None
                assert gap(network, policy.encode(messages), sample.tokens) < 1e-4
        await policy.close()

    asyncio.run(run())
