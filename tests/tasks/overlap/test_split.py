"""Splits: nothing that belongs together is on both sides, whatever the input."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import Task
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.fingerprints import Fingerprint, fingerprint
from patchgym.tasks.overlap.material import Material
from patchgym.tasks.overlap.resplit import split_task_set
from patchgym.tasks.overlap.split import By, split_tasks
from tests.tasks.overlap.made import CHUNKS, COUNT, MERGE, made_set, made_task

EPOCH = datetime(2020, 1, 1, tzinfo=UTC)
WAYS: tuple[By, ...] = ("function", "repository", "time")


def apart(name: str) -> Fingerprint:
    """A task that has nothing in common with any other."""
    return fingerprint(Material(id=name))


@st.composite
def many(draw: st.DrawFn) -> list[Fingerprint]:
    """Tasks that share functions and repositories as it comes."""
    found = []
    for number in range(draw(st.integers(1, 25))):
        repo = f"repo{draw(st.integers(0, 4))}"
        names = draw(st.frozensets(st.integers(0, 12), min_size=1, max_size=2))
        days = draw(st.none() | st.integers(0, 20))
        found.append(
            replace(
                apart(f"task{number}"),
                repo=repo,
                created_at=EPOCH + timedelta(days=days) if days is not None else None,
                named=frozenset(f"{repo}:lib.py:f{name}" for name in names),
            )
        )
    return [replace(found[0], created_at=EPOCH), *found[1:]]


SHARES = st.floats(0, 1)
SEEDS = st.integers(0, 3)


@settings(deadline=None)
@given(many(), SHARES, st.sampled_from(WAYS), SEEDS)
def test_no_function_is_on_both_sides(prints: list[Fingerprint], share: float, by: By, seed: int) -> None:
    heldout = split_tasks(prints, share, by=by, seed=seed).heldout
    sides = [
        {name for at, each in enumerate(prints) if (at in heldout) == side for name in each.named}
        for side in (True, False)
    ]
    assert sides[0].isdisjoint(sides[1])


@settings(deadline=None)
@given(many(), SHARES, st.sampled_from(WAYS), SEEDS)
def test_the_share_is_within_one_component_of_what_was_asked(
    prints: list[Fingerprint], share: float, by: By, seed: int
) -> None:
    done = split_tasks(prints, share, by=by, seed=seed)
    assert abs(len(done.heldout) - round(share * len(prints))) < max(map(len, done.components))


@settings(deadline=None)
@given(many(), SHARES, st.sampled_from(WAYS), SEEDS)
def test_it_depends_on_the_tasks_and_the_seed_alone(prints: list[Fingerprint], share: float, by: By, seed: int) -> None:
    mixed = sorted(prints, key=lambda each: each.id[::-1])
    chosen = [{each[at].id for at in split_tasks(each, share, by=by, seed=seed).heldout} for each in (prints, mixed)]
    assert chosen[0] == chosen[1]


@settings(deadline=None)
@given(many(), SHARES)
def test_by_repository_no_repository_is_on_both_sides(prints: list[Fingerprint], share: float) -> None:
    heldout = split_tasks(prints, share, by="repository").heldout
    assert {prints[at].repo for at in heldout}.isdisjoint(
        each.repo for at, each in enumerate(prints) if at not in heldout
    )


@settings(deadline=None)
@given(many(), SHARES)
def test_by_time_no_training_task_is_newer_than_a_heldout_component(prints: list[Fingerprint], share: float) -> None:
    done = split_tasks(prints, share, by="time")

    def newest(part: tuple[int, ...]) -> datetime:
        return max(prints[at].created_at or datetime.min.replace(tzinfo=UTC) for at in part)

    heldout = [newest(part) for part in done.components if part[0] in done.heldout]
    train = [newest(part) for part in done.components if part[0] not in done.heldout]
    assert not heldout or not train or max(train) <= min(heldout)


@settings(deadline=None)
@given(many(), SHARES, st.sampled_from(WAYS), st.frozensets(st.integers(0, 0)))
def test_pinned_tasks_are_held_out(prints: list[Fingerprint], share: float, by: By, pinned: frozenset[int]) -> None:
    assert pinned <= split_tasks(prints, share, by=by, pinned=pinned).heldout


def test_a_seed_draws_otherwise() -> None:
    prints = [apart(f"task{number}") for number in range(40)]
    assert len({split_tasks(prints, 0.5, seed=seed).heldout for seed in range(3)}) == 3


@pytest.fixture
def tasks(tmp_path: Path) -> TaskSet:
    objects = ObjectStore(tmp_path / "work")
    made: list[Task] = [
        made_task(objects, "merge-1", MERGE, "<=", "<"),
        made_task(objects, "merge-2", MERGE, "left += 1", "left += 2"),
        made_task(objects, "chunks-1", CHUNKS, "size < 1", "size < 2"),
        made_task(objects, "count-1", COUNT, ", 0)", ", 1)"),
    ]
    return made_set(tmp_path / "set", made, objects)


def test_the_written_set_is_the_old_one_with_another_split(tasks: TaskSet, tmp_path: Path) -> None:
    split_task_set(tasks, tmp_path / "out", 0.5)
    written = TaskSet.load(tmp_path / "out")
    assert [task.model_copy(update={"split": "train"}) for task in written.tasks] == list(tasks.tasks)
    assert len(written.split("heldout")) == 2
    assert written.task("merge-1").split == written.task("merge-2").split


def test_the_same_set_gives_the_same_bytes(tasks: TaskSet, tmp_path: Path) -> None:
    for name in ("one", "two"):
        split_task_set(tasks, tmp_path / name, 0.3, seed=5)
    for file in ("tasks.jsonl", "taskset.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_tasks_of_benchmarks_are_held_out(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "work")
    made = [
        made_task(objects, "bench", MERGE, "<=", "<", kind="benchmark"),
        made_task(objects, "chunks-1", CHUNKS, "size < 1", "size < 2"),
        made_task(objects, "count-1", COUNT, ", 0)", ", 1)"),
    ]
    for seed in range(4):
        split_task_set(made_set(tmp_path / f"set{seed}", made, objects), tmp_path / f"out{seed}", 0.2, seed=seed)
        assert TaskSet.load(tmp_path / f"out{seed}").task("bench").split == "heldout"


def test_a_set_that_is_one_component_is_not_split(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "work")
    made = [made_task(objects, "a", MERGE, "<=", "<"), made_task(objects, "b", MERGE, "left += 1", "left += 2")]
    with pytest.raises(DataError, match="one side"):
        split_task_set(made_set(tmp_path / "set", made, objects), tmp_path / "out", 0.5)
    assert not (tmp_path / "out").exists()


def test_by_time_without_times_is_refused(tasks: TaskSet, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no times"):
        split_task_set(tasks, tmp_path / "out", 0.5, by="time")


def test_what_is_there_already_is_kept(tasks: TaskSet, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists already"):
        split_task_set(tasks, tasks.path, 0.5)
