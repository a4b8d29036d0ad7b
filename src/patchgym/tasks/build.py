"""Building a task set: candidates from releases, drafted, proved, written. Every candidate is accounted for."""

import asyncio
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import ConfigError, DataError, SandboxError, UsageError
from patchgym.records import Environment, Task, TaskSetManifest
from patchgym.sandbox import SandboxFactory
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.bugs.operators import OPERATORS
from patchgym.tasks.proof.bench import Bench, Dropped, Healthy, run_healthy, together
from patchgym.tasks.proof.draft import Rules, draft_task
from patchgym.tasks.proof.prove import prove
from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.sources.candidates import Candidate, pair_candidate, plan_mutations, planted_candidate
from patchgym.tasks.sources.packages import Catalog
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.taskset import write_task_set

Progress = Callable[[str, int, int], None]
"""Called with a stage (``sources``, ``tasks``), how much of it is done and how much there is."""
Side = Literal["train", "heldout"]


async def build_task_set(
    recipe: TaskSetRecipe,
    out: Path,
    *,
    factory_for: Callable[[ObjectStore], SandboxFactory],
    build: Callable[[Environment], Path] = build_environment,
    catalog: Catalog | None = None,
    on_progress: Progress = lambda stage, done, total: None,
) -> TaskSetManifest:
    """Build the task set of ``recipe`` at ``out``, all at once: where it fails or is interrupted, nothing is there.

    The same recipe gives the same tasks, save for times. ``funnel`` of the manifest counts ``candidates``, those
    ``written``, those that were ``spare``, and those dropped, as ``dropped_`` and the reason (see ``Dropped``).

    Raises:
        UsageError: ``out`` exists, or a release is not pinned.
        ConfigError: there is no such operator, or a release is on both sides.
        OfflineError, PrerequisiteError, EnvironmentBuildError: sources or environments cannot be had.
        DataError: no candidate became a task.
        StorageError: the disk is full.
    """
    if out.exists():
        raise UsageError(f"{out} exists already", mend="Choose another place for the task set, or remove it.")
    _check(recipe)
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True)
    with scratch as folder:
        objects = ObjectStore(Path(folder, "work"))
        releases = await _load_all(recipe, objects, catalog or Catalog(), on_progress)
        cores = recipe.concurrency or len(os.sched_getaffinity(0))
        work = _Build(recipe, releases, Bench(factory_for(objects), objects, build, cores), on_progress)
        tasks = await work.run()
        if not tasks:
            raise DataError("No candidate became a task", why=f"What became of them: {dict(work.funnel)}.")
        manifest = TaskSetManifest(
            name=recipe.name,
            recipe=recipe.model_dump(mode="json"),
            funnel=dict(sorted(work.funnel.items())),
            created_at=datetime.now(UTC),
        )
        finished = Path(folder, "set")
        with disk_errors(out):
            finished.mkdir(mode=0o755)
            write_task_set(finished, manifest, tasks, objects)
            finished.rename(out)
    return manifest


def _check(recipe: TaskSetRecipe) -> None:
    unknown = sorted(set(recipe.operators) - OPERATORS.keys())
    if unknown:
        raise ConfigError(f"There is no operator {unknown[0]}", why=f"Operators: {', '.join(OPERATORS)}.")
    training = {*recipe.train, *(old for old, _ in map(_ends, recipe.pairs))}
    both = sorted(training & set(recipe.heldout))
    if both:
        raise ConfigError(
            f"{both[0]} is both for training and held out", mend="Hold out another release, or another package."
        )


async def _load_all(
    recipe: TaskSetRecipe, objects: ObjectStore, catalog: Catalog, on_progress: Progress
) -> dict[str, Revision]:
    ends = [end for pair in recipe.pairs for end in _ends(pair)]
    wanted = list(dict.fromkeys([*recipe.train, *recipe.heldout, *ends]))
    arrived = 0

    async def fetch(requirement: str) -> None:
        nonlocal arrived
        await asyncio.to_thread(catalog.fetch, requirement)
        arrived += 1
        on_progress("sources", arrived, len(wanted))

    on_progress("sources", 0, len(wanted))
    await together(fetch(requirement) for requirement in wanted)
    return {requirement: catalog.load(requirement, objects) for requirement in wanted}


def _ends(pair: str) -> tuple[str, str]:
    """``name==old..new`` as two requirements."""
    name, _, versions = pair.partition("==")
    old, _, new = versions.partition("..")
    return f"{name}=={old}", f"{name}=={new}"


