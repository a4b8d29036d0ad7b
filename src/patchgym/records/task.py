"""A task: a workspace with something wrong in it, an instruction, and the tests that decide.

``TaskView`` is what an agent may know. It is a type of its own: code that talks to an agent takes a ``TaskView``, so
that handing over a hidden test or the gold patch does not type-check.
"""

from datetime import datetime
from typing import ClassVar, Literal

from patchgym.records.base import Record, VersionedRecord


class Source(Record):
    """Where a task comes from. ``change`` says what was done to make it (privileged: it gives the answer away)."""

    kind: Literal["git", "release_pair", "synthetic", "benchmark", "log"]
    repo: str
    version: str | None = None
    base_commit: str | None = None
    fix_commit: str | None = None
    license: str | None = None
    created_at: datetime | None = None
    change: str | None = None


class Distribution(Record):
    """Metadata of the package under test, installed without its code, so that ``importlib.metadata`` answers."""

    name: str
    version: str
    entry_points: str = ""


class Environment(Record):
    """A locked Python environment: ``lock`` is a requirements text with hashes; ``pythonpath`` are the workspace
    folders that imports start from."""

    python: str
    lock: str
    distribution: Distribution | None = None
    pythonpath: tuple[str, ...] = ("",)


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


class Validation(Record):
    """The proof: how many fresh runs of the base failed its fail-to-pass tests, and of the gold passed everything."""

    runs: int
    base_failed: int
    gold_passed: int
    test_seconds: float
    grader_version: str
    validated_at: datetime

    @property
    def proved(self) -> bool:
        """Whether every run agreed."""
        return self.runs > 0 and self.base_failed == self.runs and self.gold_passed == self.runs


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
    """One task, whole. ``workspace`` is the git tree id that the agent starts from; ``gold_patch`` a unified diff."""

    UNHASHED: ClassVar[frozenset[str]] = frozenset({"validation"})  # when and how fast it was proved

    id: str
    source: Source
    instruction: str
    workspace: str
    environment: Environment
    tests: Tests
    gold_patch: str
    key_files: tuple[str, ...]
    scope: Scope
    limits: Limits = Limits()
    network: Literal["none"] = "none"
    split: Literal["train", "heldout"]
    validation: Validation | None = None

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
