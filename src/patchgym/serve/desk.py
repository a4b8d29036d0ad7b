"""All sessions of a server: who may open one, which are idle, what they cost."""

import asyncio
import logging
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager
from types import TracebackType
from typing import Self

from pydantic import Field

from patchgym.agent import tools_named
from patchgym.config import Settings
from patchgym.records import Sampling, Task, Trajectory
from patchgym.rollout import Collector, RolloutSettings
from patchgym.rollout.attempts import name_of
from patchgym.serve.problems import Refused
from patchgym.serve.session import Session
from patchgym.serve.sheets import Closed, Reset, SessionOpened, Spent, Stats, TaskPage, TaskSheet, sheet_of
from patchgym.store import RunDirectory

PHASE = "serve"
MOST_LISTED = 100
_LOOKS, _OFTEN_S = 4, 5.0
_FULL_S = 5
_log = logging.getLogger("patchgym.serve")


class Rules(Settings):
    """How much is allowed at once: sessions that hold a sandbox or are being graded, in all and of one client; wall
    seconds after which one that nobody asks for is closed; gradings at once; bytes of a request's body, and wall
    seconds in which it must be there; requests at once, beside one for each session."""

    most_sessions: int = Field(64, ge=1, le=10_000)
    per_client: int = Field(32, ge=1)
    idle_seconds: float = Field(600.0, gt=0)
    gradings: int = Field(default_factory=lambda: len(os.sched_getaffinity(0)), ge=1)
    body_bytes: int = Field(1 << 20, ge=1)
    body_seconds: float = Field(10.0, gt=0)
    spare_requests: int = Field(64, ge=1)


