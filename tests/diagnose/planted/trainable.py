"""The drawing policy as one that is trained: what it says is drawn, and the ids and log-probabilities are a model's."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from patchgym.content import ObjectStore
from patchgym.policy import Policy
from patchgym.policy.chat import ChatEncoder, exact_sample
from patchgym.policy.models import load_model
from patchgym.records import Message, Sample, Sampling, Task, ToolSpec
from tests.diagnose.planted.drawn import Drawn
from tests.policy.tiny import forward_logprobs, tiny_network, tiny_tokenizer

_CONTEXT = 8192


def save_model(folder: Path) -> Path:
    """A tiny model that reads long conversations."""
    tiny_network(max_position_embeddings=_CONTEXT).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class _Said:
    ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool = True
    cached: int | None = None


class Trainable:
    """A source that takes new versions. ``later`` draws instead of ``drawn`` once a version by reward is in use."""

    def __init__(self, model: Path, cache: Path, drawn: Drawn, later: Drawn | None = None) -> None:
        self.spec = f"local:{model}"
        self._cache, self._drawn, self._later = cache, drawn, later
        self._take(model)

    def _take(self, path: Path) -> None:
        self.loaded = load_model(str(path), cache=self._cache)
        self.encoder = ChatEncoder(self.loaded.tokenizer)

    @property
    def version(self) -> str:
        return self.loaded.version

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        learned = self._later is not None and "grpo" in self.version
        return _Exact(self, (self._later if learned and self._later else self._drawn).for_task(task, objects))

    async def use(self, checkpoint: Path) -> None:
        self._take(checkpoint)

    async def rest(self) -> None:
        pass

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _Exact:
    native_tools = False

    def __init__(self, source: Trainable, drawn: Policy) -> None:
        self.version, self._source, self._drawn = source.version, source, drawn

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        said = await self._drawn.sample(messages, tools, sampling)
        encoder, model = self._source.encoder, self._source.loaded.model
        context, known = encoder.encode_turn(messages)
        answer = encoder.encode_answer(said.message.content)
        whole: list[int] = [*context, *answer]
        logprobs: Any = forward_logprobs(model, whole, sampling.temperature or 1.0)[len(context) - 1 :]
        chosen = logprobs.gather(1, torch.tensor(answer)[:, None])[:, 0].tolist()
        return exact_sample(encoder, context, known, _Said(tuple(answer), tuple(min(0.0, one) for one in chosen)))