class _Build:
    """One build under way: its funnel and its progress."""

    def __init__(
        self, recipe: TaskSetRecipe, releases: dict[str, Revision], bench: Bench, on_progress: Progress
    ) -> None:
        self.funnel: Counter[str] = Counter(candidates=0, written=0)
        self._recipe, self._releases, self._bench, self._on_progress = recipe, releases, bench, on_progress
        self._rules = Rules(recipe.max_failing_tests, recipe.test_seconds, recipe.limits, recipe.seed)
        self._pairs = [
            pair_candidate(releases[old], releases[new], bench.objects) for old, new in map(_ends, recipe.pairs)
        ]
        names = [{releases[requirement].name for requirement in side} for side in (recipe.train, recipe.heldout)]
        self._shared = names[0] & names[1]
        self._wanted = (
            len(recipe.pairs)
            + len(recipe.train) * recipe.train_per_release
            + len(recipe.heldout) * recipe.heldout_per_release
        )
        self._ready = 0

    async def run(self) -> list[Task]:
        """Every proved task, in the recipe's order."""
        self._on_progress("tasks", 0, self._wanted)
        recipe = self._recipe
        work = [self._from_pair(pair) for pair in self._pairs]
        work += [self._from_release(self._releases[name], "train", recipe.train_per_release) for name in recipe.train]
        work += [
            self._from_release(self._releases[name], "heldout", recipe.heldout_per_release) for name in recipe.heldout
        ]
        tasks = [task for found in await together(work) for task in found]
        self.funnel["written"] = len(tasks)
        return tasks

    async def _from_pair(self, pair: Candidate) -> list[Task]:
        healthy = await self._healthy(pair.revision, pair.healthy)
        task = await self._try(pair, healthy, "train")
        if task is None:
            return []
        self._accept()
        return [task]

    async def _from_release(self, revision: Revision, side: Side, wanted: int) -> list[Task]:
        """Up to ``wanted`` tasks, at most one a function. Candidates run in waves whose size depends on results alone,
        so that the outcome does not depend on how fast they run."""
        healthy = await self._healthy(revision, revision.tree)
        planned = await asyncio.to_thread(
            plan_mutations,
            revision,
            self._bench.objects,
            operators=self._recipe.operators,
            max_function_lines=self._recipe.max_function_lines,
            seed=self._recipe.seed,
        )
        waiting = [(name, mutation) for name, mutation in planned if self._belongs(revision, name, side)]
        found: dict[frozenset[str], Task] = {}
        left = wanted * self._recipe.tries_per_task
        while len(found) < wanted and left > 0:
            waiting = [(name, mutation) for name, mutation in waiting if frozenset({name}) not in found]
            count = min(left, max(2, wanted - len(found)))
            wave = [planted_candidate(revision, self._bench.objects, *each) for each in waiting[:count]]
            del waiting[:count]
            if not wave:
                break
            left -= len(wave)
            results = await together(self._try(candidate, healthy, side) for candidate in wave)
            for candidate, task in zip(wave, results, strict=True):
                if task is not None and len(found) < wanted and candidate.functions not in found:
                    found[candidate.functions] = task
                    self._accept()
                elif task is not None:
                    self.funnel["spare"] += 1
        return list(found.values())

    async def _healthy(self, revision: Revision, tree: str) -> Healthy:
        return await run_healthy(self._bench, tree, revision.environment, revision.project, self._recipe.proof_runs)

    async def _try(self, candidate: Candidate, healthy: Healthy, side: Side) -> Task | None:
        self.funnel["candidates"] += 1
        try:
            draft = await draft_task(candidate, healthy, self._bench, self._rules, side)
            return await prove(draft, self._bench, self._recipe.proof_runs)
        except Dropped as dropped:
            self.funnel[f"dropped_{dropped.reason}"] += 1
        except SandboxError:
            self.funnel["dropped_infra_error"] += 1
        finally:
            self._on_progress("tasks", self._ready, self._wanted)
        return None

    def _accept(self) -> None:
        self._ready += 1
        self._on_progress("tasks", self._ready, self._wanted)

    def _belongs(self, revision: Revision, function: str, side: Side) -> bool:
        """Whether a function may be broken for ``side``: no function is on both, whatever the release."""
        if revision.name not in self._shared:
            mine = True
        else:
            digest = hashlib.sha256(f"{self._recipe.seed}/{revision.name}/{function}".encode()).digest()
            held_out = int.from_bytes(digest[:4]) / 2**32 < self._recipe.heldout_functions
            mine = held_out == (side == "heldout")
        fixed = {name for pair in self._pairs if pair.revision.name == revision.name for name in pair.functions}
        return mine and (side == "train" or function not in fixed)
