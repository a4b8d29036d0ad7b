"""The same work on a real Ray cluster of three nodes, which come and go while it is done."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import PrerequisiteError, UsageError, WorkLostError
from patchgym.executors import CrewSettings
from patchgym.executors.cluster import RayCluster, connect_error
from patchgym.executors.crew import Crew
from patchgym.records import TaskSetManifest
from patchgym.reward import RewardSettings
from patchgym.rollout import PolicyOptions, RolloutSettings
from patchgym.rollout.collect import Attempt
from patchgym.rollout.sent import Replaying, ReplaySpec, attempt_spec
from patchgym.tasks.proof.far import Benched, BenchSpec, Grade
from patchgym.tasks.taskset import write_task_set
from tests.executors.cluster import add_node, cluster, hermetic, need_ray, wait_for
from tests.executors.same import rollouts, untimed
from tests.executors.toys import Answer, Ask, ToySpec
from tests.records_for_tests import THEN
from tests.sandbox.box import processes_with
from tests.workshop import tree_of

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray")]


class Ground:
    """A cluster with its cache, joined."""

    def __init__(self, made: Any, fleet: RayCluster, cache: Path) -> None:
        self.made, self.fleet, self.cache = made, fleet, cache


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    cache = tmp_path_factory.mktemp("ray") / "cache"
    with cluster(3, cache) as made, RayCluster.connect("ray") as fleet:
        yield Ground(made, fleet, cache)


@pytest.mark.parametrize("policy", ["gold", "noop", "noisy:0.5"])
def test_a_run_on_the_cluster_is_the_run_made_here(ground: Ground, tmp_path: Path, policy: str) -> None:
    made = [
        [untimed(one.model_dump(mode="json")) for one in rollouts(fleet, tmp_path / name, policy, 3, ground.cache)[0]]
        for name, fleet in (("here", None), ("there", ground.fleet))
    ]
    assert made[0] == made[1]


def test_gradings_and_replays_come_out_as_here(ground: Ground, tmp_path: Path) -> None:
    found, task = rollouts(None, tmp_path, "gold", 1, ground.cache)
    objects = ObjectStore(tmp_path / "run" / "objects")

    async def work() -> None:
        async with (
            Crew(ground.fleet, BenchSpec(), objects) as bench,
            Crew(ground.fleet, ReplaySpec(), objects) as again,
        ):
            graded = await bench.do(Benched(ask=Grade(task=task, patch=task.gold_patch)))
            assert graded.report is not None
            assert graded.report.verdict.value == "resolved"
            replayed = await again.do(Replaying(task=task, trajectory=found[0]))
            assert (replayed.diverged, replayed.verdict) == (0, "resolved")

    asyncio.run(work())


def toys(
    ground: Ground, folder: Path, work: Any, spec: ToySpec | None = None
) -> tuple[Any, list[dict[str, JsonValue]]]:
    events: list[dict[str, JsonValue]] = []
    objects = ObjectStore(folder / "near")

    async def within() -> Any:
        async with Crew(ground.fleet, ToySpec(), objects, on_event=events.append) as crew:
            return await work(crew, objects)

    return asyncio.run(within()), events


def test_a_node_killed_and_one_added_while_running_lose_and_double_nothing(ground: Ground, tmp_path: Path) -> None:
    extra = add_node(ground.made)

    async def work(crew: Crew[Ask, Answer], objects: ObjectStore) -> list[Answer]:
        root = tree_of(objects, {"a.py": "1\n"})

        async def some(first: int, count: int) -> list[Answer]:
            items = [Ask(name=str(at), do="tree", tree=root, text=str(at), seconds=1.0) for at in range(first, count)]
            return list(await asyncio.gather(*(crew.do(item) for item in items)))

        async def until(nodes: int) -> None:
            async with asyncio.timeout(120):
                while crew.report().nodes < nodes:
                    await some(0, 4)

        await until(4)
        going = asyncio.create_task(some(0, 16))
        await asyncio.sleep(0.5)
        await asyncio.to_thread(ground.made.remove_node, extra, False)
        add_node(ground.made)  # in the main thread: Ray sets signal handlers
        found = await going
        assert crew.report().workers_lost == 1
        await until(5)  # the one that came works, too
        assert all(answer.tree is not None and answer.tree in objects for answer in found)
        return found

    found, events = toys(ground, tmp_path, work)
    assert [answer.name for answer in found] == [str(at) for at in range(16)]
    (lost,) = [event for event in events if event["event"] == "lost"]
    assert lost["node"] in [event["node"] for event in events if event["event"] == "node"]


def test_work_that_kills_three_workers_is_set_aside_and_the_rest_goes_on(ground: Ground, tmp_path: Path) -> None:
    async def work(crew: Crew[Ask, Answer], objects: ObjectStore) -> list[Answer]:
        others = asyncio.gather(*(crew.do(Ask(name=str(at), seconds=0.2)) for at in range(6)))
        with pytest.raises(WorkLostError, match="poison"):
            await crew.do(Ask(name="poison", do="die"))
        assert crew.report().set_aside == ("poison",)
        return list(await others)

    found, _ = toys(ground, tmp_path, work)
    assert [answer.name for answer in found] == [str(at) for at in range(6)]


def test_a_worker_killed_in_the_middle_of_a_command_leaves_no_process(ground: Ground, tmp_path: Path) -> None:
    marker = f"31{os.getpid()}.7"
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"*": [{"tool": "run_command", "arguments": {"command": f"sleep {marker}"}}]}))
    objects = ObjectStore(tmp_path / "near")
    task = hermetic(objects, ground.cache)
    spec = attempt_spec(
        "rollout", f"scripted:{script}", PolicyOptions(), RolloutSettings(), RewardSettings(), 7, sandbox="namespace"
    )

    async def work() -> None:
        async with Crew(ground.fleet, spec, objects, concurrency=1) as crew:
            going = asyncio.create_task(crew.do(Attempt(task=task, sample=0)))
            assert await asyncio.to_thread(wait_for, lambda: bool(processes_with(marker)), 120)
            for worker in crew._workers:
                assert worker.node.report is not None
                os.kill(worker.node.report.pid, 9)
            assert await asyncio.to_thread(wait_for, lambda: crew.report().workers_lost == 1, 60)
            going.cancel()

    asyncio.run(work())
    assert wait_for(lambda: not processes_with(marker), 30)


def test_a_bug_on_the_far_side_is_raised_here(ground: Ground, tmp_path: Path) -> None:
    async def work(crew: Crew[Ask, Answer], objects: ObjectStore) -> Answer:
        return await crew.do(Ask(name="x", do="bug"))

    with pytest.raises(ZeroDivisionError):
        toys(ground, tmp_path, work)


def test_a_node_without_room_gets_no_worker(ground: Ground, tmp_path: Path) -> None:
    async def work() -> None:
        settings = CrewSettings(patience=2)
        async with Crew(ground.fleet, ToySpec(cpus=2.0), ObjectStore(tmp_path / "near"), settings) as crew:
            await crew.do(Ask(name="x"))

    with pytest.raises(PrerequisiteError, match="no room"):
        asyncio.run(work())


def test_a_node_that_refused_gets_no_worker(ground: Ground, tmp_path: Path) -> None:
    async def work(crew: Crew[Ask, Answer], objects: ObjectStore) -> list[str]:
        seen = [node for node in await ground.fleet.nodes() if node.alive and node.cpus]
        for node in seen[1:]:
            node.refused = "It cannot."
            crew._nodes[node.id] = node
        await asyncio.gather(*(crew.do(Ask(name=str(at), seconds=0.2)) for at in range(4)))
        return [node.id for node in crew._nodes.values() if node.worked] + [seen[0].id]

    worked, only = toys(ground, tmp_path, work)[0]
    assert worked == only


def in_another_process(code: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-c", f"from patchgym.executors.cluster import RayCluster\n{code}"],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **variables},
    )


def test_another_version_of_ray_is_told_as_that(ground: Ground) -> None:
    code = "import ray\nray.__version__ = '2.39.0'\nRayCluster.connect('ray')"
    done = in_another_process(code)
    assert "another version of Ray or Python" in done.stderr
    assert "2.39.0" in done.stderr


def test_an_address_where_nothing_listens_is_told_soon() -> None:
    need_ray()
    with socket.create_server(("127.0.0.1", 0)) as held:
        port = held.getsockname()[1]
    code = "import time\nbegan = time.monotonic()\n"
    code += f"try:\n    RayCluster.connect('ray://127.0.0.1:{port}')\n"
    code += "finally:\n    print(time.monotonic() - began)"
    done = in_another_process(code)
    assert "No Ray cluster answers" in done.stderr
    assert float(done.stdout) < 20


def test_an_address_that_accepts_and_never_answers_is_given_up() -> None:
    need_ray()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"ray://127.0.0.1:{silent.getsockname()[1]}"
        code = f"RayCluster.connect({address!r}, timeout_s=5)"
        done = in_another_process(code)
    assert "No Ray cluster answers" in done.stderr


@pytest.mark.parametrize("address", ["rya", "http://host:1", "ray://host", "ray://host:x", "ray://"])
def test_what_is_no_address_is_refused(address: str) -> None:
    with pytest.raises(UsageError, match="no executor"):
        RayCluster.connect(address)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Version mismatch: The cluster was started with:\n    Ray: 2.9", "another version"),
        ("ray client connection timeout", "No Ray cluster answers"),
    ],
)
def test_what_ray_says_is_told_in_our_words(said: str, told: str) -> None:
    error = connect_error(RuntimeError(said), "ray")
    assert isinstance(error, PrerequisiteError)
    assert told in error.what


def told(*arguments: str) -> dict[str, Any]:
    """What a command prints as JSON, without its times."""
    done = subprocess.run(
        [sys.executable, "-m", "patchgym", *arguments, "--json"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = untimed(json.loads(done.stdout))
    return {key: value for key, value in found.items() if key not in ("redone", "set_aside")}


def test_commands_say_the_same_with_a_cluster_as_without(ground: Ground, tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = hermetic(objects, ground.cache)
    taskset, patches = tmp_path / "set", tmp_path / "patches.jsonl"
    taskset.mkdir()
    write_task_set(taskset, TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN), [task], objects)
    lines = [json.dumps({"task_id": task.id, "patch": patch}) for patch in ("", task.gold_patch)]
    patches.write_text("\n".join(lines) + "\n")
    far = ["--executor", "ray"]
    for command in (
        ["rollout", str(taskset), "--policy", "noisy:0.5", "--samples", "2"],
        ["eval", str(taskset), "--policy", "gold", "--split", "all"],
    ):
        runs = [tmp_path / f"{command[0]}-{name}" for name in ("here", "there")]
        assert told(*command, "--out", str(runs[0])) == told(*command, "--out", str(runs[1]), *far)
    assert told("grade", str(taskset), "--patches", str(patches)) == told(
        "grade", str(taskset), "--patches", str(patches), *far
    )
    replayed = tmp_path / "rollout-there"
    here, there = told("replay", str(replayed)), told("replay", str(replayed), *far)
    for one in (here, there):  # how long pytest took is alike by chance
        one["same"] = one.pop("exact") + one.pop("normalised")
    assert here == there
