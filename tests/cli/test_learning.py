"""What the learning experiment is made of: its recipes, its task sets, and how several seeds are pooled."""

import importlib
import json
import os
from pathlib import Path
from types import ModuleType

import pytest

from patchgym.cli.recipe import LoopRecipe
from patchgym.config import load_recipe
from patchgym.content import ObjectStore
from patchgym.records import Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.bugs.operators import OPERATORS
from patchgym.tasks.taskset import write_task_set
from tests.evaluate.test_compare import evaluation
from tests.records_for_tests import THEN, make_task
from tests.workshop import calc_task

MANIFEST = TaskSetManifest(name="learn", recipe={}, funnel={"candidates": 1}, created_at=THEN)
BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def learning(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("learn")


@pytest.fixture
def pooling(learning: ModuleType) -> ModuleType:
    return importlib.import_module("pooling")


@pytest.mark.parametrize("name", ["cpu_smollm2", "cpu_tiny"])
def test_the_recipes_are_valid_and_measure_as_they_train(name: str) -> None:
    recipe = load_recipe(LoopRecipe, name)
    assert recipe.evaluation.temperature == recipe.rollout.temperature == 1.0
    assert recipe.rollout.turns == 1
    assert set(recipe.tasks.bugs.operators) <= OPERATORS.keys()


def test_no_package_is_trained_on_and_held_out() -> None:
    tasks, commits = (load_recipe(LoopRecipe, name).tasks for name in ("cpu_smollm2", "cpu_commits"))
    trained = {place.partition("==")[0] for place in tasks.train}
    held = {place.partition("==")[0] for place in (*tasks.heldout, *commits.pairs)}
    assert not trained & held


def test_outcomes_of_all_seeds_are_the_samples_of_a_task(pooling: ModuleType) -> None:
    one, other = evaluation({"a": [True, False], "b": [False]}), evaluation({"a": [True], "c": [True]})
    assert pooling.together([one, None, other]) == {"a": [True, False, True], "b": [False], "c": [True]}


def test_a_gain_is_of_the_last_quarter_of_the_rounds_over_the_first(pooling: ModuleType) -> None:
    rounds = [{"reward": value} for value in (0.0, 0.2, None, 0.3, 0.4, 0.5, 0.5, 0.7)]
    assert pooling.gain(rounds) == pytest.approx({"rounds": 8, "first": 0.1, "last": 0.6, "gain": 0.5})
    assert pooling.gain([]) == {"rounds": 0, "first": None, "last": None, "gain": None}


def test_a_difference_is_paired_by_task_over_the_seeds_that_have_both(pooling: ModuleType) -> None:
    before, after = evaluation({"a": [False, False], "b": [True]}), evaluation({"a": [True, False], "b": [True]})
    reports = {1: {"eval-warm": before, "eval-final": after}, 2: {"eval-warm": before}}
    found = pooling.difference(reports, "eval-warm", "eval-final", {name: make_task(name) for name in "ab"})
    assert found["pooled"]["value"] == 0.25
    assert list(found["by_seed"]) == ["1"]
    assert found["by_kind"] == {}


def test_natural_tasks_of_packages_that_are_not_trained_on_are_held_out_besides(
    learning: ModuleType, tmp_path: Path
) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)

    def made(name: str, kind: str, repo: str, **more: object) -> Task:
        source = task.source.model_copy(update={"kind": kind, "repo": repo})
        return task.model_copy(update={"id": name, "source": source, **more})

    own = [made("own", "synthetic", "calc"), made("held", "synthetic", "other", split="heldout")]
    theirs = [made(f"{kind}-{repo}", kind, repo) for kind in ("release_pair", "synthetic") for repo in ("calc", "new")]
    for name, tasks in (("own", own), ("theirs", theirs)):
        (tmp_path / name).mkdir()
        write_task_set(tmp_path / name, MANIFEST, tasks, objects)
    before = sorted((tmp_path / "own").rglob("*"))
    for _ in range(2):  # what is there is taken
        learning.joined(tmp_path / "own", tmp_path / "theirs", tmp_path / "both")
    joined = TaskSet.load(tmp_path / "both")
    assert [(task.id, task.split) for task in joined.tasks] == [
        ("own", "train"),
        ("held", "heldout"),
        ("release_pair-new", "heldout"),
    ]
    assert sorted((tmp_path / "own").rglob("*")) == before


def test_minutes_of_a_seed_are_those_of_all_its_tries(learning: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "trajectories.jsonl").touch()
    os.utime(tmp_path / "seed-1" / "trajectories.jsonl", (1000, 1000))
    assert learning.spent(tmp_path, 1) is None
    rows = [
        {"seed": 1, "began": 100.0},  # killed, and its last file is lost in those of the next: until that began
        {"seed": 2, "began": 150.0},
        {"seed": 1, "began": 400.0},
        {"seed": 1, "began": 400.0, "ended": 520.0, "cpu": 90.0},
        {"seed": 1, "began": 940.0},  # killed
    ]
    (tmp_path / "tries.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert learning.spent(tmp_path, 1) == {"minutes": 8.0, "cpu_minutes": 1.5, "tries": 3}
