"""Building a task set: candidates from every source of the recipe, settled one by one, written all at once.

Every candidate is accounted for, and what is known of it is kept in a folder beside the task set until that is written:
a build that was interrupted goes on from there.
"""

import asyncio
import hashlib
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import chain, islice
from pathlib import Path

from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import ConfigError, DataError, EnvironmentBuildError, UsageError
from patchgym.executors import Executor, Place
from patchgym.records import Environment, Task, TaskSetManifest
from patchgym.sandbox import SandboxFactory
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.operators import OPERATORS
from patchgym.tasks.bugs.targets import PlanSettings, plan
from patchgym.tasks.cleaning import clean
from patchgym.tasks.funnel import Funnel, meaning_of
from patchgym.tasks.ledger import Ledger
from patchgym.tasks.proof.bench import Bench, together
from patchgym.tasks.proof.far import Benched, BenchResult, FarBench
from patchgym.tasks.proof.healthy import Suites
from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.settle import Settler, Side, Workshop
from patchgym.tasks.sources.candidates import Candidate, pair_candidate, text_of
from patchgym.tasks.sources.git import GitSource, read_issues
from patchgym.tasks.sources.packages import Catalog
from patchgym.tasks.sources.planted import planted_candidate
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.sources.provide import Provider
from patchgym.tasks.sources.refusals import Refused
from patchgym.tasks.sources.releases import ReleaseSource
from patchgym.tasks.sources.sessions import SessionSource
from patchgym.tasks.sources.source import CandidateSource
from patchgym.tasks.taskset import write_task_set
from patchgym.tasks.writer import Writer

_WAVE = 4
Progress = Callable[[str, int, int], None]
"""Called with a stage (``sources``, ``tasks``), how much of it is done and how much there is."""


async def build_task_set(
    recipe: TaskSetRecipe,
    out: Path,
    *,
    factory_for: Callable[[ObjectStore], SandboxFactory],
    build: Callable[[Environment], Path] = build_environment,
    catalog: Catalog | None = None,
    releases: Callable[[str], ReleaseSource] = ReleaseSource,
    on_progress: Progress = lambda stage, done, total: None,
    executor_for: Callable[[ObjectStore], tuple[Executor[Benched, BenchResult], int]] | None = None,
) -> TaskSetManifest:
    """Build the task set of ``recipe`` at ``out``. Until all of it is there, nothing is at ``out``; the work so far is
    in the folder ``.NAME.build`` beside it, and the same call goes on from there. Releases that ``catalog`` does not
    pin come from ``releases``, which asks the index. With ``executor_for``, tests run where the executor that it gives
    for a store has them run, so many at once.

    The same recipe gives the same tasks, save for times. See ``patchgym.tasks.funnel`` for what the manifest counts.

    Raises:
        UsageError: ``out`` exists, there is no such release or file of issues, or another build is at work there.
        ConfigError: there is no such operator, a release is on both sides, issues are of nothing that is mined, or what
            is there is of another recipe.
        OfflineError, PrerequisiteError: sources or environments cannot be had.
        DataError: no candidate became a task.
        StorageError: the disk is full.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    _check(recipe)
    with Ledger(out.with_name(f".{out.name}.build"), recipe.model_dump(mode="json")) as ledger:
        objects = ledger.objects
        concurrency = recipe.concurrency or len(os.sched_getaffinity(0))
        suites = Suites(ledger.folder / "suites")
        if executor_for is None:
            bench = Bench(factory_for(objects), objects, build, concurrency, suites)
        else:
            executor, concurrency = executor_for(objects)
            bench = FarBench(executor, Place(objects, factory_for(objects), build), concurrency, suites)
        writer = Writer(recipe.writer, ledger.folder / "answers.jsonl") if recipe.writer.model else None
        shop = Workshop(recipe, bench, Provider(bench.run, objects), ledger, Funnel(), {}, writer)
        revisions, pins = await _load_all(shop, catalog or Catalog(), releases, on_progress)
        work = _Build(shop, revisions, pins, on_progress)
        tasks = await work.run()
        if not tasks:
            raise DataError("No candidate became a task", why=_told(shop.funnel))
        manifest = _manifest(shop, work.pins, work.logs, round(ledger.seconds, 1))
        finished = ledger.folder / "set"
        with disk_errors(out):
            _empty(finished)
            write_task_set(finished, manifest, tasks, objects)
            finished.rename(out)
        ledger.clear()
    return manifest


def _manifest(shop: Workshop, pins: Mapping[str, str], logs: dict[str, str], seconds: float) -> TaskSetManifest:
    recipe, funnel = shop.recipe, shop.funnel
    return TaskSetManifest(
        name=recipe.name,
        recipe=recipe.model_dump(mode="json"),
        funnel=funnel.stages,
        dropped=funnel.dropped,
        refused=dict(funnel.refused.most_common()),
        examples=dict(sorted(funnel.examples.items())),
        flaky=dict(sorted(shop.flaky.items())),
        sources=dict(sorted(pins.items())),
        logs=logs,
        seconds=seconds,
        created_at=datetime.now(UTC),
    )


def _told(funnel: Funnel) -> str:
    """What became of all candidates, in a line or two."""
    lost = [*funnel.dropped.items(), *funnel.refused.items()]
    counts = ", ".join(f"{count} {reason} ({meaning_of(reason)})" for reason, count in lost)
    shown = "".join(f" {reason}: {text}." for reason, text in funnel.examples.items())
    return f"What became of them: {counts or 'there were none'}.{shown}"


def _empty(folder: Path) -> None:
    """A new folder in place of one that a build left when it was killed while writing."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o755)


