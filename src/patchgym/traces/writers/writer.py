"""What writes a format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from pydantic import JsonValue

from patchgym.records import Task, Trajectory
from patchgym.traces.intake import Intake

Row = dict[str, JsonValue]


class Reason(StrEnum):
    """Why a trajectory cannot be written as a format."""

    NO_STEPS = "no_steps"
    BROKEN_PATH = "broken_path"
    INFRASTRUCTURE = "infrastructure"
    NOT_SCORED = "not_scored"
    NOT_TRUSTED = "not_trusted"
    REDACTED = "redacted"
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    LENGTH_MISMATCH = "length_mismatch"
    NOTHING_TRAINABLE = "nothing_trainable"

    @property
    def meaning(self) -> str:
        """The reason in one plain clause."""
        return _MEANINGS[self]


_MEANINGS = {
    Reason.NO_STEPS: "it has no steps",
    Reason.BROKEN_PATH: "a step names a parent that is not before it",
    Reason.INFRASTRUCTURE: "it was lost to a fault that the policy cannot cause",
    Reason.NOT_SCORED: "it has no reward",
    Reason.NOT_TRUSTED: "its reward is not to be trusted",
    Reason.REDACTED: "token ids were taken out with what was redacted",
    Reason.NO_TOKENS: "a step carries no token ids",
    Reason.NO_LOGPROBS: "a step carries no sampler log-probabilities",
    Reason.LENGTH_MISMATCH: "ids, log-probabilities and mask differ in length",
    Reason.NOTHING_TRAINABLE: "no sampled id may be trained on",
}


class Unwritable(Exception):
    """A trajectory that a format cannot hold."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.meaning)
        self.reason = reason


@dataclass(frozen=True)
class Known:
    """What a run knows beyond its trajectories: the tasks, by id."""

    tasks: Mapping[str, Task] = field(default_factory=dict)

    def repo_and_commit(self, trajectory: Trajectory) -> tuple[str | None, str | None]:
        """The repository that a trajectory worked on, and the commit that it began at, as far as is known."""
        if trajectory.origin is not None and trajectory.origin.repo:
            return trajectory.origin.repo, trajectory.origin.base_commit
        task = self.tasks.get(trajectory.task_id)
        return (task.source.repo, task.source.base_commit) if task else (None, None)


class Writer(Protocol):
    """What writes a format; a module of this package is one."""

    NAME: str
    """What the format is called on the command line."""
    ABOUT: str
    """What it is, in a line."""
    COLUMNS: Mapping[str, str]
    """The columns of its Parquet files with their types in DuckDB's words; empty where it has no such files."""
    FOLDER: bool
    """Whether it is also a folder with a document for each trajectory."""
    HOLDS: frozenset[str] | None
    """The parts of a trajectory that it holds, by dotted name; None where that is found by reading back."""

    def rows(self, trajectory: Trajectory, known: Known) -> Sequence[Row]:
        """What is written of a trajectory: a document, or a row for each of its paths.

        Raises:
            Unwritable: the format cannot hold it.
        """
        ...

    def read_back(self, rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
        """The trajectories that an import would make of rows; only where ``HOLDS`` is None."""
        ...
