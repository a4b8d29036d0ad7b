"""What goes over the wire.

Of a task, what an agent may know (``TaskView``). Of a grading, counts and the outcomes of the tests that the agent was
told of: reasons and logs name hidden tests, so no text that grading wrote is passed on. Of a reward, its figures.
"""

from typing import Literal, Self

from pydantic import Field, JsonValue, model_validator

from patchgym.records import (
    Limits,
    Outcome,
    Record,
    Sampling,
    StopReason,
    Tally,
    Task,
    TaskView,
    ToolSpec,
    Trajectory,
    Usage,
    Verdict,
)

MOST_PATCH = 1 << 20
"""Bytes of a patch that are sent back."""
_MOST_TOKENS = 10**9


class TaskSheet(Record):
    """A task as its agent may know it."""

    id: str
    """By which a session is opened."""
    instruction: str
    """What is to be done."""
    failing_tests: tuple[str, ...]
    """Tests that fail now, must pass in the end, and can be seen. There may be others."""
    test_files: tuple[str, ...]
    """The test files of the workspace. What is changed in them is put back before grading."""
    test_timeout_s: float
    """Wall seconds that a run of the tests may take."""
    python: str
    """The version of its Python; empty where a container decides."""
    services: tuple[str, ...]
    """What runs beside the sandbox."""
    limits: Limits
    """What one session may use."""


class TaskPage(Record):
    """Some of the tasks, in the order of their set."""

    tasks: tuple[TaskSheet, ...]
    """The tasks of this page."""
    total: int
    """How many tasks are served."""
    next: str | None
    """The ``after`` of the next page; null on the last one."""


class Reset(Record):
    """A session that is asked for."""

    task: str = Field(max_length=300)
    """The id of a task."""
    tools: tuple[str, ...] | None = Field(None, max_length=32)
    """The names of the tools that the agent shall have; null: the usual ones. ``submit`` is always among them."""
    policy: str | None = Field(None, min_length=1, max_length=200)
    """What acts, with its version, for the record."""
    sampling: Sampling | None = None
    """What it samples with, for the record."""

    @model_validator(mode="after")
    def _finite(self) -> Self:
        told = self.sampling
        if told is not None and not (0 <= told.temperature <= 100 and 0 <= told.top_p <= 1):
            raise ValueError("sampling has a temperature from 0 to 100 and a top_p from 0 to 1")
        return self


class Left(Record):
    """What a session may still use."""

    turns: int
    """Steps."""
    seconds: float
    """Wall seconds since it was opened, the client's own included."""
    tokens: int | None
    """Sampled tokens; null where the client does not tell its usage."""
    idle_seconds: float
    """Wall seconds between two requests after which the session is closed."""


class SessionOpened(Record):
    """A session, ready for its first step."""

    session: str
    """Its id, known to nobody but the client that opened it."""
    task: str
    """The task."""
    system: str
    """The system message that agents of patchgym get."""
    instruction: str
    """What is to be done, with the services that run."""
    tools: tuple[ToolSpec, ...]
    """The tools, their parameters as JSON Schema."""
    left: Left
    """The limits."""


class StepWanted(Record):
    """One action: a ``tool`` with ``arguments``, or a shell ``command``, which is the tool ``run_command``."""

    tool: str | None = Field(None, min_length=1, max_length=100)
    """The name of a tool."""
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    """Its arguments by name."""
    command: str | None = None
    """A line for ``/bin/sh``."""
    text: str = ""
    """What the model wrote beside the call, for the record."""
    usage: Usage | None = None
    """The tokens of this answer; where they are told, they count against the limit."""

    @model_validator(mode="after")
    def _one_action(self) -> Self:
        if (self.tool is None) == (self.command is None) or (self.command is not None and self.arguments):
            raise ValueError("give either tool and arguments, or command alone")
        counts = self.usage.model_dump(exclude_none=True).values() if self.usage is not None else ()
        if not all(0 <= count <= _MOST_TOKENS for count in counts):  # or it would give itself more of them
            raise ValueError(f"usage counts from 0 to {_MOST_TOKENS}")
        return self


class StepDone(Record):
    """What came of an action."""

    index: int
    """Which step it was, from 0."""
    shown: str
    """The observation as the agent shall see it."""
    ok: bool
    """Whether the tool could do what was asked. A command that ran and failed is ok; an unknown tool is not."""
    exit_code: int | None
    """Of a process; null where none ran or it was killed."""
    timed_out: bool
    """Whether the command's time ran out."""
    seconds: float | None
    """Wall seconds of the action; null where there was none to be done."""
    changed_paths: tuple[str, ...]
    """Files of the workspace that are not as before."""
    done: bool
    """Whether the episode is over, so that only its grade is left."""
    stop: StopReason | None
    """Why it is; null while it goes on."""
    left: Left
    """What is left of the limits."""


