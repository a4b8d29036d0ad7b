"""Which task of a set an attempt is at that was made elsewhere: an imported log, or a log that was replayed."""

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from patchgym.records import Task, Trajectory

_SHORTEST_COMMIT = 7
_NUMBERED = re.compile(r"~[0-9]+$")


class NoAttempt(StrEnum):
    """Why a trajectory is no attempt at a task of the set; the value says it in words."""

    SUB_AGENT = "worked for another one, as its sub-agent"
    DUPLICATE = "are the same log again, of the same session and time"
    NO_TASK = "name no task of the set, nor a commit that one begins at"
    SEVERAL = "begin at a commit that several tasks begin at"
    NOT_ASKED = "are at a task that was not asked for (--split, --task)"


class Belongs(NamedTuple):
    """A task, and whether it was made of this very session: then its solution is what the session came to."""

    task: Task
    own: bool


class Belonging:
    """Finds the task of a trajectory: by its id; else by the repository and the commit that its log says it began at,
    where one task alone begins there, or is made of that session."""

    def __init__(self, tasks: Iterable[Task], chosen: Iterable[Task]) -> None:
        """``tasks`` are all of the set, ``chosen`` those that were asked for."""
        self._tasks = {task.id: task for task in tasks}
        self._chosen = {task.id for task in chosen}
        self._seen: set[tuple[str, str, datetime]] = set()
        self._begins: dict[str, list[Task]] = {}
        for task in self._tasks.values():
            if task.source.base_commit is not None:
                self._begins.setdefault(task.source.base_commit[:_SHORTEST_COMMIT], []).append(task)

    def of(self, trajectory: Trajectory) -> Belongs | NoAttempt:
        """Its task, or why there is none. Its first step is looked at, to tell the same log from one more attempt that
        did the same."""
        if trajectory.spawned_by is not None:
            return NoAttempt.SUB_AGENT
        if self._again(trajectory):
            return NoAttempt.DUPLICATE
        found = self._named(trajectory) or self._beginning(trajectory)
        if isinstance(found, NoAttempt):
            return found
        if found.id not in self._chosen:
            return NoAttempt.NOT_ASKED
        return Belongs(found, _made_of(found, trajectory))

    def _again(self, trajectory: Trajectory) -> bool:
        """Whether this very log came before."""
        began = trajectory.timing.started_at or (trajectory.steps[0].started_at if trajectory.steps else None)
        if trajectory.origin is None or trajectory.origin.session is None or began is None:
            return False
        key = trajectory.origin.format, trajectory.origin.session, began
        seen = key in self._seen
        self._seen.add(key)
        return seen

    def _named(self, trajectory: Trajectory) -> Task | None:
        """The task of its id. An import numbers logs of one name (``NAME~2``), also where that is a task's."""
        name = trajectory.task_id
        return self._tasks.get(name) or (self._tasks.get(_NUMBERED.sub("", name)) if trajectory.origin else None)

    def _beginning(self, trajectory: Trajectory) -> Task | NoAttempt:
        origin = trajectory.origin
        commit = origin.base_commit if origin is not None else None
        if origin is None or commit is None or len(commit) < _SHORTEST_COMMIT:
            return NoAttempt.NO_TASK
        there = [task for task in self._begins.get(commit[:_SHORTEST_COMMIT], ()) if _same(task, origin.repo, commit)]
        own = [task for task in there if _made_of(task, trajectory)]
        return _only(own) or _only(there) or (NoAttempt.SEVERAL if there else NoAttempt.NO_TASK)


def _only(tasks: Sequence[Task]) -> Task | None:
    return tasks[0] if len(tasks) == 1 else None


def _same(task: Task, repo: str | None, commit: str) -> bool:
    """Whether a task begins at a commit, which may be told by its first digits, of a repository, which may be told by
    an address."""
    begun = task.source.base_commit or ""
    return (begun.startswith(commit) or commit.startswith(begun)) and (
        repo is None or _last_part(repo) == _last_part(task.source.repo)
    )


def _last_part(repo: str) -> str:
    return repo.rstrip("/").removesuffix(".git").replace(":", "/").rpartition("/")[2].lower()


def _made_of(task: Task, trajectory: Trajectory) -> bool:
    """Whether a task was made of this session (``patchgym.tasks.sources.sessions`` writes its name down)."""
    if task.source.kind != "log" or not task.source.change:
        return False
    names = {trajectory.id, trajectory.task_id, trajectory.origin.session if trajectory.origin is not None else None}
    return task.source.change.rpartition(" session ")[2] in names
