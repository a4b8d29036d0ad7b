"""A trajectory: every action with the state before it and the feedback after it.

What was not recorded is None. In trajectories that patchgym makes, states, times, sampling parameters and token counts
are always there; imported logs have what their format says, and nothing invented.
"""

from datetime import datetime
from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from patchgym.records.base import Record, VersionedRecord
from patchgym.records.message import Message, Sampling, StepTokens, ToolSpec, Usage
from patchgym.records.report import Outcome, TestReport
from patchgym.records.reward import Reward


class Action(Record):
    """A tool call as parsed. How it was sent stands in the step's message."""

    tool: str
    """The name of the tool."""
    arguments: dict[str, JsonValue]
    """Its arguments by name."""
    call_id: str | None = None
    """The native tool call of the message that it was read from."""


class Stream(Record):
    """One output stream."""

    text: str = ""
    """What was kept, undecodable bytes escaped."""
    size: int = 0
    """All bytes that were produced."""
    blob: str | None = None
    """The object id of the bytes where ``text`` is cut or not exact."""
    cut: bool = False
    """Whether ``blob`` (or, without one, ``text``) holds less than ``size``."""


class Observation(Record):
    """Feedback of one action."""

    shown: str
    """The text that the model was given."""
    ok: bool | None = None
    """Whether the tool could do what was asked: a command that ran and failed is ok, an edit whose text is not in the
    file is not."""
    exit_code: int | None = None
    """None where no process ran, or it was killed."""
    stdout: Stream | None = None
    """None where no process ran."""
    stderr: Stream | None = None
    """Likewise."""
    timed_out: bool = False
    """Whether the command's wall time ran out."""
    ending: str = "none"
    """How the process ended (``patchgym.sandbox.Ending``); ``interrupted`` where a person stopped it, ``none`` where
    no process ran."""
    limits_by: str = ""
    """The mechanism that held the limits: ``cgroup1``, ``cgroup2`` or ``rlimit``."""
    seconds: float | None = None
    """Wall time."""
    tests: dict[str, Outcome] | None = None
    """Outcomes by test, where the action ran tests."""


class Step(Record):
    """One turn: the state before, what the model was given, what it answered, what came of it. Of several calls in one
    message, each is a step, and all but the first ``continues``."""

    index: int
    """Its place in the trajectory (in a path of a search tree: in the tree)."""
    parent: int | None
    """The index of the step before it (None at the root), which makes a trajectory a path in a tree."""
    prompt: tuple[Message, ...]
    """The messages that were added to the conversation before the model answered."""
    message: Message
    """The answer, raw."""
    continues: bool = False
    """Whether its action was asked for in the message of the step before, which is not repeated here."""
    compacted: bool = False
    """Whether ``prompt`` takes the place of the whole conversation before it."""
    action: Action | None
    """None where the message held none that could be read."""
    parse_error: str | None = None
    """Why it could not be."""
    observation: Observation | None
    """What came of it; None where the action was never answered."""
    state_before: str | None = None
    """The git tree id of the whole workspace before the action, in the run's object store. It covers files alone: no
    processes, no ``/tmp``, no environment."""
    state_after: str | None = None
    """The same after it."""
    changed_paths: tuple[str, ...] | None = None
    """Paths that differ between the two states."""
    tokens: StepTokens | None = None
    """The ids as sampled, where the policy gives them."""
    policy_version: str | None = None
    """The version, or the model, that answered."""
    sampling: Sampling | None = None
    """What it was sampled with."""
    usage: Usage | None = None
    """Its token counts."""
    sampling_seconds: float | None = None
    """Wall time until the answer was there."""
    started_at: datetime | None = None
    """When the turn began."""


class StopReason(StrEnum):
    """Why an episode ended. ``submitted``: the agent said so. ``turn_limit``, ``token_limit``, ``time_limit``: a limit
    of the task. ``protocol``: too many turns in a row without a readable action. ``context_limit``: the conversation no
    longer fits the model. ``hopeless_loop``: the same action in the same state, again and again. ``infrastructure``: a
    fault that the policy cannot cause."""

    SUBMITTED = "submitted"
    TURN_LIMIT = "turn_limit"
    TOKEN_LIMIT = "token_limit"
    TIME_LIMIT = "time_limit"
    CONTEXT_LIMIT = "context_limit"
    PROTOCOL = "protocol"
    HOPELESS_LOOP = "hopeless_loop"
    INFRASTRUCTURE = "infrastructure"


