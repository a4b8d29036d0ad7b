"""A crew: every item once, whatever becomes of its workers; results with all that they name; errors as they were."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

import pytest
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import BuildFailure, EnvironmentBuildError, PrerequisiteError, WorkLostError
from patchgym.executors import CrewSettings
from patchgym.executors.crew import Crew
from patchgym.executors.fleet import Node, WorkerLost
from tests.executors.processes import ProcessFleet, ProcessHand
from tests.executors.toys import Answer, Ask, ToySpec
from tests.workshop import need_namespaces, tree_of

T = TypeVar("T")
USUAL = ToySpec(sandbox="namespace")


class Bench:
    """A crew over a fleet of processes, and what it told."""

    def __init__(self, folder: Path, *names: str, spec: ToySpec = USUAL, patience: float = 60.0) -> None:
        need_namespaces()
        self.fleet = ProcessFleet(folder, *names)
        self.objects = ObjectStore(folder / "near")
        self.events: list[dict[str, JsonValue]] = []
        self._spec, self._patience = spec, patience

    def run(self, work: Callable[[Crew[Ask, Answer]], Awaitable[T]], concurrency: int | None = None) -> T:
        async def within() -> T:
            settings = CrewSettings(patience=self._patience)
            async with Crew(
                self.fleet, self._spec, self.objects, settings, concurrency=concurrency, on_event=self.events.append
            ) as crew:
                return await work(crew)

        return asyncio.run(within())


async def all_of(crew: Crew[Ask, Answer], items: list[Ask]) -> list[Answer]:
    return list(await asyncio.gather(*(crew.do(item) for item in items)))


def test_work_is_spread_over_nodes_and_comes_back_with_its_files(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b")
    root = tree_of(bench.objects, {"one.py": "1\n", "deep/two.py": "2\n"})
    items = [Ask(name=str(at), do="tree", tree=root, text=f"text {at}", seconds=0.8) for at in range(6)]
    found = bench.run(lambda crew: all_of(crew, items))
    assert [answer.name for answer in found] == [item.name for item in items]
    assert len({answer.pid for answer in found}) == 2
    for at, answer in enumerate(found):
        assert answer.tree is not None
        files = bench.objects.entries(answer.tree)
        assert sorted(files) == ["deep/two.py", f"made/{at}", "one.py"]
        assert bench.objects.get(files[f"made/{at}"].id) == f"text {at}".encode()


def test_no_more_is_in_hand_than_there_are_slots(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", spec=ToySpec(slots=2))

    async def work(crew: Crew[Ask, Answer]) -> int:
        tasks = [asyncio.create_task(crew.do(Ask(name=str(at), seconds=0.2))) for at in range(8)]
        most = 0
        while not all(task.done() for task in tasks):
            most = max(most, sum(worker.load for worker in crew._workers))
            await asyncio.sleep(0.02)
        return most

    assert bench.run(work) == 2


def test_a_bound_on_what_is_in_hand_holds_over_all_nodes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b", "c")
    bench.run(lambda crew: all_of(crew, [Ask(name=str(at)) for at in range(5)]), concurrency=1)
    assert len(bench.fleet.hired) == 1


def test_what_a_lost_worker_held_is_done_again_once(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b")
    items = [Ask(name=str(at), seconds=0.1) for at in range(5)]
    items.append(Ask(name="killer", do="die_once", text=str(tmp_path / "died")))

    async def work(crew: Crew[Ask, Answer]) -> list[Answer]:
        found = await all_of(crew, items)
        assert crew.report().redone >= 1
        assert crew.report().workers_lost == 1
        return found

    assert [answer.name for answer in bench.run(work)] == [item.name for item in items]
    assert [event["event"] for event in bench.events].count("lost") >= 1


def test_work_that_kills_three_workers_is_set_aside_by_name_and_the_rest_goes_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b", spec=ToySpec(slots=3))

    async def work(crew: Crew[Ask, Answer]) -> list[Answer]:
        poison = asyncio.create_task(crew.do(Ask(name="poison", do="die", seconds=0.3)))
        innocent = asyncio.gather(*(crew.do(Ask(name=str(at), seconds=0.4)) for at in range(8)))
        with pytest.raises(WorkLostError, match="poison cost 3 workers"):
            await poison
        found = await innocent
        assert crew.report().set_aside == ("poison",)
        return list(found)

    assert [answer.name for answer in bench.run(work)] == [str(at) for at in range(8)]


def test_a_node_that_goes_and_one_that_comes_change_nothing_but_where(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b")

    async def work(crew: Crew[Ask, Answer]) -> list[Answer]:
        tasks = [asyncio.create_task(crew.do(Ask(name=str(at), seconds=0.3))) for at in range(16)]
        await asyncio.wait(tasks[:3])
        bench.fleet.alive["c"] = True
        bench.fleet.end("a")
        return [await task for task in tasks]

    assert [answer.name for answer in bench.run(work)] == [str(at) for at in range(16)]
    assert "c" in bench.fleet.hired


def test_an_error_is_the_one_that_it_was_and_says_where(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a")
    with pytest.raises(EnvironmentBuildError) as raised:
        bench.run(lambda crew: crew.do(Ask(name="x", do="fail")))
    assert raised.value.kind is BuildFailure.COMPILER
    assert raised.value.why == "Pip said so. (a)"


def test_a_cache_that_was_emptied_under_way_is_filled_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a")
    root = tree_of(bench.objects, {"one.py": "1\n"})

    async def work(crew: Crew[Ask, Answer]) -> Answer:
        await crew.do(Ask(name="1", do="tree", tree=root, text="x"))
        for path in (tmp_path / "a" / "executor" / "objects").glob("??/*"):
            path.unlink()
        return await crew.do(Ask(name="2", do="tree", tree=root, text="y"))

    assert bench.run(work).tree is not None


def test_a_node_that_refuses_gets_no_work_and_is_told_of(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b")

    async def work(crew: Crew[Ask, Answer]) -> list[Answer]:
        seen = await bench.fleet.nodes()
        refusing: Node = next(node for node in seen if node.name == "a")
        refusing.refused = "User namespaces are forbidden on this machine"
        crew._nodes["a"] = refusing
        return await all_of(crew, [Ask(name=str(at)) for at in range(4)])

    assert len(bench.run(work)) == 4
    assert set(bench.fleet.hired) == {"b"}


def test_a_fleet_whose_nodes_cannot_make_the_sandbox_is_told_of_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    bench = Bench(tmp_path, "a", spec=ToySpec(sandbox="docker"))
    with pytest.raises(PrerequisiteError, match="No node of the cluster can do this work") as raised:
        bench.run(lambda crew: crew.do(Ask(name="x")))
    assert "a: " in raised.value.why
    assert [event["event"] for event in bench.events] == ["refused"]


def test_a_fleet_without_room_is_told_in_time(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", spec=ToySpec(cpus=4.0), patience=1.0)
    with pytest.raises(PrerequisiteError, match="no room") as raised:
        bench.run(lambda crew: crew.do(Ask(name="x")))
    assert "a has 1 CPUs" in raised.value.why


def test_two_crews_find_room_on_one_fleet(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a", "b")

    async def work(crew: Crew[Ask, Answer]) -> None:
        await crew.do(Ask(name="x"))
        async with Crew(bench.fleet, USUAL, bench.objects, CrewSettings(patience=60)) as other:
            await other.do(Ask(name="y"))

    bench.run(work)
    assert sorted(bench.fleet.hired) == ["a", "b"]


def test_workers_that_start_nowhere_are_told_of_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench(tmp_path, "a")

    async def never(hand: ProcessHand) -> str:
        raise WorkerLost("a", "No module named patchgym.")

    monkeypatch.setattr(ProcessHand, "place", never)
    with pytest.raises(PrerequisiteError, match="do not start") as raised:
        bench.run(lambda crew: crew.do(Ask(name="x")))
    assert raised.value.why == "No module named patchgym."


def test_the_clock_of_a_node_is_held_against_ours(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a")
    bench.run(lambda crew: crew.do(Ask(name="x")))
    (told,) = [event for event in bench.events if event["event"] == "node"]
    offset, within = told["clock_offset_s"], told["clock_within_s"]
    assert isinstance(offset, float)
    assert isinstance(within, float)
    assert abs(offset) <= within + 0.001


def test_a_worker_that_is_gone_leaves_no_folder_once_another_comes(tmp_path: Path) -> None:
    bench = Bench(tmp_path, "a")
    bench.run(lambda crew: crew.do(Ask(name="killer", do="die_once", text=str(tmp_path / "died"))))
    left = list((tmp_path / "a" / "executor" / "workers").iterdir())
    assert len(left) == 1  # the second worker's, which was ended from outside as well