def _check(recipe: TaskSetRecipe) -> None:
    unknown = sorted(set(recipe.bugs.operators) - OPERATORS.keys())
    if unknown:
        raise ConfigError(f"There is no operator {unknown[0]}", why=f"Operators: {', '.join(OPERATORS)}.")
    unmined = sorted(set(recipe.issues) - set(recipe.repositories))
    if unmined:
        raise ConfigError(
            f"There are issues of {unmined[0]}, which is not mined", mend="Name it among the repositories as well."
        )
    training = {*recipe.train, *(old for old, _ in map(_ends, recipe.pairs))}
    both = sorted(training & set(recipe.heldout))
    if both:
        raise ConfigError(
            f"{both[0]} is both for training and held out", mend="Hold out another release, or another package."
        )


async def _load_all(
    shop: Workshop, catalog: Catalog, releases: Callable[[str], ReleaseSource], on_progress: Progress
) -> tuple[dict[str, Revision], dict[str, str]]:
    """Every release and repository to plant bugs in as a revision, with the SHA-256 of its sdist or its commit. For one
    that is not pinned an environment is found; where there is none, it is left out and counted."""
    recipe, objects = shop.recipe, shop.bench.objects
    ends = [end for pair in recipe.pairs for end in _ends(pair)]
    wanted = list(dict.fromkeys([*recipe.train, *recipe.heldout, *ends]))
    pins = {requirement: pin for requirement in wanted if (pin := catalog.known(requirement)) is not None}
    arrived = 0

    async def fetch(requirement: str) -> None:
        nonlocal arrived
        await asyncio.to_thread(catalog.fetch, requirement)
        arrived += 1
        on_progress("sources", arrived, len(wanted))

    on_progress("sources", 0, len(wanted))
    await together(fetch(requirement) for requirement in pins)
    revisions = {requirement: catalog.load(requirement, objects) for requirement in pins}
    hashes = {requirement: pin.sha256 for requirement, pin in pins.items()}
    for requirement in (name for name in wanted if name not in pins):
        source = releases(requirement) if "==" in requirement else GitSource(requirement)
        try:
            found = await asyncio.to_thread(source.revision, objects)
            revisions[requirement] = (await shop.provider.provide(found, found.tree)).revision
        except Refused as refused:
            shop.funnel.refused[refused.reason] += 1
        except EnvironmentBuildError as error:
            shop.funnel.refused[error.kind] += 1
            shop.funnel.show(error.kind, source.label, error.why)
        hashes |= _origins(source)
    return revisions, hashes


def _origins(source: CandidateSource) -> dict[str, str]:
    """What a source read: sdists and their SHA-256, a repository and the commit that its history was read from."""
    if isinstance(source, ReleaseSource):
        return {f"{pin.name}=={pin.version}": pin.sha256 for pin in source.pins}
    return {source.label: source.head} if isinstance(source, GitSource) and source.head else {}