class Desk:
    """The sessions over the ``tasks`` of a run, which ``collector`` works for. Used as a context: idle sessions are
    closed meanwhile, and all of them at the end."""

    def __init__(self, tasks: Sequence[Task], run: RunDirectory, collector: Collector, rules: Rules) -> None:
        self.rules = rules
        self.requests = 0
        self.closing = False
        self._tasks = {task.id: task for task in tasks}
        self._run, self._collector = run, collector
        self._sessions: dict[str, Session] = {}
        self._numbers = Counter({task.id: _first_free(run, task) for task in tasks})
        self._counts = Counter[str]()
        self._seconds: dict[str, float] = defaultdict(float)
        self._began = time.monotonic()
        self._reaper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._began = time.monotonic()
        self._reaper = asyncio.create_task(self._reap())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.closing = True
        if self._reaper is not None:
            self._reaper.cancel()
            await asyncio.wait({self._reaper})
        sessions, self._sessions = list(self._sessions.values()), {}
        await asyncio.gather(*(session.close() for session in sessions))

    def listed(self, after: str | None, limit: int) -> TaskPage:
        """A page of the tasks, from the one behind ``after`` on.

        Raises:
            Refused: there is no such task to begin behind.
        """
        names = list(self._tasks)
        start = names.index(self._task(after).id) + 1 if after is not None else 0
        page = names[start : start + limit]
        more = start + limit < len(names)
        sheets = tuple(sheet_of(self._tasks[name].view()) for name in page)
        return TaskPage(tasks=sheets, total=len(names), next=page[-1] if more else None)

    def sheet(self, name: str) -> TaskSheet:
        """One task.

        Raises:
            Refused: there is none of that id.
        """
        return sheet_of(self._task(name).view())

    async def open(self, owner: str, wanted: Reset) -> SessionOpened:
        """A session for a client, its sandbox ready.

        Raises:
            Refused: no such task or tool, too many sessions, or the sandbox was lost.
            PatchgymError: the task cannot be worked on here.
        """
        task, settings = self._task(wanted.task), _settings(wanted, self.rules.gradings)
        self._admit(owner)
        session = Session(owner, task, settings.view(task), wanted.policy, self.rules.idle_seconds)
        self._sessions[session.id] = session
        number = self._numbers[task.id]
        self._numbers[task.id] += 1
        async with AsyncExitStack() as undo:
            undo.push_async_callback(self._drop, session)
            with self.timed("reset"):
                opened = await session.begin(lambda it: self._play(it, number, settings, wanted.sampling))
            undo.pop_all()
        self._counts["opened"] += 1
        return opened

    def session(self, owner: str, name: str) -> Session:
        """A session of this client.

        Raises:
            Refused: it has none of that id. Whether another client has is not told.
        """
        found = self._sessions.get(name)
        if found is None or found.owner != owner:
            raise Refused("no_session")
        return found

    async def close(self, owner: str, name: str) -> Closed:
        """Close a session of this client.

        Raises:
            Refused: as ``session``.
        """
        graded = await self._drop(self.session(owner, name))
        return Closed(session=name, was="graded" if graded else "unfinished")

    def stats(self, owner: str) -> Stats:
        """What there is and was, told to a client."""
        live = [session for session in self._sessions.values() if session.live]
        grading = sum(session.episode is not None for session in live)
        return Stats(
            alive=len(live),
            yours=sum(session.owner == owner for session in live),
            most=self.rules.most_sessions,
            waiting=max(0, grading - self.rules.gradings),
            finished=len(self._sessions) - len(live),
            opened=self._counts["opened"],
            graded=self._counts["graded"],
            reaped=self._counts["reaped"],
            refused=self._counts["refused"],
            requests=self.requests,
            seconds=round(time.monotonic() - self._began, 3),
            spent={
                name: Spent(count=self._counts[name], seconds=round(self._seconds[name], 3))
                for name in ("reset", "step", "grade")
            },
        )

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Count something that is done, and how long it takes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._counts[name] += 1
            self._seconds[name] += time.monotonic() - began

    @contextmanager
    def request(self) -> Iterator[None]:
        """Take a request's place.

        Raises:
            Refused: the server is shutting down, or there are too many requests.
        """
        if self.closing:
            raise Refused("closing", retry_after=_FULL_S)
        if self.requests >= self.rules.most_sessions + self.rules.spare_requests:
            raise self._full(f"{self.requests} requests are under way.", 1)
        self.requests += 1
        try:
            yield
        finally:
            self.requests -= 1

    def _task(self, name: str) -> Task:
        if name not in self._tasks:
            raise Refused("no_task", f"No task is called {name[:300]}.")
        return self._tasks[name]

    def _admit(self, owner: str) -> None:
        if self.closing:
            raise Refused("closing", retry_after=_FULL_S)
        live = [session for session in self._sessions.values() if session.live]
        if sum(session.owner == owner for session in live) >= self.rules.per_client:
            raise self._full(f"You have {self.rules.per_client} sessions, which is all that one client may.", _FULL_S)
        if len(live) >= self.rules.most_sessions:
            raise self._full(f"There are {len(live)} sessions, which is all that there may be.", _FULL_S)

    async def _drop(self, session: Session) -> bool:
        self._sessions.pop(session.id, None)
        return await session.close()

    def _full(self, why: str, seconds: int) -> Refused:
        self._counts["refused"] += 1
        return Refused("too_many", why, retry_after=seconds)

    async def _play(
        self, session: Session, number: int, settings: RolloutSettings, sampling: Sampling | None
    ) -> Trajectory:
        """The rollout of a session, into the run. How a client samples is what it told, whatever was asked of it."""
        name = name_of(PHASE, session.task, number)
        with ExitStack() as undo:
            undo.callback(self._run.set_aside, name)
            made = await self._collector.attempt(
                PHASE, session.task, number, session.client, settings, session.stepped, session.ended
            )
            undo.pop_all()
        steps = tuple(step.model_copy(update={"sampling": sampling}) for step in made.steps)
        final = made.model_copy(update={"steps": steps})
        self._run.append(final)
        self._counts["graded"] += final.report is not None
        return final

    async def _reap(self) -> None:
        """Close what nobody asks for any more, and forget the oldest grades where there are many."""
        while True:
            await asyncio.sleep(min(_OFTEN_S, self.rules.idle_seconds / _LOOKS))
            idle = [one for one in self._sessions.values() if one.idle > self.rules.idle_seconds]
            for session in idle:
                self._counts["reaped"] += session.live
                _log.info("closed the idle session of %s on %s", session.owner, session.task.id)
                await self._drop(session)
            finished = [one for one in self._sessions.values() if not one.live and not one.busy]
            for session in finished[: -self.rules.most_sessions]:
                del self._sessions[session.id]


def _settings(wanted: Reset, gradings: int) -> RolloutSettings:
    if wanted.tools is None:
        return RolloutSettings(gradings=gradings)
    try:
        return RolloutSettings(tools=tuple(tools_named([*wanted.tools, "submit"])), gradings=gradings)
    except ValueError as error:
        raise Refused("invalid", f"tools: {error}") from error


def _first_free(run: RunDirectory, task: Task) -> int:
    """The first number that no sample of a task has in the run."""
    before = f"{PHASE}.{task.id}."
    numbers = (name.removeprefix(before) for name in run.ids if name.startswith(before))
    return max((int(number) for number in numbers if number.isdigit()), default=-1) + 1
