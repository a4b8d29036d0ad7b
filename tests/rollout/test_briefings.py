"""Briefings are found out once on a machine, whoever asks, and what is kept of them can be trusted."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.agent import Ranking
from patchgym.content import ObjectStore
from patchgym.errors import SandboxError
from patchgym.records import Environment, Task
from patchgym.rollout.briefings import Briefings, keep_ranking, ranking_key, read_ranking
from patchgym.sandbox import Sandbox, SandboxFactory, SandboxSpec
from patchgym.sandbox.environments import build_environment
from tests.workshop import calc_task, here, sandboxes

KEPT = Ranking(places=(("calc.py", 6), ("calc.py", 5)))
TOLD = "calc.py:\n6:         return low"


def briefed(environment: Environment) -> Path:
    """The environment of a task is this interpreter's; that of coverage.py, which has a lock, is built."""
    return build_environment(environment) if environment.lock else here(environment)


class NoSandboxes:
    """A machine on which no test can run."""

    kind = "none"

    async def create(self, spec: SandboxSpec) -> Sandbox:
        raise SandboxError("no sandbox today")


def told(factory: SandboxFactory, objects: ObjectStore, task: Task, lines: int, cache: Path) -> str:
    return asyncio.run(Briefings(factory, objects, briefed, cache).text(task, lines))


def test_what_one_run_found_out_another_need_not(tmp_path: Path) -> None:
    objects, cache = ObjectStore(tmp_path / "objects"), tmp_path / "kept"
    task = calc_task(objects)
    with pytest.raises(SandboxError):
        told(NoSandboxes(), objects, task, 1, cache)
    with sandboxes(objects, tmp_path) as factory:
        assert told(factory, objects, task, 1, cache) == TOLD
    assert told(NoSandboxes(), objects, task, 1, cache) == TOLD
    assert len(told(NoSandboxes(), objects, task, 3, cache).splitlines()) == 4  # no more than lines is no other ranking


def test_tests_that_did_not_come_to_their_end_are_not_remembered(tmp_path: Path) -> None:
    objects, cache = ObjectStore(tmp_path / "objects"), tmp_path / "kept"
    task = calc_task(objects, timeout_s=0.01)
    with sandboxes(objects, tmp_path) as factory:
        assert told(factory, objects, task, 1, cache) == ""
    assert not list(cache.rglob("*.json"))


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-4],
        lambda data: data.replace(b"6]", b"7]"),
        lambda data: b"",
        lambda data: b"\xff" + data,
        lambda data: data + b"\n",
        lambda data: data.replace(b'"schema_version":1', b'"schema_version":2'),
    ],
)
def test_what_is_damaged_is_found_out_again_and_replaced(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    objects, cache = ObjectStore(tmp_path / "objects"), tmp_path / "kept"
    task = calc_task(objects)
    file = cache / "briefings" / f"{ranking_key(task.view())}.json"
    keep_ranking(file, KEPT)
    assert told(NoSandboxes(), objects, task, 1, cache) == TOLD
    file.write_bytes(damage(file.read_bytes()))
    assert read_ranking(file) is None
    with pytest.raises(SandboxError):
        told(NoSandboxes(), objects, task, 1, cache)
    keep_ranking(file, KEPT)
    assert read_ranking(file) == KEPT


def test_writers_beside_each_other_leave_it_whole_at_every_instant(tmp_path: Path) -> None:
    file = tmp_path / "briefings" / "one.json"
    large = Ranking(places=tuple((f"{number}/{'a' * 200}.py", number) for number in range(1, 300)))
    keep_ranking(file, large)

    def work(number: int) -> Ranking | None:
        if number % 2:
            keep_ranking(file, large)
        return read_ranking(file)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(200))) == {large}
    assert [path.name for path in file.parent.iterdir()] == ["one.json"]


def test_a_ranking_is_of_the_code_and_its_tests_and_of_nothing_else(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)
    key = ranking_key(task.view())
    same = task.model_copy(update={"id": "other", "instruction": "Mend it.", "split": "heldout"})
    assert ranking_key(same.view()) == key
    seen = task.tests.model_copy(update={"hidden": ()})
    moved = objects.update_tree(task.workspace, {"README": None})
    for changes in ({"tests": seen}, {"workspace": moved}, {"environment": Environment(python="3.12", lock="")}):
        assert ranking_key(task.model_copy(update=changes).view()) != key


def test_a_place_that_is_not_in_the_workspace_is_not_told(tmp_path: Path) -> None:
    objects, cache = ObjectStore(tmp_path / "objects"), tmp_path / "kept"
    task = calc_task(objects)
    places = (("../../etc/passwd", 1), ("calc.py", 6), ("calc.py", 99), ("calc.py", -1), ("calc.py", 0))
    keep_ranking(cache / "briefings" / f"{ranking_key(task.view())}.json", Ranking(places=places))
    assert told(NoSandboxes(), objects, task, 9, cache) == TOLD


@settings(deadline=None)
@given(st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cs"])), st.integers(0, 10**6)), max_size=20))
def test_what_is_kept_is_what_is_read(tmp_path_factory: pytest.TempPathFactory, places: list[tuple[str, int]]) -> None:
    file = tmp_path_factory.getbasetemp() / "any" / "one.json"
    keep_ranking(file, Ranking(places=tuple(places)))
    assert read_ranking(file) == Ranking(places=tuple(places))