def _ends(pair: str) -> tuple[str, str]:
    """``name==old..new`` as two requirements."""
    name, _, versions = pair.partition("==")
    old, _, new = versions.partition("..")
    return f"{name}=={old}", f"{name}=={new}"


class _Build:
    """One build under way: every source of the recipe, and how far it is."""

    def __init__(
        self, shop: Workshop, revisions: dict[str, Revision], pins: dict[str, str], on_progress: Progress
    ) -> None:
        recipe, objects = shop.recipe, shop.bench.objects
        self.pins = pins
        self.logs: dict[str, str] = {}
        self._shop, self._revisions, self._on_progress = shop, revisions, on_progress
        self._settler = Settler(shop)
        self._pairs = [
            pair_candidate(revisions[old], revisions[new], objects)
            for old, new in map(_ends, recipe.pairs)
            if old in revisions and new in revisions
        ]
        names = [
            {revisions[requirement].name for requirement in side if requirement in revisions}
            for side in (recipe.train, recipe.heldout)
        ]
        self._shared = names[0] & names[1]
        self._wanted = (
            len(recipe.pairs)
            + len(recipe.train) * recipe.train_per_release
            + len(recipe.heldout) * recipe.heldout_per_release
            + (len(recipe.repositories) + len(recipe.histories) + len(recipe.logs)) * recipe.commits
        )
        self._ready = 0

    async def run(self) -> list[Task]:
        """Every task, in the recipe's order."""
        self._on_progress("tasks", 0, self._wanted)
        recipe = self._shop.recipe
        work = [self._from_pair(pair) for pair in self._pairs]
        work += [self._from_history(self._git(place)) for place in recipe.repositories]
        work += [self._from_history(ReleaseSource(name, most=recipe.commits)) for name in recipe.histories]
        work += [self._from_history(SessionSource(Path(path), Path(recipe.clones))) for path in recipe.logs]
        sides: tuple[tuple[Side, tuple[str, ...], int], ...] = (
            ("train", recipe.train, recipe.train_per_release),
            ("heldout", recipe.heldout, recipe.heldout_per_release),
        )
        for side, names, count in sides:
            work += [self._planted(name, side, count) for name in names if name in self._revisions]
        tasks = [task for found in await together(work) for task in found]
        if not tasks:
            return []
        kept, gone = await asyncio.to_thread(clean, tasks, self._shop.bench.objects, recipe.benchmarks)
        for _, reason in gone:
            self._shop.funnel.drop(reason)
        if self._shop.writer is not None:
            self._shop.funnel.refused.update(self._shop.writer.refused)
        for _ in kept:
            self._shop.funnel.write()
        return kept

    async def _from_pair(self, pair: Candidate) -> list[Task]:
        task = await self._settle(pair, "train")
        return [task] if task is not None else []

    def _git(self, place: str) -> GitSource:
        told = self._shop.recipe.issues.get(place)
        return GitSource(place, issues=read_issues(Path(told)) if told is not None else None)

    async def _from_history(self, source: CandidateSource) -> list[Task]:
        """A task of each candidate that makes one, of the first ``commits``."""
        candidates = source.candidates(self._shop.bench.objects)
        found: list[Task] = []
        left = self._shop.recipe.commits
        try:
            while left > 0:
                wave = await asyncio.to_thread(list, islice(candidates, min(left, _WAVE)))
                if not wave:
                    break
                left -= len(wave)
                settled = await together(self._settle(candidate, "train") for candidate in wave)
                found += [task for task in settled if task is not None]
        finally:
            candidates.close()  # and with it what reads the history
        self._shop.funnel.refused.update(source.refused)
        self.pins |= _origins(source)
        if isinstance(source, SessionSource):
            made = {task.id for task in found}
            settled_as = self._shop.ledger.settled
            dropped = {
                name: settled_as[key].reason or ""
                for key, name in source.sessions.items()
                if key not in made and key in settled_as
            }
            self.logs |= source.kept | dropped
        return found

    async def _planted(self, requirement: str, side: Side, wanted: int) -> list[Task]:
        """Up to ``wanted`` tasks with planted bugs. Candidates run in waves whose size depends on results alone, so
        that the outcome does not depend on how fast they run."""
        recipe, revision = self._shop.recipe, self._revisions[requirement]
        try:
            healthy = await self._settler.healthy(revision, revision.tree)
        except EnvironmentBuildError as error:
            self._settler.refuse(revision, error)
            return []
        bugs = await asyncio.to_thread(
            plan, revision, self._shop.bench.objects, healthy.coverage, self._plan_settings(), recipe.seed
        )
        made: Counter[str] = Counter()
        waiting = self._usable(bugs, revision, side, made)
        first = list(islice(waiting, recipe.writer.bugs))
        found = await self._written(first, revision, side, wanted, made)
        waiting = chain(self._usable(iter(first), revision, side, made), waiting)
        left = wanted * recipe.bugs.tries_per_task
        while len(found) < wanted and left > 0:
            count = min(left, max(2, wanted - len(found)))
            planned = await asyncio.to_thread(list, islice(waiting, count))
            if not planned:
                break
            left -= len(planned)
            wave = [planted_candidate(revision, self._shop.bench.objects, bug) for bug in planned]
            results = await together(self._settle(candidate, side) for candidate in wave)
            for candidate, task in zip(wave, results, strict=True):
                if task is None:
                    continue
                if len(found) < wanted and self._room(candidate.functions, made):
                    made.update(candidate.functions)
                    found.append(task)
                else:
                    self._shop.funnel.drop("spare")
                    self._count(-1)
        return found

    async def _written(
        self, planned: Sequence[Bug], revision: Revision, side: Side, wanted: int, made: Counter[str]
    ) -> list[Task]:
        """Tasks with bugs that a model wrote, in the functions that the plan begins with."""
        writer, objects = self._shop.writer, self._shop.bench.objects
        if writer is None:
            return []
        found: list[Task] = []
        for place in dict.fromkeys(bug.functions[0] for bug in planned):
            path, _, name = place.partition(":")
            source = text_of(objects, objects.entries(revision.tree)[path])
            bug = await writer.bug(path, source, name) if len(found) < wanted else None
            if bug is not None:
                task = await self._settle(planted_candidate(revision, objects, bug), side)
                if task is not None:
                    made.update(bug.functions)
                    found.append(task)
        return found

    def _plan_settings(self) -> PlanSettings:
        recipe = self._shop.recipe
        return PlanSettings(
            operators=recipe.bugs.operators,
            max_function_lines=recipe.bugs.max_function_lines,
            per_function=recipe.bugs.per_function * recipe.bugs.tries_per_task,
            most_failing_tests=recipe.max_failing_tests,
            removals=recipe.bugs.removals,
            combined=recipe.bugs.combined,
        )

    def _usable(self, bugs: Iterator[Bug], revision: Revision, side: Side, made: Counter[str]) -> Iterator[Bug]:
        """Bugs of functions that belong to ``side`` and of which more tasks are wanted."""
        for bug in bugs:
            if all(self._belongs(revision, name, side) for name in bug.functions) and self._room(bug.functions, made):
                yield bug

    def _room(self, functions: Iterable[str], made: Counter[str]) -> bool:
        return all(made[name] < self._shop.recipe.bugs.per_function for name in functions)

    async def _settle(self, candidate: Candidate, side: Side) -> Task | None:
        """Settle a candidate, and tell at once how far the build is."""
        task = await self._settler.settle(candidate, side)
        self._count(int(task is not None))
        return task

    def _count(self, more: int) -> None:
        self._ready += more
        self._on_progress("tasks", self._ready, self._wanted)

    def _belongs(self, revision: Revision, function: str, side: Side) -> bool:
        """Whether a function may be broken for ``side``: no function is on both, whatever the release."""
        if revision.name not in self._shared:
            mine = True
        else:
            digest = hashlib.sha256(f"{self._shop.recipe.seed}/{revision.name}/{function}".encode()).digest()
            held_out = int.from_bytes(digest[:4]) / 2**32 < self._shop.recipe.heldout_functions
            mine = held_out == (side == "heldout")
        fixed = {name for pair in self._pairs if pair.revision.name == revision.name for name in pair.functions}
        return mine and (side == "train" or function not in fixed)
