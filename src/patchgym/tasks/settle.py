"""One candidate to its end: an environment, a draft, the proof. What it comes to is in the ledger before it counts."""

import asyncio
from dataclasses import dataclass, replace
from typing import Literal

from patchgym.content import ObjectStore
from patchgym.errors import BuildFailure, DataError, EnvironmentBuildError, SandboxError
from patchgym.records import Outcome, Task
from patchgym.tasks.funnel import Dropped, Funnel, Stage
from patchgym.tasks.gates.licences import licence_of_tree, licence_problem
from patchgym.tasks.gates.priority import priority_of, shortfalls
from patchgym.tasks.gates.solution import answer_of
from patchgym.tasks.gates.spdx import canonical
from patchgym.tasks.gates.statement import statement_leaks
from patchgym.tasks.ledger import Ledger
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.draft import Rules, draft_task
from patchgym.tasks.proof.healthy import Healthy
from patchgym.tasks.proof.prove import prove_task
from patchgym.tasks.recipe import TaskSetRecipe
from patchgym.tasks.sources.candidates import Candidate
from patchgym.tasks.sources.project import Revision
from patchgym.tasks.sources.provide import Provider
from patchgym.tasks.writer import Writer

Side = Literal["train", "heldout"]
_IN_HAND = 2
_OF_THE_SUITE = frozenset({BuildFailure.SUITE_FAILS, BuildFailure.SUITE_HANGS})


@dataclass(frozen=True)
class Workshop:
    """What a build works with."""

    recipe: TaskSetRecipe
    bench: Bench
    provider: Provider
    ledger: Ledger
    funnel: Funnel
    flaky: dict[str, dict[str, tuple[Outcome, ...]]]
    writer: Writer | None = None


class Settler:
    """Settles candidates, each once: one that is in the ledger is not run again. A few are in hand at a time, so that
    they come to an end one after the other and little is lost where a build is interrupted."""

    def __init__(self, shop: Workshop) -> None:
        recipe = shop.recipe
        self._shop = shop
        self._hands = asyncio.Semaphore(_IN_HAND * shop.bench.concurrency)
        self._rules = Rules(recipe.max_failing_tests, recipe.test_seconds, recipe.limits, recipe.seed, recipe.wording)

    async def healthy(self, revision: Revision, tree: str) -> Healthy:
        """The whole suite of a healthy tree of a revision; tests that do not agree go into the ledger of flaky ones.

        Raises:
            EnvironmentBuildError: it does not pass.
            SandboxError: a sandbox was lost.
        """
        shop = self._shop
        found = await shop.bench.healthy(tree, revision.environment, revision.project.is_test, shop.recipe.proof_runs)
        if found.flaky:
            shop.flaky.setdefault(revision.label, {}).update(found.flaky)
        return found

    async def settle(self, candidate: Candidate, side: Side) -> Task | None:
        """The candidate's task; None, and counted, where it makes none.

        Raises:
            OfflineError, PrerequisiteError, StorageError: this machine cannot go on.
        """
        ledger = self._shop.ledger
        known = ledger.settled.get(candidate.id)
        if known is None:
            try:
                async with self._hands:
                    made = await self._made(candidate, side)
                known = ledger.settle(candidate.id, task=made)
            except Dropped as dropped:
                known = ledger.settle(candidate.id, reason=dropped.reason, stage=dropped.stage)
            except EnvironmentBuildError as error:
                known = ledger.settle(candidate.id, reason=error.kind, stage=_stage(error.kind), said=error.why)
            except SandboxError:  # not settled: it says nothing of the candidate, and a build that goes on tries again
                self._shop.funnel.drop("infra_error")
                return None
        if known.task is None and known.reason is not None and known.stage is not None:
            self._shop.funnel.drop(known.reason, Stage(known.stage))
            if known.said:
                self._shop.funnel.show(known.reason, candidate.id, known.said)
        return known.task

    def refuse(self, revision: Revision, error: EnvironmentBuildError) -> None:
        """Count a code base that no candidate could be made of, because its suite does not run."""
        self._shop.funnel.drop(error.kind, _stage(error.kind))
        self._shop.funnel.show(error.kind, revision.label, error.why)

    async def _made(self, candidate: Candidate, side: Side) -> Task:
        shop = self._shop
        if candidate.revision.needs is not None:
            provided = await shop.provider.provide(candidate.revision, candidate.healthy)
            candidate = replace(candidate, revision=provided.revision)
        healthy = await self.healthy(candidate.revision, candidate.healthy)
        teller = shop.writer if shop.recipe.writer.statements else None
        draft = await draft_task(candidate, healthy, shop.bench, self._rules, side, teller)
        proved = await prove_task(draft, shop.bench, shop.recipe.proof_runs, shop.recipe.mutants)
        gated = await self._gated(proved)
        return await self._probed(gated) if shop.recipe.probes else gated

    async def _probed(self, task: Task) -> Task:
        """With calls to its solution whose results are known."""
        try:
            return await self._shop.bench.probed(task)
        except DataError:  # a solution that passed all along, and now does not
            raise Dropped("unstable") from None

    async def _gated(self, task: Task) -> Task:
        """Hold a proved task against what the recipe asks of it; its licence is read where nobody stated it in SPDX."""
        objects, gates = self._shop.bench.objects, self._shop.recipe.gates
        if shortfalls(priority_of(task, gates.priority), gates.priority):
            raise Dropped("low_priority")
        score = task.validation.mutants if task.validation is not None else None
        if score is not None and score.share_killed is not None and score.share_killed < gates.least_killed:
            raise Dropped("weak_tests")
        if statement_leaks(task.instruction, answer_of(task, objects)):
            raise Dropped("leaks")
        task = _with_license(task, objects)
        if not gates.any_license and licence_problem(task.source.license, 1.0, gates.licences):
            raise Dropped("license")
        if gates.attack and await self._shop.bench.attack(task):
            raise Dropped("readable")
        return task


def _with_license(task: Task, objects: ObjectStore) -> Task:
    """The task with its licence as an SPDX expression: as it is stated, else as the files of its workspace say."""
    try:
        stated = canonical(task.source.license or "")
    except DataError:
        found = licence_of_tree(objects, task.workspace)
        stated = found.expression or ""
    source = task.source.model_copy(update={"license": stated or None})
    return task.model_copy(update={"source": source})


def _stage(kind: BuildFailure) -> Stage:
    return Stage.GOLD_PASSES if kind in _OF_THE_SUITE else Stage.ENVIRONMENT_BUILT