class Fault(Record):
    """An infrastructure fault."""

    kind: str
    """The class of the error."""
    where: Literal["sandbox", "policy", "grading"]
    """Where it struck."""
    message: str
    """What it said."""


class PolicyRef(Record):
    """Which policy acted."""

    spec: str
    """What it was named by: ``local:PATH``, ``openai:MODEL``, or the agent that wrote an imported log."""
    version: str | None
    """The version that sampled; of an imported log, the model."""


class Timing(Record):
    """Wall seconds by what they went to."""

    started_at: datetime | None = None
    """When the episode began."""
    total_seconds: float | None = None
    """From its beginning to its end."""
    sampling_seconds: float | None = None
    """Waiting for the policy."""
    acting_seconds: float | None = None
    """Acting in the sandbox, and reading its state."""
    grading_seconds: float | None = None
    """Grading."""


class SpawnedBy(Record):
    """The call that a sub-agent worked for."""

    trajectory: str
    """The id of the trajectory that made it."""
    step: int | None
    """None where the log does not say which."""


class Origin(Record):
    """Where an imported trajectory comes from."""

    format: str
    """The name of the format (``patchgym traces import --help`` lists them)."""
    file: str
    """The name of the file, without the folders above it."""
    session: str | None = None
    """The name that the log itself gives."""
    agent: str | None = None
    """The program that wrote it, with its version where it says so."""
    repo: str | None = None
    """The repository that was worked on."""
    base_commit: str | None = None
    """The commit that it began at."""
    left_out: dict[str, int] = Field(default_factory=dict)
    """What the file held and the trajectory does not, counted by its kind."""


class Trajectory(VersionedRecord):
    """One episode, whole."""

    VERSION: ClassVar[int] = 2

    schema_version: int = 2
    """The version of this schema; a release reads its own alone."""
    id: str
    """Unique in its run."""
    phase: str
    """The part of the run that it belongs to."""
    task_id: str
    """Of an imported log that names no task: its own id."""
    task_hash: str | None
    """The content hash of the task."""
    group_id: str
    """The group whose members share a baseline."""
    sample_index: int
    """Which of the samples of its group it is."""
    policy: PolicyRef
    """Who acted."""
    sandbox: str | None
    """The kind of sandbox that it acted in."""
    tools: tuple[ToolSpec, ...] = ()
    """The tools that the model was told of by the endpoint, where it was."""
    steps: tuple[Step, ...]
    """In the order in which they were taken."""
    final_state: str | None
    """The git tree id of the workspace at the end."""
    final_patch: str | None
    """The unified diff from the task's workspace to the final state."""
    stop: StopReason | None
    """Why it ended."""
    status: Literal["completed", "infra_error"]
    """Whether infrastructure let it come to its end."""
    faults: tuple[Fault, ...] = ()
    """Infrastructure's faults, if there were any."""
    report: TestReport | None
    """What grading said, of visible and hidden tests apart."""
    reward: Reward | None
    """None where it was not scored, which is never 0."""
    reward_trusted: bool
    """Whether its reward may be used; a fault that the policy cannot cause clears it."""
    in_baseline: bool
    """Whether it may enter its group's baseline; likewise."""
    timing: Timing
    """Where the time went."""
    origin: Origin | None = None
    """Of an imported trajectory."""
    spawned_by: SpawnedBy | None = None
    """Of a sub-agent's trajectory."""
    tree_id: str | None = None
    """Of a path of a search tree: the tree. Its steps' indices are places in that tree."""
    redacted: dict[str, int] | None = None
    """How many secrets and personal data were taken out, by their kind; None where nobody looked."""
    timeout_of: Literal["policy", "sandbox", "endpoint", "unknown"] | None = None
    """Of one that ended because time ran out: what used the time up; ``unknown`` where the record does not tell. None
    where no time ran out, and before cleaning."""
    duplicate_of: str | None = None
    """The id of an earlier trajectory of the same task with the same actions and observations, found by cleaning."""
