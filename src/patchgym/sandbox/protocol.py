"""The sandbox contract: where an agent's commands run.

A sandbox knows nothing of agents, tests or submissions. It runs a command, gives back what came out, and says which
files differ. A non-zero exit, a signal, a time-out: all data. Only a fault of the sandbox itself raises.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from patchgym.errors import PrerequisiteError

WORKSPACE = "/workspace"
"""Where the workspace lies inside every isolating sandbox."""


class Ending(StrEnum):
    """How a command ended. ``exited``: by itself, with an exit code. ``signalled``: killed by a signal it raised or was
    sent from inside. ``timed_out``: wall time ran out; every process it started is dead. ``out_of_memory``: the memory
    limit killed it. ``output_cut``: it wrote more to a stream than the limit and was killed. ``disk_full``: it filled
    the workspace beyond the limit and was killed. ``not_found``: there is no such program inside. A sandbox that was
    lost raises ``SandboxError`` instead."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    OUTPUT_CUT = "output_cut"
    DISK_FULL = "disk_full"
    NOT_FOUND = "not_found"


@dataclass(frozen=True)
class Cut:
    """What was left out of a stream between its first ``head`` and its last ``tail`` bytes. ``sha256`` is that of all
    of it, and ``blob`` its object id in the object store of the sandbox."""

    head: int
    tail: int
    sha256: str
    blob: str


@dataclass(frozen=True)
class ExecResult:
    """What a command did.

    ``stdout`` and ``stderr`` hold at most the limit's bytes (the first half and the last half of it where more came,
    and then ``stdout_cut`` and ``stderr_cut`` say what is missing); ``stdout_size`` and ``stderr_size`` count all that
    was written. ``report`` is what came through the report channel. ``limits_by`` names what held the limits:
    ``cgroup1``, ``cgroup2`` or ``rlimit``.
    """

    ending: Ending
    exit_code: int | None
    signal: int | None
    stdout: bytes
    stderr: bytes
    stdout_size: int
    stderr_size: int
    report: bytes
    seconds: float
    limits_by: str
    stdout_cut: Cut | None = None
    stderr_cut: Cut | None = None

    @property
    def timed_out(self) -> bool:
        """Whether wall time ran out."""
        return self.ending is Ending.TIMED_OUT


@dataclass(frozen=True)
class ResourceLimits:
    """Ceilings for one command: bytes of memory, number of processes and threads, seconds of CPU time of each process,
    bytes of one file, bytes that all it wrote may take, bytes kept of each stream, bytes of a stream at which it is
    ended."""

    memory_bytes: int = 2 * 1024**3
    processes: int = 256
    cpu_seconds: int = 3600
    file_bytes: int = 512 * 1024**2
    disk_bytes: int = 4 * 1024**3
    stream_bytes: int = 1024**2
    output_bytes: int = 64 * 1024**2


@dataclass(frozen=True)
class ServiceSpec:
    """A service beside a sandbox (see ``patchgym.records.Service``). Its programs come from the directory of a built
    ``environment``, from ``image``, or from the system; ``package`` is the Debian package to install where they lack.
    """

    name: str
    command: tuple[str, ...]
    health: tuple[str, ...]
    setup: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    environment: Path | None = None
    image: str | None = None
    package: str = ""
    ready_s: float = 60.0


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is made from: a workspace ``tree`` of the object store, the directory of a built environment
    (mounted read-only at its own path, first on ``PATH``), further read-only files and folders (inside path -> host
    path), environment variables of every command, folders of the workspace on ``PYTHONPATH`` ("" is its root), and
    limits.

    ``image`` (a reference) or ``dockerfile`` (its text) takes the place of an environment, for kinds that run images.
    ``services`` run in sandboxes of their own whose network this one shares, and nobody else.

    ``base`` is a tree near ``tree`` that many sandboxes share: its checkout is cached and only the differences are made
    anew. It never shows: the workspace is ``tree`` and ``diff()`` counts from ``tree``."""

    tree: str
    base: str | None = None
    environment: Path | None = None
    image: str | None = None
    dockerfile: str | None = None
    mounts: Mapping[str, Path] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)
    pythonpath: tuple[str, ...] = ()
    limits: ResourceLimits = ResourceLimits()
    services: tuple[ServiceSpec, ...] = ()


def refuse_images(spec: SandboxSpec, kind: str) -> None:
    """For kinds that run no images.

    Raises:
        PrerequisiteError: ``spec`` asks for one.
    """
    if spec.image is not None or spec.dockerfile is not None:
        raise PrerequisiteError(
            "The environment is an image",
            why=f"Sandboxes of the kind {kind} run no images.",
            mend="Add --sandbox docker.",
        )


class Sandbox(Protocol):
    """One isolated workspace. Commands run one at a time. The concrete kinds say what they cover and what not."""

    kind: str

    def locate(self, inside: str) -> str:
        """Where commands find ``inside``, an absolute path of an isolating sandbox: the workspace, a mount or a place
        below one."""
        ...

    async def exec(
        self,
        argv: Sequence[str],
        *,
        cwd: str = "",
        variables: Mapping[str, str] | None = None,
        timeout_s: float = 60.0,
        stdin: bytes = b"",
        report: bool = False,
        keep: bool = False,
    ) -> ExecResult:
        """Run a command in ``cwd`` (relative to the workspace) and wait for it. Whatever it started is ended then; with
        ``keep`` it goes on, until the sandbox closes.

        With ``report``, the command inherits a writable pipe whose number stands in ``PATCHGYM_REPORT_FD``; what it
        writes there comes back as ``ExecResult.report`` (at most 64 MiB).

        Raises:
            SandboxError: the sandbox was lost or could not run anything.
        """
        ...

    async def read(self, path: str) -> bytes:
        """The bytes of a workspace file. ``path`` is relative to the workspace; links out of it are not followed.

        Raises:
            FileNotFoundError, IsADirectoryError, PermissionError: as for a local file; PermissionError also for a path
                that leaves the workspace.
        """
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Create or replace a workspace file, with its parent folders. An existing file keeps its mode.

        Raises:
            IsADirectoryError, NotADirectoryError, PermissionError: as for ``read``.
        """
        ...

    async def snapshot(self) -> str:
        """Git tree id of the whole workspace now, without ``.git`` and ``__pycache__``; its objects are stored."""
        ...

    async def diff(self) -> str:
        """The patch from the tree that the sandbox was made from to now (see ``patchgym.content.diff_trees``)."""
        ...

    async def fork(self) -> "Sandbox":
        """An independent sandbox whose workspace starts as this one's is now. Files only: no processes, no ``/tmp``;
        services begin anew, as they were when this sandbox was made."""
        ...

    async def close(self) -> None:
        """End every process and remove every trace. May be called twice."""
        ...


class SandboxFactory(Protocol):
    """Makes sandboxes of one kind."""

    kind: str

    async def create(self, spec: SandboxSpec) -> Sandbox:
        """A new sandbox.

        Raises:
            SandboxError: it could not be made.
            PrerequisiteError: this machine cannot make this kind at all.
        """
        ...
