"""A task: a workspace with something wrong in it, an instruction, and the tests that decide.

``TaskView`` is what an agent may know. It is a type of its own: code that talks to an agent takes a ``TaskView``, so
that handing over a hidden test or the gold patch does not type-check.
"""

from datetime import datetime
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from patchgym.records.base import Record, VersionedRecord
from patchgym.records.report import Outcome


class Source(Record):
    """Where a task comes from.

    ``statement`` says what the instruction was made from. ``change`` says what was done to make the task (privileged:
    it gives the answer away). ``license`` is an SPDX expression.
    """

    kind: Literal["git", "release_pair", "synthetic", "benchmark", "log"]
    repo: str
    version: str | None = None
    base_commit: str | None = None
    fix_commit: str | None = None
    license: str | None = None
    created_at: datetime | None = None
    statement: Literal["failing_tests", "issue", "changelog", "commit", "model", "template", "session"] | None = None
    change: str | None = None


class Distribution(Record):
    """Metadata of the package under test, installed without its code, so that ``importlib.metadata`` answers."""

    name: str
    version: str
    entry_points: str = ""


class Service(Record):
    """What runs beside a task's commands, within reach of them alone: a database, a stub of an HTTP service.

    ``setup`` is a command line that runs once and whose files all sandboxes share, ``command`` the one that goes on
    running, ``health`` the one that succeeds when it can be used, which must be within ``ready_seconds``. They run in a
    workspace of their own, with ``files`` (path to text) in it. Their programs come with ``python`` (``major.minor``)
    and ``lock`` (a requirements text with hashes for it), from ``image``, or from the system's ``package`` of Debian.
    ``ports`` are where it listens, and ``variables`` what the task's commands are told of that.
    """

    name: str
    command: tuple[str, ...]
    health: tuple[str, ...]
    setup: tuple[str, ...] = ()
    files: dict[str, str] = Field(default_factory=dict)
    python: str = ""
    lock: str = ""
    image: str | None = None
    package: str = ""
    ports: tuple[int, ...] = ()
    variables: dict[str, str] = Field(default_factory=dict)
    ready_seconds: float = 60.0


class Environment(Record):
    """What a task's commands run in: a locked Python environment, or a container; and the services beside it.

    ``lock`` is a requirements text with hashes for ``python`` (``major.minor``); ``pythonpath`` are the workspace
    folders that imports start from. With ``image`` (a reference) or ``dockerfile`` (its text) the container decides,
    and ``python`` and ``lock`` may be empty.
    """

    python: str = ""
    lock: str = ""
    distribution: Distribution | None = None
    pythonpath: tuple[str, ...] = ("",)
    image: str | None = None
    dockerfile: str | None = None
    services: tuple[Service, ...] = ()

    @property
    def contained(self) -> bool:
        """Whether a container decides."""
        return self.image is not None or self.dockerfile is not None


class Tests(Record):
    """The tests that decide.

    ``visible_files`` and ``hidden_files`` map workspace paths to blob ids: the first as the agent finds them, the
    second as grading lays them over the workspace (whole files, with the tests that the agent never sees).
    ``fail_to_pass`` and ``pass_to_pass`` are exact pytest ids; ``hidden`` is the part of ``fail_to_pass`` that the
    agent never sees.
    """

    __test__ = False

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]
    hidden: tuple[str, ...]
    visible_files: dict[str, str]
    hidden_files: dict[str, str]
    timeout_s: float = 120.0


class Scope(Record):
    """Size of the gold patch."""

    files: int
    hunks: int
    lines: int


class Limits(Record):
    """What one episode may use. ``tokens`` counts sampled tokens, ``seconds`` wall time, ``output_bytes`` what one
    observation shows of a stream."""

    turns: int = 12
    tokens: int = 4096
    seconds: float = 900.0
    command_seconds: float = 60.0
    output_bytes: int = 4000


class MutantScore(Record):
    """How well a task's tests hold its solution: bugs planted in what the gold patch touched, and how many of them the
    tests notice. Where ``survived`` is large, a wrong patch can pass."""

    killed: int
    survived: int

    @property
    def share_killed(self) -> float | None:
        """Between 0 and 1; None where no bug could be planted."""
        total = self.killed + self.survived
        return self.killed / total if total else None


class Validation(Record):
    """The proof: how many of ``runs`` fresh runs each of the workspace as it is (``base_failed``) and of a submission
    that does nothing (``noop_failed``) failed their fail-to-pass tests, and of the gold patch passed everything.

    ``flaky`` is the ledger of tests that were thrown out because their outcomes did not agree, with those outcomes.
    ``mutants`` is the weak-test score, where it was measured; ``sandbox`` the kind of sandbox that all of it ran in.
    """

    runs: int
    base_failed: int
    noop_failed: int
    gold_passed: int
    test_seconds: float
    grader_version: str
    validated_at: datetime
    flaky: dict[str, tuple[Outcome, ...]] = Field(default_factory=dict)
    mutants: MutantScore | None = None
    sandbox: str = ""

    @property
    def proved(self) -> bool:
        """Whether every run agreed."""
        return self.runs > 0 and self.base_failed == self.noop_failed == self.gold_passed == self.runs


class Difficulty(Record):
    """How hard a task looks before anybody tried it: 0 (easiest) to 1, with what the estimate rests on."""

    score: float
    why: tuple[str, ...]


class Foreign(Record):
    """What a benchmark's row holds beyond a task's own fields, by the name of its ``format``: kept so that the row can
    be written again as it was (privileged: it may hold the solution)."""

    format: str
    fields: dict[str, JsonValue]


class TaskView(Record):
    """What an agent may know of a task: no hidden test, no gold patch, no key files, no validation, no origin.

    ``failing_tests`` are the fail-to-pass tests that the agent can see and run.
    """

    id: str
    instruction: str
    workspace: str
    environment: Environment
    failing_tests: tuple[str, ...]
    test_files: tuple[str, ...]
    test_timeout_s: float
    limits: Limits


class Task(VersionedRecord):
    """One task, whole. ``workspace`` is the git tree id that the agent starts from; ``gold_patch`` a unified diff;
    ``functions`` are those that it touches, as ``path:qualified name``; ``probes`` the blob id of calls to the code
    with their known results (``patchgym.grading``), privileged."""

    VERSION: ClassVar[int] = 2
    UNHASHED: ClassVar[frozenset[str]] = frozenset({"validation"})  # when and how fast it was proved

    schema_version: int = 2
    id: str
    source: Source
    instruction: str
    workspace: str
    environment: Environment
    tests: Tests
    gold_patch: str
    key_files: tuple[str, ...]
    functions: tuple[str, ...] = ()
    probes: str | None = None
    scope: Scope
    difficulty: Difficulty | None = None
    limits: Limits = Limits()
    network: Literal["none"] = "none"
    split: Literal["train", "heldout"]
    validation: Validation | None = None
    foreign: Foreign | None = None

    @property
    def blobs(self) -> frozenset[str]:
        """The ids of every object that the task needs beside its workspace."""
        files = (*self.tests.visible_files.values(), *self.tests.hidden_files.values())
        return frozenset(files if self.probes is None else (*files, self.probes))

    def view(self) -> TaskView:
        """The part that an agent may see."""
        hidden = frozenset(self.tests.hidden)
        return TaskView(
            id=self.id,
            instruction=self.instruction,
            workspace=self.workspace,
            environment=self.environment,
            failing_tests=tuple(test for test in self.tests.fail_to_pass if test not in hidden),
            test_files=tuple(sorted(self.tests.visible_files)),
            test_timeout_s=self.tests.timeout_s,
            limits=self.limits,
        )
