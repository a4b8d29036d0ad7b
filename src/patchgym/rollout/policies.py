"""From a policy's name on the command line to something that acts on a task."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.policy import Policy
from patchgym.policy.gold import gold_script
from patchgym.policy.scripted import ScriptedPolicy, ScriptFile
from patchgym.records import Task

KINDS = "gold, noop, scripted:FILE, local:PATH (or local:smollm2), openai:MODEL"


class PolicySource(Protocol):
    """Gives each episode its policy. ``spec`` is the name that it was opened by."""

    spec: str
    version: str

    def for_task(self, task: Task) -> Policy:
        """The policy for one episode of ``task``. A model gets to know nothing of the task here."""
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


@dataclass(frozen=True)
class PolicyOptions:
    """Where an endpoint is, which protocol to use with it, and how many sequences a local model samples at once."""

    base_url: str | None = None
    native_tools: bool = True
    batch: int = 16


class _Gold:
    spec = "gold"
    version = "gold"

    def __init__(self, objects: ObjectStore) -> None:
        self._objects = objects

    def for_task(self, task: Task) -> Policy:
        return ScriptedPolicy(gold_script(task, self._objects), self.version)

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

    def for_task(self, task: Task) -> Policy:
        return self._scripts.for_task(task.id) if self._scripts else ScriptedPolicy([], self.version)

    async def check(self) -> None:
        pass

    async def close(self) -> None:
        pass


def open_policy(spec: str, objects: ObjectStore, options: PolicyOptions) -> PolicySource:
    """The policy source that ``spec`` names. Local models are loaded here, which takes seconds.

    Raises:
        UsageError: there is no such policy, file or model directory.
        PrerequisiteError: a library or a download that it needs is missing.
    """
    kind, _, target = spec.partition(":")
    match kind:
        case "gold" if not target:
            return _Gold(objects)
        case "noop" if not target:
            return _Fixed(spec, None)
        case "scripted" if target:
            return _Fixed(spec, ScriptFile(Path(target)))
        case "local" if target:
            from patchgym.policy.local import open_local

            return open_local(target, batch=options.batch)
        case "openai" if target:
            from patchgym.policy.openai import open_endpoint

            return open_endpoint(target, base_url=options.base_url, native_tools=options.native_tools)
    raise UsageError(f"There is no policy {spec!r}", mend=f"Policies: {KINDS}.")
