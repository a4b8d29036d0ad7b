"""Attempts, proofs, gradings and replays that are done elsewhere come out as they do here."""

import asyncio
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.executors import Place
from patchgym.executors.crew import Crew
from patchgym.executors.fleet import Hand, Node, WorkerLost
from patchgym.executors.work import Need
from patchgym.records import Environment, Task
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, count_run
from patchgym.rollout.sent import Replaying, ReplaySpec, attempt_spec
from patchgym.sandbox import NamespaceSandboxes
from patchgym.store import RunDirectory
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.far import BenchSpec, FarBench
from patchgym.tasks.proof.prove import prove
from tests.executors.cluster import hermetic
from tests.executors.processes import ProcessFleet
from tests.executors.same import rollouts, untimed
from tests.records_for_tests import make_manifest
from tests.workshop import HARD_CODED, here, need_namespaces, patch_of


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the one node, and ours: environments have the same path at both."""
    need_namespaces()
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "a"))
    return tmp_path / "a"


@pytest.mark.parametrize("policy", ["gold", "noop", "noisy:0.5"])
def test_attempts_are_those_made_here_but_for_times(cache: Path, tmp_path: Path, policy: str) -> None:
    made = [
        [untimed(one.model_dump(mode="json")) for one in rollouts(fleet, cache, tmp_path / name, policy, 2)[0]]
        for name, fleet in (("here", None), ("there", ProcessFleet(tmp_path, "a")))
    ]
    assert made[0] == made[1]


def test_a_script_travels_with_the_work(cache: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"*": [{"tool": "run_command", "arguments": {"command": "echo far > made"}}]}')
    found, _ = rollouts(ProcessFleet(tmp_path, "a"), cache, tmp_path / "there", f"scripted:{script}", 1)
    assert found[0].policy.spec == f"scripted:{script}"
    assert found[0].final_patch is not None
    assert "+far" in found[0].final_patch


def test_a_replay_elsewhere_needs_nothing_but_what_it_is_sent(cache: Path, tmp_path: Path) -> None:
    found, task = rollouts(None, cache, tmp_path / "here", "gold", 1)
    objects = ObjectStore(tmp_path / "here" / "run" / "objects")

    async def again() -> None:
        async with Crew(ProcessFleet(tmp_path, "a"), ReplaySpec(), objects) as crew:
            replayed = await crew.do(Replaying(task=task, trajectory=found[0]))
        assert replayed.diverged == 0
        assert (replayed.recorded_verdict, replayed.verdict) == ("resolved", "resolved")

    asyncio.run(again())


def test_a_bench_elsewhere_proves_and_grades_as_the_one_here(cache: Path, tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "near")
    task = hermetic(objects, cache)
    factory = NamespaceSandboxes(objects, cache=tmp_path / "cache")
    place = Place(objects, factory, lambda environment: _unused(environment))
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

    def hire(self, node: Node, need: Need, spec: bytes) -> Hand:
        hand = self._fleet.hire(node, need, spec)
        ask = hand.ask

        async def lost(method: str, *arguments: bytes) -> bytes:
            if method == "do" and self._poison in arguments[0]:
                hand.kill()
                raise WorkerLost(node.name, "It was killed.")
            return await ask(method, *arguments)

        hand.ask = lost  # type: ignore[method-assign]
        return hand


def test_an_attempt_that_costs_its_workers_is_kept_as_lost_and_the_run_goes_on(cache: Path, tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    task = hermetic(run.objects, cache)
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
