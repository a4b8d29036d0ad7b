"""From a policy's name on the command line to something that acts on a task."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from patchgym.agent import USUAL_TOOLS
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.policy import Policy
from patchgym.policy.gold import gold_script
from patchgym.policy.noisy import NoisyPolicy
from patchgym.policy.pool import EndpointPool, Member
from patchgym.policy.scripted import ScriptedPolicy, ScriptFile
from patchgym.records import Task

KINDS = "gold, noop, noisy[:CHANCE], scripted:FILE, local:PATH (or local:smollm2), vllm:MODEL, openai:MODEL"


class PolicySource(Protocol):
    """Gives each episode its policy."""

    @property
    def spec(self) -> str:
        """The name that it was opened by."""
        ...

    @property
    def version(self) -> str:
        """Exactly what samples now."""
        ...

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        """The policy for one episode of ``task``, whose trees are in ``objects``. A model learns nothing of it here."""
        ...

    async def check(self) -> None:
        """Make sure that the policy can answer at all, before anything is started.

        Raises:
            PrerequisiteError, EndpointError, UsageError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Release what it holds. May be called twice."""
        ...


class TrainableSource(PolicySource, Protocol):
    """A source whose policy is trained: it goes on with each new checkpoint."""

    async def use(self, checkpoint: Path) -> None:
        """Sample from ``checkpoint`` from now on.

        Raises:
            UsageError, DataError: it is no checkpoint of this model; the old version stays.
            EndpointError: the server that samples does not take it; likewise.
        """
        ...

    async def rest(self) -> None:
        """Give back the memory that sampling holds between turns, where it is this process's."""
        ...


@dataclass(frozen=True)
class PolicyOptions:
    """Where an endpoint is (or several of one model, with commas between them), which protocol to use with it, how
    many sequences a local model samples at once, where the tokenizer of a server's model is, if not with the model, and
    the tools that a script is written for."""

    base_url: str | None = None
    native_tools: bool = True
    batch: int = 16
    tokenizer: str | None = None
    tools: tuple[str, ...] = USUAL_TOOLS


class _Gold:
    spec = "gold"
    version = "gold"

    def __init__(self, tools: tuple[str, ...]) -> None:
        self._tools = tools

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return ScriptedPolicy(gold_script(task, objects, self._tools), self.version)

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _Noisy:
    def __init__(self, spec: str, noise: float) -> None:
        self.spec = self.version = spec
        self._noise = noise

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return NoisyPolicy(task, objects, self._noise, self.version)

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


class _Fixed:
    """Scripts that do not depend on the task's solution."""

    def __init__(self, spec: str, scripts: ScriptFile | None) -> None:
        self.spec = spec
        self.version = scripts.version if scripts else spec
        self._scripts = scripts

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return self._scripts.for_task(task.id) if self._scripts else ScriptedPolicy([], self.version)

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


class LocalSource:
    """A model in this process, shared by all episodes. ``use`` goes on with another checkpoint of it."""

    def __init__(self, spec: str, target: str, options: PolicyOptions) -> None:
        """Load the model that ``target`` names.

        Raises:
            UsageError, DataError, PrerequisiteError: as ``patchgym.policy.models.load_model``.
        """
        from patchgym.policy.local import LocalPolicy
        from patchgym.policy.models import load_model

        self.spec = spec
        self._policy = LocalPolicy(load_model(target, merge_adapter=True), max_batch=options.batch)

    @property
    def version(self) -> str:
        """The version that samples now."""
        return self._policy.version

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        """The one policy, whatever the task."""
        return self._policy

    async def use(self, checkpoint: Path) -> None:
        """Sample from ``checkpoint`` from now on.

        Raises:
            UsageError, DataError: it is no checkpoint; the old version stays.
        """
        await self._policy.load_checkpoint(checkpoint)

    async def rest(self) -> None:
        """Give back the memory that sampling holds between turns."""
        await self._policy.rest()

    async def check(self) -> None:
        """Nothing to check: the model is loaded."""

    async def close(self) -> None:
        """End the sampling thread."""
        await self._policy.close()