class SessionState(Record):
    """How a session stands."""

    session: str
    """Its id."""
    task: str
    """Its task."""
    turns: int
    """Steps that were taken."""
    busy: bool
    """Whether it is at work on a request."""
    done: bool
    """Whether the episode is over."""
    graded: bool
    """Whether the grade is known."""
    left: Left
    """What is left of the limits."""


class TermSheet(Record):
    """One term of a reward."""

    raw: float
    """What was measured."""
    weight: float
    """What it counts for."""
    value: float
    """What it adds; of the second layer, where that layer is applied."""
    layer: Literal["outcome", "told", "efficiency", "quality"] | None
    """The layer that it belongs to."""


class RewardSheet(Record):
    """A reward. Its second layer is decided by the other attempts of a group, which only the trainer knows."""

    value: float | None
    """The value of the outcome; null means *not scored* and is never 0."""
    gate: str
    """The outcome that applied."""
    second_layer: Literal["waits", "applied", "withheld"] | None
    """``waits``: its terms are not in the value yet."""
    terms: dict[str, TermSheet]
    """Each term by its name; what was not measured has none."""


class Graded(Record):
    """The end of a session: what grading in a fresh sandbox came to."""

    session: str
    """The session."""
    task: str
    """The task."""
    trajectory: str
    """The id of the record in the server's run directory."""
    stop: StopReason | None
    """Why the episode ended."""
    status: Literal["completed", "infra_error"]
    """``infra_error``: a fault that the agent cannot cause. Such a session has no reward and belongs in no baseline."""
    verdict: Verdict | None
    """The verdict; null where infrastructure failed before grading."""
    fail_to_pass: Tally | None
    """Tests that had to be mended."""
    pass_to_pass: Tally | None
    """Tests that had to stay passing."""
    hidden: Tally | None
    """The part of ``fail_to_pass`` that the agent never saw."""
    tests: dict[str, Outcome]
    """The outcomes of the failing tests that the agent was told of."""
    evidence: tuple[str, ...]
    """Kinds of interference that something speaks for."""
    reward: RewardSheet | None
    """Null where it was not scored."""
    patch: str | None
    """The agent's patch; null where it has more than 1 MiB."""
    grading_seconds: float | None
    """Wall seconds of grading."""


class Closed(Record):
    """A session that is no more."""

    session: str
    """Its id."""
    was: Literal["unfinished", "graded"]
    """Whether it came to its grade."""


class Health(Record):
    """The server answers."""

    status: Literal["ok"]
    """Always ``ok``."""


class Spent(Record):
    """How often something was done, and the wall seconds that it took in all."""

    count: int
    """How often."""
    seconds: float
    """Wall seconds in all."""


class Stats(Record):
    """What the server does and did."""

    alive: int
    """Sessions that hold a sandbox or are being graded."""
    yours: int
    """Those of the client that asks."""
    most: int
    """How many there may be."""
    waiting: int
    """Sessions whose grading waits for its place."""
    finished: int
    """Graded sessions whose grade can still be asked for."""
    opened: int
    """Sessions that were opened."""
    graded: int
    """Sessions that came to their grade."""
    reaped: int
    """Sessions that were closed for being idle."""
    refused: int
    """Requests that were refused with 429."""
    requests: int
    """Requests under way."""
    seconds: float
    """Wall seconds that the server is up."""
    spent: dict[str, Spent]
    """By what was asked for: ``reset``, ``step``, ``grade``."""


def sheet_of(view: TaskView) -> TaskSheet:
    """A task as it is listed."""
    return TaskSheet(
        id=view.id,
        instruction=view.instruction,
        failing_tests=view.failing_tests,
        test_files=view.test_files,
        test_timeout_s=view.test_timeout_s,
        python=view.environment.python,
        services=tuple(service.name for service in view.environment.services),
        limits=view.limits,
    )


def graded_of(session: str, task: Task, made: Trajectory) -> Graded:
    """What a client is told of its graded trajectory."""
    report, reward = made.report, made.reward
    told = task.view().failing_tests
    evidence = (*(report.evidence if report else ()), *(reward.evidence if reward else ()))
    patch = made.final_patch or ""
    return Graded(
        session=session,
        task=task.id,
        trajectory=made.id,
        stop=made.stop,
        status=made.status,
        verdict=report.verdict if report else None,
        fail_to_pass=report.fail_to_pass if report else None,
        pass_to_pass=report.pass_to_pass if report else None,
        hidden=report.hidden if report else None,
        tests={test: report.tests[test] for test in told if test in report.tests} if report else {},
        evidence=tuple(sorted({one.kind for one in evidence})),
        reward=RewardSheet(
            value=reward.value,
            gate=reward.gate,
            second_layer=reward.second_layer,
            terms={
                name: TermSheet(raw=term.raw, weight=term.weight, value=term.value, layer=term.layer)
                for name, term in reward.terms.items()
            },
        )
        if reward
        else None,
        patch=patch if len(patch.encode("utf-8", "replace")) <= MOST_PATCH else None,
        grading_seconds=made.timing.grading_seconds if report else None,
    )
