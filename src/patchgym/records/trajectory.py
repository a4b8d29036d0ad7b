"""A trajectory: every action with the state before it and the feedback after it."""

from datetime import datetime
from enum import StrEnum
from typing import Literal

from pydantic import JsonValue

from patchgym.records.base import Record, VersionedRecord
from patchgym.records.message import Message, Sampling, StepTokens, Usage
from patchgym.records.report import Outcome, TestReport
from patchgym.records.reward import Reward


class Action(Record):
    """A tool call as parsed."""

    tool: str
    arguments: dict[str, JsonValue]


class Stream(Record):
    """One output stream. ``text`` is what was kept, undecodable bytes escaped; ``size`` counts all bytes produced;
    ``blob`` is the object id of the bytes where ``text`` is cut or not exact; ``cut`` says that ``blob`` (or, without
    one, ``text``) holds less than ``size``."""

    text: str = ""
    size: int = 0
    blob: str | None = None
    cut: bool = False


class Observation(Record):
    """Feedback of one action. ``shown`` is the text that the model was given. ``ok`` says that the tool could do what
    was asked: a command that ran and failed is ok, an edit whose text is not in the file is not. ``exit_code`` is None
    where no process ran or it was killed; ``limits_by`` names the mechanism that held the limits."""

    shown: str
    ok: bool
    exit_code: int | None = None
    stdout: Stream = Stream()
    stderr: Stream = Stream()
    timed_out: bool = False
    ending: str = "none"
    limits_by: str = ""
    seconds: float = 0.0
    tests: dict[str, Outcome] | None = None


class Step(Record):
    """One turn.

    ``parent`` is the index of the step before it (None at the root), which makes a trajectory a path in a tree.
    ``state_before`` and ``state_after`` are git tree ids in the run's object store: the whole workspace. They cover
    files alone: no processes, no ``/tmp``, no environment.
    """

    index: int
    parent: int | None
    prompt: tuple[Message, ...]
    message: Message
    action: Action | None
    parse_error: str | None
    observation: Observation | None
    state_before: str
    state_after: str
    changed_paths: tuple[str, ...]
    tokens: StepTokens | None
    policy_version: str
    sampling: Sampling
    usage: Usage
    sampling_seconds: float
    started_at: datetime


class StopReason(StrEnum):
    """Why an episode ended. ``submitted``: the agent said so. ``turn_limit``, ``token_limit``, ``time_limit``: a limit
    of the task. ``protocol``: too many turns in a row without a readable action. ``context_limit``: the conversation no
    longer fits the model. ``infrastructure``: a fault that the policy cannot cause."""

    SUBMITTED = "submitted"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    CONTEXT_LIMIT = "context_limit"
    PROTOCOL = "protocol"
    INFRASTRUCTURE = "infrastructure"


class Fault(Record):
    """An infrastructure fault: its error class, where it struck and its message."""

    kind: str
    where: Literal["sandbox", "policy", "grading"]
    message: str


class PolicyRef(Record):
    """Which policy acted: the specification it was named by and the version that sampled."""

    spec: str
    version: str


class Timing(Record):
    """Wall seconds by what they went to."""

    started_at: datetime
    total_seconds: float
    sampling_seconds: float
    acting_seconds: float
    grading_seconds: float


class Trajectory(VersionedRecord):
    """One episode, whole.

    ``phase`` names the part of the run that it belongs to; ``group_id`` the group whose members share a baseline.
    ``reward_trusted`` says whether its reward may be used, ``in_baseline`` whether it may enter its group's baseline;
    a fault that the policy cannot cause clears both.
    """

    id: str
    phase: str
    task_id: str
    task_hash: str
    group_id: str
    sample_index: int
    policy: PolicyRef
    sandbox: str
    steps: tuple[Step, ...]
    final_state: str
    final_patch: str
    stop: StopReason
    status: Literal["completed", "infra_error"]
    faults: tuple[Fault, ...] = ()
    report: TestReport | None
    reward: Reward | None
    reward_trusted: bool
    in_baseline: bool
    timing: Timing
