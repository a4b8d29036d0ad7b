"""A model that writes bugs and statements for a build, through any OpenAI-compatible endpoint.

Its answers are kept beside the ledger: a build that goes on asks nothing twice.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from patchgym.errors import ContextLengthError, EndpointError
from patchgym.policy import Policy
from patchgym.policy.openai import OpenAIPolicy
from patchgym.records import Message, Record, Sample, Sampling, ToolSpec
from patchgym.store.jsonl import append_line, cut_torn_line, read_lines
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.modelled import Asked, Refused, model_bug, model_statement
from patchgym.tasks.bugs.symptoms import Symptom
from patchgym.tasks.recipe import WriterSettings


class _Answer(Record):
    asked: str
    sample: Sample


class Remembered:
    """A policy whose answers are kept in a file: what was asked before is not asked again."""

    def __init__(self, policy: Policy, path: Path) -> None:
        self._policy, self._path = policy, path
        self.version, self.native_tools = policy.version, policy.native_tools
        cut_torn_line(path)
        answers = (_Answer.model_validate_json(line) for _, line in read_lines(path))
        self._known = {answer.asked: answer.sample for answer in answers}

    async def sample(self, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: Sampling) -> Sample:
        """The answer, from the file where it is there.

        Raises:
            ContextLengthError, EndpointError: as the policy.
            StorageError: the disk is full or not writable.
        """
        told = [[message.model_dump(mode="json") for message in messages], sampling.model_dump(mode="json")]
        asked = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
        if asked not in self._known:
            sample = await self._policy.sample(messages, tools, sampling)
            append_line(self._path, _Answer(asked=asked, sample=sample).model_dump_json())
            self._known[asked] = sample
            self.version = self._policy.version
        return self._known[asked]


class Writer:
    """Asks for bugs and statements. ``refused`` counts answers that were not taken, as ``model_`` and the reason."""

    def __init__(self, settings: WriterSettings, answers: Path, policy: Policy | None = None) -> None:
        """``policy`` replaces the endpoint that ``settings`` name.

        Raises:
            ConfigError: ``base_url`` is no URL.
        """
        asked = policy or OpenAIPolicy(settings.model, base_url=settings.base_url or None, native_tools=False)
        self.settings = settings
        self.refused: Counter[str] = Counter()
        self._policy = Remembered(asked, answers)
        self._sampling = Sampling(temperature=settings.temperature, max_tokens=settings.max_tokens)

    async def bug(self, path: str, source: str, name: str) -> Bug | None:
        """A bug in the function ``name`` of the file ``path``; None, and counted, where the model wrote none."""
        try:
            return await model_bug(self._policy, Asked(path, source, name), self._sampling)
        except Refused as refused:
            self.refused[f"model_{refused.reason}"] += 1
        except (ContextLengthError, EndpointError):
            self.refused["model_no_answer"] += 1
        return None

    async def statement(self, package: str, symptoms: Sequence[Symptom], secrets: Collection[str]) -> str:
        """What goes wrong in ``package``; empty, and counted, where the model told it in no way that can be taken."""
        try:
            return await model_statement(self._policy, package, symptoms, self._sampling, secrets=secrets)
        except Refused as refused:
            self.refused[f"model_{refused.reason}"] += 1
        except (ContextLengthError, EndpointError):
            self.refused["model_no_answer"] += 1
        return ""
