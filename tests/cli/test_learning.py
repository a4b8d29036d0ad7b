"""The whole loop learns: reward rises in a lesson that takes minutes, and what several seeds came to is pooled."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from patchgym.cli.recipe import LoopRecipe
from patchgym.config import load_recipe
from patchgym.tasks.bugs.operators import OPERATORS
from tests.evaluate.test_compare import evaluation
from tests.records_for_tests import make_task
from tests.workshop import need_namespaces

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
RISE = 0.2
"""The least by which mean reward must rise from the first to the last quarter of the rounds."""


@pytest.fixture
def pooling(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("pooling")


def learn(out: Path, *more: str) -> Any:
    command = [sys.executable, str(BENCHMARKS / "learn.py"), "--tiny", "--json", "--out", str(out), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.train
def test_training_reward_rises_in_the_lesson(tmp_path: Path) -> None:
    need_namespaces()
    pytest.importorskip("torch", reason="LOUD SKIP: the lesson needs the train extra")
    told = learn(tmp_path / "tiny", "--seeds", "1")
    assert told["done"] == [1]
    trained = told["training"]["1"]
    assert trained["gain"] >= RISE, told["curve"]
    assert [point["round"] for point in told["curve"]] == list(range(trained["rounds"] + 1))
    assert told["lost"]["training"]["infrastructure"] == told["lost"]["training"]["hacked"] == 0
    assert told["valid_actions"]["eval-warm"]["value"] > told["valid_actions"]["eval-base"]["value"]
    again = learn(tmp_path / "tiny", "--seeds", "1", "--only-pool")
    assert again == told


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
