"""A bench whose sandboxes stand elsewhere: every run of tests and every grading is a piece of work for an executor.

What is made of them (drafts, proofs, the ledger, what is known of healthy suites) stays here, so that a suite is run
once for all nodes and not once for each.
"""

from collections.abc import Collection, Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field

from patchgym.executors import Executor, Place, WorkSpec
from patchgym.grading import Grader
from patchgym.records import Environment, Record, Task, TestReport
from patchgym.sandbox import Cut
from patchgym.tasks.gates.findings import Finding
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.healthy import Suites
from patchgym.testrun import TRACEBACKS, TestRun

_ANY = 1 << 16  # who hands out the work bounds what is in hand


class Run(Record):
    """``Bench.run``."""

    what: Literal["run"] = "run"
    tree: str
    environment: Environment
    ids: tuple[str, ...]
    timeout_s: float
    base: str | None = None
    cover: tuple[str, ...] = ()
    stressed: bool = False
    until_failure: bool = False
    tracebacks: int = TRACEBACKS


class Grade(Record):
    """``Bench.grade``."""

    what: Literal["grade"] = "grade"
    task: Task
    patch: str
    only: tuple[str, ...] | None = None


class Attack(Record):
    """``Bench.attack``."""

    what: Literal["attack"] = "attack"
    task: Task


class Probe(Record):
    """``Bench.probed``."""

    what: Literal["probe"] = "probe"
    task: Task


class Benched(Record):
    """One piece of a bench's work."""

    ask: Annotated[Run | Grade | Attack | Probe, Field(discriminator="what")]


class BenchResult(Record):
    """What came of it: the one that was asked for."""

    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    run: TestRun | None = None
    report: TestReport | None = None
    findings: tuple[Finding, ...] = ()
    task: Task | None = None


class BenchSpec(WorkSpec[Benched, BenchResult]):
    """A bench's work. With ``quality``, gradings also measure how a patch is made."""

    ITEM: ClassVar[type[Record]] = Benched
    RESULT: ClassVar[type[Record]] = BenchResult

    quality: bool = False

    async def open(self, place: Place) -> "BenchDoer":
        """See ``WorkSpec.open``."""
        return BenchDoer(self, place)

    def name(self, item: Benched) -> str:
        """What is done, of what."""
        ask = item.ask
        return f"run of {ask.tree[:12]}" if isinstance(ask, Run) else f"{ask.what} of {ask.task.id}"

    def needs(self, item: Benched) -> frozenset[str]:
        """A tree, with the one near it; or the task's objects."""
        ask = item.ask
        if isinstance(ask, Run):
            return frozenset({ask.tree, ask.base or ask.tree})
        return frozenset({ask.task.workspace, *ask.task.blobs})

    def leaves(self, result: BenchResult) -> frozenset[str]:
        """Streams that were cut, and the probes of a task."""
        process = result.run.process if result.run is not None else None
        cuts: list[Cut | None] = [process.stdout_cut, process.stderr_cut] if process is not None else []
        probes = result.task.probes if result.task is not None else None
        found = {cut.blob for cut in cuts if cut is not None}
        return frozenset(found | ({probes} if probes is not None else set()))


class BenchDoer:
    """A bench at a place."""

    def __init__(self, spec: BenchSpec, place: Place) -> None:
        self._bench = Bench(place.factory, place.objects, place.build, _ANY)
        self._grader = Grader(place.factory, place.objects, place.build, quality=spec.quality)

    async def do(self, item: Benched) -> BenchResult:
        """Do what is asked.

        Raises:
            PatchgymError: as the method of ``Bench``.
        """
        ask = item.ask
        match ask:
            case Run():
                return BenchResult(run=await self._run(ask))
            case Grade():
                return BenchResult(report=await self._grader.grade(ask.task, ask.patch, ask.only))
            case Attack():
                return BenchResult(findings=await self._bench.attack(ask.task))
            case Probe():
                return BenchResult(task=await self._bench.probed(ask.task))

    async def close(self) -> None:
        """Nothing is held."""

    async def _run(self, ask: Run) -> TestRun:
        return await self._bench.run(
            ask.tree,
            ask.environment,
            ask.ids,
            timeout_s=ask.timeout_s,
            base=ask.base,
            cover=ask.cover,
            stressed=ask.stressed,
            until_failure=ask.until_failure,
            tracebacks=ask.tracebacks,
        )


class FarBench(Bench):
    """A bench by an executor."""

    def __init__(
        self,
        executor: Executor[Benched, BenchResult],
        place: Place,
        concurrency: int,
        suites: Suites | None = None,
    ) -> None:
        """``place`` is here; no sandbox is made at it. ``concurrency`` is how many pieces the executor has in hand."""
        super().__init__(place.factory, place.objects, place.build, concurrency, suites)
        self._executor = executor

    async def run(
        self,
        tree: str,
        environment: Environment,
        ids: Sequence[str] = (),
        *,
        timeout_s: float,
        base: str | None = None,
        cover: Sequence[str] = (),
        stressed: bool = False,
        until_failure: bool = False,
        tracebacks: int = TRACEBACKS,
    ) -> TestRun:
        """See ``Bench.run``."""
        asked = Run(
            tree=tree,
            environment=environment,
            ids=tuple(ids),
            timeout_s=timeout_s,
            base=base,
            cover=tuple(cover),
            stressed=stressed,
            until_failure=until_failure,
            tracebacks=tracebacks,
        )
        found = (await self._executor.do(Benched(ask=asked))).run
        assert found is not None
        return found

    async def grade(self, task: Task, patch: str, only: Collection[str] | None = None) -> TestReport:
        """See ``Bench.grade``."""
        asked = Grade(task=task, patch=patch, only=None if only is None else tuple(sorted(only)))
        found = (await self._executor.do(Benched(ask=asked))).report
        assert found is not None
        return found

    async def attack(self, task: Task) -> tuple[Finding, ...]:
        """See ``Bench.attack``."""
        return (await self._executor.do(Benched(ask=Attack(task=task)))).findings

    async def probed(self, task: Task) -> Task:
        """See ``Bench.probed``."""
        found = (await self._executor.do(Benched(ask=Probe(task=task)))).task
        assert found is not None
        return found
