"""What runs tests, grades and replays for a command: here, or on the cluster that its command line asks for."""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from patchgym.cli.executing import asked_afar, joined, noted
from patchgym.cli.workshop import chosen_kind
from patchgym.content import ObjectStore
from patchgym.errors import WorkLostError
from patchgym.executors import CrewSettings, Executor, LocalExecutor, Place
from patchgym.executors.crew import Crew
from patchgym.grading import GRADER_VERSION
from patchgym.records import Tally, Task, TestReport, Trajectory, Verdict
from patchgym.rollout.replay import Replayed
from patchgym.rollout.sent import Replaying, ReplaySpec
from patchgym.sandbox import SandboxFactory
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.far import Benched, BenchResult, BenchSpec, FarBench, Grade

if TYPE_CHECKING:
    from patchgym.executors.cluster import RayCluster

ExecutorFor = Callable[[ObjectStore], tuple[Executor[Benched, BenchResult], int]]


@contextmanager
def cluster_asked_for() -> Iterator["RayCluster | None"]:
    """The cluster that the command line asks for, joined; None where the work is done here.

    Raises:
        UsageError, ConfigError, PrerequisiteError: it cannot be had.
    """
    afar = asked_afar()
    if afar is None:
        yield None
        return
    with joined(afar) as cluster:
        yield cluster


def _settings() -> CrewSettings:
    afar = asked_afar()
    return afar.settings if afar is not None else CrewSettings()


@asynccontextmanager
async def bench_executors(cluster: "RayCluster | None") -> AsyncIterator[ExecutorFor | None]:
    """Gives the executor of a bench over a store, and how many pieces of work it has in hand; None for here."""
    if cluster is None:
        yield None
        return
    crews: list[Crew[Benched, BenchResult]] = []

    def executor_for(objects: ObjectStore) -> tuple[Executor[Benched, BenchResult], int]:
        spec = BenchSpec(sandbox=chosen_kind())
        crews.append(Crew(cluster, spec, objects, _settings(), on_event=noted(None)))
        return crews[-1], cluster.slots(crews[-1].need)

    try:
        yield executor_for
    finally:
        for crew in crews:
            await crew.close()


@asynccontextmanager
async def bench_over(
    objects: ObjectStore, factory: SandboxFactory, cluster: "RayCluster | None"
) -> AsyncIterator[Bench]:
    """A bench over a store: one run a core here, or as many as the cluster has room for."""
    async with bench_executors(cluster) as executor_for:
        if executor_for is None:
            yield Bench(factory, objects, build_environment, _cores())
        else:
            executor, slots = executor_for(objects)
            yield FarBench(executor, Place(objects, factory, build_environment), slots)


@asynccontextmanager
async def grading_over(
    objects: ObjectStore, factory: SandboxFactory, cluster: "RayCluster | None", *, quality: bool
) -> AsyncIterator[Callable[[Task, str], Awaitable[TestReport]]]:
    """What grades a patch. A grading that cost its workers again and again is infrastructure's failure."""
    spec = BenchSpec(sandbox=chosen_kind(), quality=quality)

    def graded_by(
        executor: Executor[Benched, BenchResult],
    ) -> Callable[[Task, str], Awaitable[TestReport]]:
        async def grade(task: Task, patch: str) -> TestReport:
            try:
                done = await executor.do(Benched(ask=Grade(task=task, patch=patch)))
            except WorkLostError as error:
                return _lost_grading(task, error)
            assert done.report is not None
            return done.report

        return grade

    if cluster is None:
        doer = await spec.open(Place(objects, factory, build_environment))
        yield graded_by(LocalExecutor[Benched, BenchResult](doer.do, _cores()))
    else:
        async with Crew(cluster, spec, objects, _settings(), on_event=noted(None)) as crew:
            yield graded_by(crew)


@asynccontextmanager
async def replaying_over(
    objects: ObjectStore,
    factory: SandboxFactory,
    cluster: "RayCluster | None",
    tasks: Mapping[str, Task],
    concurrency: int | None,
) -> AsyncIterator[Callable[[Callable[[], Trajectory]], Awaitable[Replayed]]]:
    """What replays a trajectory, which is read once there is room for it."""
    spec = ReplaySpec(sandbox=chosen_kind())

    def replayed_by(
        executor: Executor[Replaying, Replayed], slots: int
    ) -> Callable[[Callable[[], Trajectory]], Awaitable[Replayed]]:
        gate = asyncio.Semaphore(slots)

        async def replay(read: Callable[[], Trajectory]) -> Replayed:
            async with gate:
                trajectory = read()
                try:
                    return await executor.do(Replaying(task=tasks[trajectory.task_id], trajectory=trajectory))
                except WorkLostError as error:
                    return Replayed(trajectory=trajectory.id, fault=str(error))

        return replay

    if cluster is None:
        most = concurrency or _cores()
        doer = await spec.open(Place(objects, factory, build_environment))
        yield replayed_by(LocalExecutor[Replaying, Replayed](doer.do, most), most)
    else:
        async with Crew(cluster, spec, objects, _settings(), concurrency=concurrency, on_event=noted(None)) as crew:
            yield replayed_by(crew, concurrency or 2 * cluster.slots(crew.need))


def _lost_grading(task: Task, error: WorkLostError) -> TestReport:
    tests = task.tests
    return TestReport(
        verdict=Verdict.INFRA_ERROR,
        tests={},
        fail_to_pass=Tally(passed=0, total=len(tests.fail_to_pass)),
        pass_to_pass=Tally(passed=0, total=len(tests.pass_to_pass)),
        hidden=Tally(passed=0, total=len(tests.hidden)),
        why=str(error),
        seconds=None,
        grader_version=GRADER_VERSION,
    )


def _cores() -> int:
    return len(os.sched_getaffinity(0))
