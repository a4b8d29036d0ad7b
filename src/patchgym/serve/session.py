"""One task under way for one client."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager

from patchgym.agent import Episode
from patchgym.errors import PatchgymError
from patchgym.records import Step, StopReason, Task, TaskView, Trajectory
from patchgym.serve.client import Client, sample_of
from patchgym.serve.problems import Refused
from patchgym.serve.sheets import Graded, Left, SessionOpened, SessionState, StepDone, StepWanted, graded_of

_log = logging.getLogger("patchgym.serve")
_SUBMIT = StepWanted(tool="submit")


class Session:
    """A rollout whose policy is the client ``owner``. It does one thing at a time: what comes meanwhile is refused.

    The rollout is a task of its own: it waits for the client between two turns, and goes on to grading by itself once
    the episode is over.
    """

    def __init__(self, owner: str, task: Task, view: TaskView, policy: str | None, idle_seconds: float) -> None:
        self.id = secrets.token_urlsafe(18)
        self.owner, self.task, self.view = owner, task, view
        self.episode: Episode | None = None
        self.busy = False
        self.used = time.monotonic()
        self._quiet = asyncio.Event()
        self.client = Client(owner, policy, self._quiet.set)
        self._idle_seconds = idle_seconds
        self._began = time.monotonic()
        self._last: Step | None = None
        self._turns = 0
        self._tokens: int | None = 0
        self._playing: asyncio.Task[Trajectory] | None = None

    @property
    def live(self) -> bool:
        """Whether it holds a sandbox, will in a moment, or is being graded."""
        return self._playing is None or not self._playing.done()

    @property
    def over(self) -> bool:
        """Whether no further step can be taken."""
        return self.episode is not None or not self.live

    @property
    def idle(self) -> float:
        """Wall seconds since anybody wanted something of it; 0 while it works, also on its grade."""
        grading = self.episode is not None and self.live
        return 0.0 if self.busy or grading else time.monotonic() - self.used

    async def begin(self, rollout: Callable[["Session"], Coroutine[None, None, Trajectory]]) -> SessionOpened:
        """Start the rollout, and wait until it asks for the first action.

        Raises:
            Refused: the sandbox could not be made, or the session was closed meanwhile.
            PatchgymError: the task cannot be worked on here.
        """
        with self._alone():
            self._playing = asyncio.create_task(rollout(self))
            self._playing.add_done_callback(self._done)
            await self._quiet.wait()
            self._raise()
            if self.over:
                await asyncio.wait({self._playing})  # what was lost is recorded
                raise Refused("lost")
            self._began = time.monotonic()
        said = {message.role: message.content for message in self.client.messages}
        return SessionOpened(
            session=self.id,
            task=self.task.id,
            system=said["system"],
            instruction=said["user"],
            tools=tuple(self.client.tools),
            left=self.left,
        )

    async def step(self, wanted: StepWanted) -> StepDone:
        """Take one turn.

        Raises:
            Refused: it works on something else, is over or closed, or the sandbox was lost.
            PatchgymError: the server cannot go on with it.
        """
        with self._alone():
            turn = self._turns
            await self._act(wanted)
            if self._turns == turn or self._last is None:
                raise Refused("lost")
            return self._told(self._last)

    async def grade(self) -> Graded:
        """Hand in the work where the episode is not over, and wait for its grade. May be asked for again.

        Raises:
            Refused: it works on something else, or was closed.
            PatchgymError: the server cannot grade it.
        """
        with self._alone():
            if not self.over:
                await self._act(_SUBMIT)
            assert self._playing is not None
            await asyncio.wait({self._playing})
            self._raise()
            return graded_of(self.id, self.task, self._playing.result())

    async def close(self) -> bool:
        """End the rollout; its sandboxes are gone afterwards. Whether it had come to its grade."""
        assert self._playing is not None
        graded = self._graded
        self._playing.cancel()
        await asyncio.wait({self._playing})
        return graded

    def stepped(self, step: Step) -> None:
        """Take note of a step."""
        self._last, self._turns = step, self._turns + 1
        known = self._tokens is not None and step.usage is not None
        self._tokens = (self._tokens or 0) + step.usage.sampled_tokens if known and step.usage else None

    def ended(self, episode: Episode) -> None:
        """Take note that the episode is over."""
        self.episode = episode
        self._quiet.set()

    @property
    def state(self) -> SessionState:
        """How it stands."""
        return SessionState(
            session=self.id,
            task=self.task.id,
            turns=self._turns,
            busy=self.busy,
            done=self.over,
            graded=self._graded,
            left=self.left,
        )

    @property
    def left(self) -> Left:
        """What is left of the limits."""
        limits = self.view.limits
        return Left(
            turns=max(0, limits.turns - self._turns),
            seconds=round(max(0.0, limits.seconds - (time.monotonic() - self._began)), 3),
            tokens=None if self._tokens is None else max(0, limits.tokens - self._tokens),
            idle_seconds=self._idle_seconds,
        )

    @property
    def _graded(self) -> bool:
        playing = self._playing
        return playing is not None and playing.done() and not playing.cancelled() and playing.exception() is None

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if self.busy:
            raise Refused("busy", retry_after=1)
        self.busy = True
        try:
            yield
        finally:
            self.busy, self.used = False, time.monotonic()

    async def _act(self, wanted: StepWanted) -> None:
        """Give the rollout its answer, and wait until it asks for another one or is over."""
        self._raise()
        if self.over:
            raise Refused("over")
        sample = sample_of(wanted, self._turns)
        self._quiet.clear()
        self.client.answer(sample)
        await self._quiet.wait()
        self._raise()

    def _raise(self) -> None:
        """Raise what ended the rollout, if something did."""
        if self._playing is None or not self._playing.done():
            return
        if self._playing.cancelled():
            raise Refused("closed")
        error = self._playing.exception()
        if isinstance(error, PatchgymError):
            raise error
        if error is not None:
            raise Refused("broken") from error

    def _done(self, playing: asyncio.Task[Trajectory]) -> None:
        self._quiet.set()
        error = None if playing.cancelled() else playing.exception()
        if error is not None:
            known = isinstance(error, PatchgymError)
            _log.error("a session on %s ended: %s", self.task.id, error, exc_info=None if known else error)

    def _told(self, step: Step) -> StepDone:
        seen = step.observation
        assert seen is not None
        return StepDone(
            index=step.index,
            shown=seen.shown,
            ok=bool(seen.ok),
            exit_code=seen.exit_code,
            timed_out=seen.timed_out,
            seconds=seen.seconds,
            changed_paths=step.changed_paths or (),
            done=self.over,
            stop=self._stop,
            left=self.left,
        )

    @property
    def _stop(self) -> StopReason | None:
        return self.episode.stop if self.episode is not None else None
