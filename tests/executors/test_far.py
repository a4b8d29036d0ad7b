"""Attempts, proofs, gradings and replays that are done elsewhere come out as they do here."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.executors import Executor, Place
from patchgym.executors.crew import Crew
from patchgym.executors.fleet import Hand, Node, WorkerLost
from patchgym.executors.work import Need
from patchgym.records import Environment, Task, TaskSetManifest
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, count_run
from patchgym.rollout.sent import Replaying, ReplaySpec, attempt_spec
from patchgym.sandbox import NamespaceSandboxes
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet, TaskSetRecipe
from patchgym.tasks.build import build_task_set
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.far import Benched, BenchResult, BenchSpec, FarBench
from patchgym.tasks.proof.prove import prove
from patchgym.tasks.recipe import BugSettings
from tests.executors.processes import ProcessFleet
from tests.executors.same import rollouts, untimed
from tests.records_for_tests import make_manifest
from tests.tasks.minipack import mini_catalog
from tests.workshop import HARD_CODED, calc_task, here, need_namespaces, patch_of


@pytest.fixture(autouse=True)
def _namespaces() -> None:
    need_namespaces()


@pytest.mark.parametrize("policy", ["gold", "noop", "noisy:0.5"])
def test_attempts_are_those_made_here_but_for_times(tmp_path: Path, policy: str) -> None:
    made = [
        [untimed(one.model_dump(mode="json")) for one in rollouts(fleet, tmp_path / name, policy, 2)[0]]
        for name, fleet in (("here", None), ("there", ProcessFleet(tmp_path, "a")))
    ]
    assert made[0] == made[1]


def test_a_script_travels_with_the_work(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"*": [{"tool": "run_command", "arguments": {"command": "echo far > made"}}]}')
    found, _ = rollouts(ProcessFleet(tmp_path, "a"), tmp_path / "there", f"scripted:{script}", 1)
    assert found[0].policy.spec == f"scripted:{script}"
    assert found[0].final_patch is not None
    assert "+far" in found[0].final_patch


def test_a_replay_elsewhere_needs_nothing_but_what_it_is_sent(tmp_path: Path) -> None:
    found, task = rollouts(None, tmp_path / "here", "gold", 1)
    objects = ObjectStore(tmp_path / "here" / "run" / "objects")

    async def again() -> None:
        async with Crew(ProcessFleet(tmp_path, "a"), ReplaySpec(), objects) as crew:
            replayed = await crew.do(Replaying(task=task, trajectory=found[0]))
        assert replayed.diverged == 0
        assert (replayed.recorded_verdict, replayed.verdict) == ("resolved", "resolved")

    asyncio.run(again())


def test_a_bench_elsewhere_proves_and_grades_as_the_one_here(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "near")
    task = calc_task(objects)
    factory = NamespaceSandboxes(objects, cache=tmp_path / "cache")
    place = Place(objects, factory, _unused)
    wrong = patch_of(objects, task, {"calc.py": HARD_CODED})

    async def both() -> list[object]:
        found: list[object] = []
        async with Crew(ProcessFleet(tmp_path, "a"), BenchSpec(), objects) as crew:
            near = Bench(factory, objects, here, 1)
            for bench in (near, FarBench(crew, place, 1)):
                proved = await prove(task, bench, 1, None)
                report = await bench.grade(task, wrong)
                run = await bench.run(task.workspace, task.environment, timeout_s=30.0)
                findings = await bench.attack(task)
                told = [proved, report, *findings]
                found.append([untimed(one.model_dump(mode="json")) for one in told] + [run.outcomes, run.complete])
        return found

    found = asyncio.run(both())
    factory.close()
    assert found[0] == found[1]


def _unused(environment: Environment) -> Path:
    raise AssertionError("no environment is built on the near side")


class Lossy:
    """A fleet of one node, all of whose workers are lost with the attempt that is called ``poison``."""

    def __init__(self, poison: str, fleet: ProcessFleet) -> None:
        self._poison, self._fleet = poison.encode(), fleet

    async def nodes(self) -> list[Node]:
        return await self._fleet.nodes()

    def hire(self, need: Need, spec: bytes, shunned: Collection[str]) -> Hand:
        hand = self._fleet.hire(need, spec, shunned)
        ask = hand.ask

        async def lost(method: str, *arguments: bytes) -> bytes:
            if method == "do" and self._poison in arguments[0]:
                hand.kill()
                raise WorkerLost(hand.node, "It was killed.")
            return await ask(method, *arguments)

        hand.ask = lost  # type: ignore[method-assign]
        return hand


def test_an_attempt_that_costs_its_workers_is_kept_as_lost_and_the_run_goes_on(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    task = calc_task(run.objects)
    poison: Task = task.model_copy(update={"id": "poison"})
    factory = NamespaceSandboxes(run.objects, cache=tmp_path / "cache")
    collector = Collector(run, factory, here, RewardSettings(), 7)
    spec = attempt_spec("rollout", "gold", PolicyOptions(), RolloutSettings(), RewardSettings(), 7, sandbox="namespace")

    async def work() -> None:
        async with Crew(Lossy("poison", ProcessFleet(tmp_path, "a")), spec, run.objects) as crew:
            await collector.collect_by(crew, Phase("rollout", [poison, task], 1), "gold")
            assert crew.report().set_aside == ("rollout.poison.0",)

    asyncio.run(work())
    run.close()
    counts = count_run(RunDirectory.read(tmp_path / "run").trajectories)
    assert (counts.trajectories, counts.resolved, counts.infra_error) == (2, 1, 1)
    lost = RunDirectory.read(tmp_path / "run").trajectory("rollout.poison.0")
    assert (lost.reward, lost.in_baseline, lost.reward_trusted) == (None, False, False)
    assert "set aside" in lost.faults[0].message


RECIPE = TaskSetRecipe(
    name="mini",
    seed=3,
    train=("mini==1.0",),
    train_per_release=1,
    bugs=BugSettings(operators=("arithmetic", "comparison"), tries_per_task=4),
    proof_runs=1,
)


def test_a_task_set_is_built_with_every_test_run_elsewhere(tmp_path: Path) -> None:
    factories: list[NamespaceSandboxes] = []
    crews: list[Crew[Benched, BenchResult]] = []

    def factory_for(objects: ObjectStore) -> NamespaceSandboxes:
        factories.append(NamespaceSandboxes(objects, cache=tmp_path / "cache"))
        return factories[-1]

    def executor_for(objects: ObjectStore) -> tuple[Executor[Benched, BenchResult], int]:
        crews.append(Crew(ProcessFleet(tmp_path, "a"), BenchSpec(), objects))
        return crews[-1], 1

    async def build() -> TaskSetManifest:
        try:
            return await build_task_set(
                RECIPE,
                tmp_path / "set",
                factory_for=factory_for,
                build=_unused,
                catalog=mini_catalog(tmp_path),
                executor_for=executor_for,
            )
        finally:
            for crew in crews:
                await crew.close()

    manifest = asyncio.run(build())
    assert manifest.funnel["written"] == 1
    (task,) = TaskSet.load(tmp_path / "set").tasks
    assert task.validation is not None
    assert task.validation.gold_passed == 1
    assert factories[0]._ready is None  # no sandbox was made on the near side