class ServerSource:
    """A model on a vLLM server, shared by all episodes and sampled token by token. ``use`` hands it another checkpoint
    as a LoRA adapter."""

    def __init__(self, spec: str, target: str, options: PolicyOptions) -> None:
        """Read the tokenizer of the model, or of the checkpoint, that ``target`` names. The server is not asked yet.

        Raises:
            UsageError, DataError, PrerequisiteError, ConfigError: as ``patchgym.policy.tokens.load_tokens``.
        """
        from patchgym.policy.server import ServerPolicy
        from patchgym.policy.tokens import load_tokens

        self.spec = spec
        self._policy = ServerPolicy(target, load_tokens(target, options.tokenizer), base_url=options.base_url)

    @property
    def version(self) -> str:
        """The version that samples now."""
        return self._policy.version

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        """The one policy, whatever the task."""
        return self._policy

    @property
    def member(self) -> Member:
        """The policy, as one of a pool."""
        return self._policy

    async def use(self, checkpoint: Path) -> None:
        """Sample from ``checkpoint`` from now on; requests under way keep the version they were made with.

        Raises:
            UsageError, DataError: it is no checkpoint of this model; the old version stays.
            EndpointError: the server does not take it; likewise.
        """
        await self._policy.use(checkpoint)

    async def rest(self) -> None:
        """Nothing to give back: the memory is the server's."""

    async def check(self) -> None:
        """Ask the server whether it can be sampled from token by token.

        Raises:
            EndpointError, ConfigError: it cannot.
        """
        await self._policy.check()

    async def close(self) -> None:
        """Close the connections."""
        await self._policy.close()


class _Endpoint:
    def __init__(self, spec: str, model: str, options: PolicyOptions) -> None:
        from patchgym.policy.openai import OpenAIPolicy

        self.spec = spec
        self._policy = OpenAIPolicy(model, base_url=options.base_url, native_tools=options.native_tools)

    @property
    def member(self) -> Member:
        """The policy, as one of a pool."""
        return self._policy

    @property
    def version(self) -> str:
        return self._policy.version

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return self._policy

    async def check(self) -> None:
        await self._policy.check()

    async def close(self) -> None:
        await self._policy.close()


class _Pooled:
    """One model at several endpoints."""

    def __init__(self, spec: str, sources: "Mapping[str, ServerSource | _Endpoint]") -> None:
        self.spec = spec
        self._pool = EndpointPool({url: source.member for url, source in sources.items()})

    @property
    def version(self) -> str:
        return self._pool.version

    def for_task(self, task: Task, objects: ObjectStore) -> Policy:
        return self._pool

    async def check(self) -> None:
        await self._pool.check()

    async def close(self) -> None:
        await self._pool.close()


def open_policy(spec: str, options: PolicyOptions) -> PolicySource:
    """The policy source that ``spec`` names. Local models are loaded here, which takes seconds.

    Raises:
        UsageError: there is no such policy, file or model directory.
        PrerequisiteError: a library or a download that it needs is missing.
    """
    kind, _, target = spec.partition(":")
    match kind:
        case "gold" if not target:
            return _Gold(options.tools)
        case "noisy" if (noise := _chance(target or "0.5")) is not None:
            return _Noisy(spec, noise)
        case "noop" if not target:
            return _Fixed(spec, None)
        case "scripted" if target:
            return _Fixed(spec, ScriptFile(Path(target)))
        case "local" if target:
            return LocalSource(spec, target, options)
        case "vllm" if target:
            return _at_endpoints(ServerSource, spec, target, options)
        case "openai" if target:
            return _at_endpoints(_Endpoint, spec, target, options)
    raise UsageError(f"There is no policy {spec!r}", mend=f"Policies: {KINDS}.")


def _at_endpoints(
    kind: "type[ServerSource] | type[_Endpoint]", spec: str, target: str, options: PolicyOptions
) -> PolicySource:
    """The source at the base URL, or at each of several that commas separate."""
    urls = [url.strip() for url in (options.base_url or "").split(",") if url.strip()]
    if len(urls) < 2:
        return kind(spec, target, options)
    return _Pooled(spec, {url: kind(spec, target, replace(options, base_url=url)) for url in urls})


def _chance(text: str) -> float | None:
    """A number from 0 to 1; None where the text is none."""
    try:
        chance = float(text)
    except ValueError:
        return None
    return chance if 0 <= chance <= 1 else None
