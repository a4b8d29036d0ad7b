"""From what a code base asks for to an environment in which its suite passes: locked with hashes, at a stated Python,
as the index was when the code was written, tried in the sandbox and mended when a module turns out to be missing."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Protocol

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from patchgym.content import ObjectStore
from patchgym.errors import BuildFailure, EnvironmentBuildError
from patchgym.records import Environment
from patchgym.sandbox.environments import installed_pythons, lock_environment
from patchgym.tasks.sources.project import Needs, Revision
from patchgym.tasks.sources.requirements import package_of, ways
from patchgym.tasks.sources.suite import missing_modules, suite_failure
from patchgym.testrun import TestRun

_ROUNDS = 3
# The day by which the usual packages ran on each Python, a year after it came out: what is older knows nothing of it.
_SETTLED = {
    "3.7": date(2019, 6, 27),
    "3.8": date(2020, 10, 14),
    "3.9": date(2021, 10, 5),
    "3.10": date(2022, 10, 4),
    "3.11": date(2023, 10, 24),
    "3.12": date(2024, 10, 2),
    "3.13": date(2025, 10, 7),
    "3.14": date(2026, 10, 7),
}


class Suite(Protocol):
    """Runs the whole suite of a tree in a fresh sandbox, as ``Bench.run`` does."""

    async def __call__(self, tree: str, environment: Environment, *, timeout_s: float) -> TestRun: ...


class Lock(Protocol):
    """Makes a lock, as ``lock_environment`` does."""

    def __call__(self, requirements: tuple[str, ...], python: str, *, exclude_newer: str | None = None) -> str: ...


@dataclass(frozen=True)
class Provided:
    """A revision with its locked environment, and the run of its suite there. ``added`` are the packages that the code
    base did not ask for, ``as_of`` the day that the index was asked for (None: as it is now)."""

    revision: Revision
    run: TestRun
    added: tuple[str, ...]
    as_of: str | None


class Provider:
    """Finds environments. What it learnt of a project (modules to add, locks) serves its later revisions.

    A suite is healthy when it ends within ``suite_seconds`` and at least ``min_passing`` of its tests pass. ``python``
    (``major.minor``) is the Python to use; none: the running one where the code allows it, else the newest here that it
    allows. Only wheels are installed, since building an sdist runs its code on this machine.
    """

    def __init__(
        self,
        suite: Suite,
        objects: ObjectStore,
        *,
        python: str | None = None,
        min_passing: float = 0.5,
        suite_seconds: float = 300.0,
        lock: Lock = lock_environment,
        pythons: Callable[[], tuple[str, ...]] = installed_pythons,
    ) -> None:
        self._suite, self._objects, self._lock, self._pythons = suite, objects, lock, pythons
        self._python, self._min_passing, self._seconds = python, min_passing, suite_seconds
        self._locks: dict[tuple[tuple[str, ...], str, str | None], str | EnvironmentBuildError] = {}
        self._added: dict[str, tuple[str, ...]] = {}

    async def provide(self, revision: Revision, tree: str) -> Provided:
        """An environment in which the suite of ``tree`` is healthy. A revision that brings its lock is only tried.

        Raises:
            EnvironmentBuildError: there is none; its ``kind`` says why.
            OfflineError, PrerequisiteError, StorageError: this machine cannot have it now.
            SandboxError: the sandbox was lost.
        """
        if revision.needs is None:
            run = await self._suite(tree, revision.environment, timeout_s=self._seconds)
            failure = self._failure(run, revision, tree)
            if failure is not None:
                raise failure
            return Provided(revision, run, (), None)
        python = self._choose(revision.needs, revision.name)
        as_of = day_of(revision.created_at, python)
        failure = None
        locked_once = False
        for number, way in enumerate(ways(revision.needs)):
            if locked_once and number == 2:
                break  # with fewer packages than before a suite does not get better
            try:
                lock, way_as_of = await self._dated_lock((*way, *self._added.get(revision.name, ())), python, as_of)
                locked_once = True
                return await self._tried(revision, tree, _Attempt(way, python, way_as_of, lock))
            except EnvironmentBuildError as error:
                failure = failure or error
        assert failure is not None
        raise _telling(failure, revision.needs.left_out) from failure

    async def _tried(self, revision: Revision, tree: str, attempt: "_Attempt") -> Provided:
        """Run the suite; add what it misses and run it again, at most three times."""
        added = self._added.get(revision.name, ())
        lock = attempt.lock
        for left in reversed(range(_ROUNDS + 1)):
            environment = revision.environment.model_copy(update={"python": attempt.python, "lock": lock})
            run = await self._suite(tree, environment, timeout_s=self._seconds)
            more = [package_of(module) for module in missing_modules(run, revision.project)]
            wanted = [name for name in more if name is not None and name not in added]
            mended = None
            for packages in (wanted, *([name] for name in wanted if len(wanted) > 1)) if left and wanted else ():
                mended = await self._with(attempt, (*added, *packages))
                if mended is not None:
                    added = (*added, *packages)
                    break
            if mended is None:
                break
            lock = mended
        failure = self._failure(run, revision, tree)
        if failure is not None:
            raise failure
        self._added[revision.name] = added
        return Provided(replace(revision, environment=environment, needs=None), run, added, attempt.as_of)

    async def _with(self, attempt: "_Attempt", added: tuple[str, ...]) -> str | None:
        """A lock with further packages; None where they do not go together, or are none."""
        try:
            return (await self._dated_lock((*attempt.way, *added), attempt.python, attempt.as_of))[0]
        except EnvironmentBuildError:
            return None

    async def _dated_lock(
        self, requirements: tuple[str, ...], python: str, as_of: str | None
    ) -> tuple[str, str | None]:
        """A lock as of a day; where the index does not tell upload times, as of now."""
        try:
            return await self._locked(requirements, python, as_of), as_of
        except EnvironmentBuildError as error:
            if error.kind is not BuildFailure.NO_UPLOAD_TIMES:
                raise
        return await self._locked(requirements, python, None), None

    async def _locked(self, requirements: tuple[str, ...], python: str, as_of: str | None) -> str:
        key = requirements, python, as_of
        if key not in self._locks:
            try:
                self._locks[key] = await asyncio.to_thread(self._lock, requirements, python, exclude_newer=as_of)
            except EnvironmentBuildError as error:
                self._locks[key] = error
        found = self._locks[key]
        if isinstance(found, EnvironmentBuildError):
            raise found
        return found

    def _choose(self, needs: Needs, name: str) -> str:
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        if self._python is not None or allows(needs.requires_python, running):
            return self._python or running
        for version in self._pythons():  # which takes a second to find out
            if allows(needs.requires_python, version):
                return version
        raise EnvironmentBuildError(
            f"This machine has no Python that {name} is for",
            why=f"It asks for {needs.requires_python}; here are {', '.join(self._pythons())}.",
            mend="Install one of those, or leave the package out.",
            kind=BuildFailure.PYTHON_VERSION,
        )

    def _failure(self, run: TestRun, revision: Revision, tree: str) -> EnvironmentBuildError | None:
        kind = suite_failure(run, revision.project, self._objects.entries(tree), self._min_passing)
        if kind is None:
            return None
        said = next(iter(run.failures.values()), run.log).strip()
        return EnvironmentBuildError(
            f"The test suite of {revision.label} does not pass ({kind})",
            why=said[-600:],
            mend="Its environment may lack something that the tests need.",
            kind=kind,
        )


def _telling(failure: EnvironmentBuildError, left_out: tuple[str, ...]) -> EnvironmentBuildError:
    """The failure, with the requirements that nobody could be asked for."""
    told = f" These were left out, being no names with versions: {', '.join(left_out)}." if left_out else ""
    return EnvironmentBuildError(failure.what, why=failure.why + told, mend=failure.mend, kind=failure.kind)


@dataclass(frozen=True)
class _Attempt:
    """One way of asking the resolver that had an answer."""

    way: tuple[str, ...]
    python: str
    as_of: str | None
    lock: str


def allows(requires_python: str | None, python: str) -> bool:
    """Whether a specifier (``>=3.8,<4``) allows a Python (``major.minor``, whatever its last part); one that does not
    parse allows all."""
    try:
        wanted = SpecifierSet(requires_python or "")
    except InvalidSpecifier:
        return True
    return any(wanted.contains(f"{python}.{last}") for last in (0, 9, 99))


def day_of(created_at: datetime | None, python: str) -> str | None:
    """The day to ask the index for: that of the code, but not one on which the Python was too new; None where the code
    has no date, or the Python is too new for that to matter."""
    settled = _SETTLED.get(python)
    if created_at is None or settled is None:
        return None
    return max(created_at.astimezone(UTC).date(), settled).isoformat()
