"""The table of operations: the routes, the OpenAPI document and its page are made from it."""

from typing import Literal, NamedTuple

from patchgym.records import Record
from patchgym.serve.desk import MOST_LISTED
from patchgym.serve.sheets import (
    Closed,
    Graded,
    Health,
    Reset,
    SessionOpened,
    SessionState,
    Stats,
    StepDone,
    StepWanted,
    TaskPage,
    TaskSheet,
)


class Parameter(NamedTuple):
    """A parameter of an operation: where it stands, its JSON type and what it says."""

    name: str
    place: Literal["path", "query"]
    kind: Literal["string", "integer"]
    told: str


class Operation(NamedTuple):
    """One operation: its name, method and address; what it does; what it is asked with and answers; the kinds of
    refusal beside those that any request can meet; and whether it needs no token."""

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    told: str
    answers: type[Record]
    asks: type[Record] | None = None
    status: int = 200
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[str, ...] = ()
    open: bool = False


_TASK = Parameter("task", "path", "string", "The id of a task.")
_SESSION = Parameter("session", "path", "string", "The id of a session of this client.")
_BODY = ("too_slow", "too_large", "not_json", "invalid")
ALWAYS = ("other_origin", "wrong_host", "too_many", "closing", "broken")
"""Refusals that any request can meet."""

OPERATIONS = (
    Operation(
        "list_tasks",
        "GET",
        "/tasks",
        "The tasks, page by page, as their agents may know them.",
        TaskPage,
        parameters=(
            Parameter("after", "query", "string", "The id behind which the page begins: `next` of the page before."),
            Parameter("limit", "query", "integer", f"How many tasks at most: 1 to {MOST_LISTED} (50)."),
        ),
        refusals=("no_task", "invalid"),
    ),
    Operation("get_task", "GET", "/tasks/{task}", "One task.", TaskSheet, parameters=(_TASK,), refusals=("no_task",)),
    Operation(
        "reset",
        "POST",
        "/sessions",
        "Open a session: a fresh sandbox with the task's workspace. The first one of a task builds its environment.",
        SessionOpened,
        asks=Reset,
        status=201,
        refusals=(*_BODY, "no_task", "lost", "unavailable", "closed"),
    ),
    Operation(
        "get_session",
        "GET",
        "/sessions/{session}",
        "How a session stands. Asking does not keep it from being idle.",
        SessionState,
        parameters=(_SESSION,),
        refusals=("no_session",),
    ),
    Operation(
        "step",
        "POST",
        "/sessions/{session}/step",
        "Take one action. A call that cannot be done is answered as the agent would be, and is a step all the same.",
        StepDone,
        asks=StepWanted,
        parameters=(_SESSION,),
        refusals=(*_BODY, "no_session", "busy", "over", "closed", "lost", "unavailable"),
    ),
    Operation(
        "grade",
        "POST",
        "/sessions/{session}/grade",
        "Hand in the work and wait for its grade. May be asked for again until the session is closed.",
        Graded,
        parameters=(_SESSION,),
        refusals=("no_session", "busy", "closed", "unavailable"),
    ),
    Operation(
        "close",
        "DELETE",
        "/sessions/{session}",
        "Close a session, whatever it is doing. Nothing is left of its sandbox.",
        Closed,
        parameters=(_SESSION,),
        refusals=("no_session",),
    ),
    Operation("stats", "GET", "/stats", "What the server does and did.", Stats),
    Operation("health", "GET", "/healthz", "Whether the server answers.", Health, open=True),
)
