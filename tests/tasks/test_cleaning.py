"""What a finished lot of tasks is cleaned of."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchgym.content import ObjectStore, diff_trees, patch_scope
from patchgym.errors import DataError, UsageError
from patchgym.records import Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.cleaning import clean, write_without
from patchgym.tasks.taskset import write_task_set
from tests.workshop import calc_task, tree_of

LONG = """\
def settle(entries, rates, rounding):
    total = 0
    for entry in entries:
        rate = rates.get(entry.currency, 1)
        amount = entry.amount * rate
        if entry.refund:
            amount = -amount
        total = total + amount
    return round(total, rounding)
"""
ADD = "def add(a, b):\n    return a + b\n"


def task_of(objects: ObjectStore, name: str, old: str, new: str, *, repo: str, split: str, text: str = LONG) -> Task:
    """A task whose solution turns ``new`` back into ``old`` in a function of some length."""
    assert old in text
    before, after = (tree_of(objects, {"money.py": part}) for part in (text.replace(old, new), text))
    gold = diff_trees(objects, before, after)
    base = calc_task(objects)
    return base.model_copy(
        update={
            "id": name,
            "source": base.source.model_copy(update={"repo": repo}),
            "workspace": before,
            "gold_patch": gold,
            "instruction": f"{name} goes wrong in its own way.",
            "scope": patch_scope(gold),
            "split": split,
        }
    )


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def test_of_two_tasks_with_one_solution_the_first_stays(objects: ObjectStore) -> None:
    tasks = [task_of(objects, name, "-amount", "amount", repo="a", split="train") for name in ("one", "two")]
    other = task_of(objects, "other", "entry.amount * rate", "entry.amount / rate", repo="a", split="train")
    kept, gone = clean([*tasks, other], objects, ())
    assert [task.id for task in kept] == ["one", "other"]
    assert [(task.id, reason) for task, reason in gone] == [("two", "duplicate")]


def test_a_training_task_on_a_held_out_function_goes_also_under_other_names(objects: ObjectStore) -> None:
    held_out = task_of(objects, "held", "-amount", "amount", repo="a", split="heldout")
    renamed = LONG.replace("settle", "sum_up").replace("entries", "lines").replace("rate", "factor")
    same = task_of(objects, "same", "total + amount", "total - amount", repo="b", split="train", text=renamed)
    free = task_of(
        objects, "free", "a + b", "a - b", repo="c", split="train", text="def add(a, b):\n    return a + b\n"
    )
    kept, gone = clean([same, free, held_out], objects, ())
    assert [task.id for task in kept] == ["free", "held"]
    assert [(task.id, reason) for task, reason in gone] == [("same", "overlap")]


def test_what_stands_in_a_benchmark_goes(objects: ObjectStore, tmp_path: Path) -> None:
    row = {"task_id": "bench/1", "prompt": "Settle the entries.", "canonical_solution": LONG}
    (tmp_path / "bench.jsonl").write_text(json.dumps(row) + "\n")
    known = task_of(objects, "known", "-amount", "amount", repo="a", split="train")
    free = task_of(
        objects, "free", "a + b", "a - b", repo="c", split="train", text="def add(a, b):\n    return a + b\n"
    )
    kept, gone = clean([known, free], objects, (str(tmp_path / "bench.jsonl"),))
    assert [task.id for task in kept] == ["free"]
    assert [(task.id, reason) for task, reason in gone] == [("known", "contaminated")]
    with pytest.raises(DataError, match="No task is left"):
        clean([known], objects, (str(tmp_path / "bench.jsonl"),))


def test_a_set_is_written_without_what_was_found_in_it(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)
    tasks = [task.model_copy(update={"id": name}) for name in ("good", "bad")]
    now = datetime.now(UTC)
    manifest = TaskSetManifest(name="two", recipe={}, funnel={"candidates": 2, "written": 2}, seconds=1, created_at=now)
    (tmp_path / "two").mkdir()
    write_task_set(tmp_path / "two", manifest, tasks, objects)
    found = TaskSet.load(tmp_path / "two")
    assert write_without(found, {"bad"}, tmp_path / "one") == 1
    left = TaskSet.load(tmp_path / "one")
    assert [task.id for task in left.tasks] == ["good"]
    assert (left.manifest.funnel, left.manifest.dropped) == ({"candidates": 2, "written": 1}, {"audit": 1})
    with pytest.raises(UsageError, match="exists"):
        write_without(found, {"bad"}, tmp_path / "one")
    with pytest.raises(DataError, match="Nothing is left"):
        write_without(found, {"good", "bad"}, tmp_path / "none")
