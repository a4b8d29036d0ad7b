"""Briefings of agents, found out once on this machine.

What a briefing is made of (``patchgym.agent.Ranking``) costs a run of tests that are watched line by line: seconds. It
depends on nothing but what is in its key, so it is kept in the cache, and seeds and runs share it. A file there is its
digest and the record; one that is damaged is found out again and replaced. Writers do not wait for each other: each
puts its whole file in place, and all write the same.
"""

import asyncio
import hashlib
import json
import os
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

from patchgym.agent import Ranking, rank, shown
from patchgym.content import ObjectStore, cache_root, disk_errors
from patchgym.errors import DataError
from patchgym.records import Environment, Task, TaskView
from patchgym.rollout.shared import Shared
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import built_environment, coverage_tool, sandbox_spec

_LAYOUT = 1
"""Raised where the same task would be ranked otherwise: what was kept before is then not found."""


class Briefings:
    """What agents are told beforehand, by task. ``objects`` holds the tasks' trees and ``build`` gives the directory of
    a built environment (blocking; called in threads); ``cache`` is the cache's root (None: this machine's)."""

    def __init__(
        self,
        factory: SandboxFactory,
        objects: ObjectStore,
        build: Callable[[Environment], Path],
        cache: Path | None = None,
    ) -> None:
        self._factory, self._objects, self._build = factory, objects, build
        self._folder = (cache or cache_root()) / "briefings"
        self._rankings = Shared[Ranking | None]()

    async def text(self, task: Task, lines: int, slots: asyncio.Semaphore | None = None) -> str:
        """The ``lines`` lines that are most likely wrong, as a text for the agent; empty where nothing can be told.
        Tests are run in one of ``slots``.

        Raises:
            SandboxError: no sandbox could be had, or it was lost.
            PrerequisiteError, EnvironmentBuildError: coverage.py cannot be had here.
            StorageError: the cache cannot be written.
        """
        view = task.view()
        key = ranking_key(view)
        ranking = await self._rankings.get(key, lambda: self._ranking(task, view, key, slots))
        if ranking is None:  # this time nothing was found out; the next one tries again
            self._rankings.forget(key)
            return ""
        return shown(ranking, view, self._objects, lines)

    async def _ranking(self, task: Task, view: TaskView, key: str, slots: asyncio.Semaphore | None) -> Ranking | None:
        file = self._folder / f"{key}.json"
        kept = read_ranking(file)
        if kept is not None:
            return kept
        async with slots or nullcontext():
            found = await self._find(task, view)
        if found is not None:
            keep_ranking(file, found)
        return found

    async def _find(self, task: Task, view: TaskView) -> Ranking | None:
        built = await built_environment(task.environment, self._build)
        if built.folder is None:  # coverage.py is for our Pythons
            return Ranking(places=())
        tool = await asyncio.to_thread(coverage_tool, task.environment, self._build)
        sandbox = await self._factory.create(sandbox_spec(task.workspace, task.environment, built, coverage=tool))
        try:
            return await rank(sandbox, view, self._objects)
        finally:
            await sandbox.close()


def ranking_key(view: TaskView) -> str:
    """SHA-256 (hex) of everything that a ranking depends on: the workspace, its environment, the tests that fail in it
    and may be seen, and how places are ranked."""
    parts = [
        _LAYOUT,
        view.workspace,
        view.environment.model_dump(mode="json"),
        sorted(view.failing_tests),
        sorted(view.test_files),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def read_ranking(file: Path) -> Ranking | None:
    """What is kept in a file; None where there is nothing, or it is damaged."""
    try:
        digest, _, line = file.read_bytes().partition(b"\n")
    except OSError:
        return None
    if hashlib.sha256(line).hexdigest().encode() != digest:
        return None
    try:
        return Ranking.from_line(line, where=str(file))
    except DataError:  # of another release
        return None


def keep_ranking(file: Path, ranking: Ranking) -> None:
    """Put a ranking where it is looked for, all at once.

    Raises:
        StorageError: the disk is full or not writable.
    """
    line = ranking.to_line().encode()
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        number, scratch = tempfile.mkstemp(prefix=f".{file.name[:16]}-", dir=file.parent)
        try:
            with os.fdopen(number, "wb") as out:
                out.write(hashlib.sha256(line).hexdigest().encode() + b"\n" + line)
            Path(scratch).replace(file)
        finally:
            Path(scratch).unlink(missing_ok=True)
