"""The closed loop, whole and real, on one tiny task: model, sandbox, update, evaluation, resumption."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from patchgym.cli.closed_loop import LoopReport
from patchgym.content import ObjectStore, diff_trees
from patchgym.policy.models import read_checkpoint
from patchgym.records import Environment, Task, TaskSetManifest
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.workshop import FAIL_TO_PASS, FIXED, PASS_TO_PASS, VISIBLE, calc_task, need_namespaces, tree_of

MANIFEST = TaskSetManifest(name="calc", recipe={}, funnel={"candidates": 2}, created_at=THEN)
SETTINGS = {
    "rounds": 2,
    "tasks_per_round": 1,
    "samples": 4,
    "rollout.max_tokens": 80,
    "rollout.temperature": 0.8,
    "warm_start.passes": 10,
    "warm_start.rows_per_step": 1,
    "warm_start.learning_rate": 1e-3,
    "warm_start.lora_layers": 15,
}


def loop(folder: Path) -> "subprocess.CompletedProcess[str]":
    overrides = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={value}")]
    command = [sys.executable, "-m", "patchgym", "loop", "--tasks", "set", "--out", "run", "--json", *overrides]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ, timeout=900)


def doubling_task(objects: ObjectStore, near: Task) -> Task:
    """A held-out task of the same code base with another bug: ``double`` squares."""
    broken = FIXED.replace("value + value", "value * value")
    workspace = tree_of(objects, {"calc.py": broken, "tests/test_calc.py": VISIBLE, "README": "calc\n"})
    solved = tree_of(objects, {"calc.py": FIXED, "tests/test_calc.py": VISIBLE, "README": "calc\n"})
    failing, *passing = (PASS_TO_PASS[1], PASS_TO_PASS[0], *FAIL_TO_PASS)
    tests = near.tests.model_copy(update={"fail_to_pass": (failing,), "pass_to_pass": tuple(passing), "hidden": ()})
    return near.model_copy(
        update={
            "id": "calc-2",
            "instruction": f"double(4) should be 8. {failing} fails.",
            "workspace": workspace,
            "gold_patch": diff_trees(objects, workspace, solved),
            "tests": tests,
            "split": "heldout",
        }
    )


@pytest.mark.train
def test_a_training_task_that_overlaps_a_held_out_one_is_refused(tmp_path: Path) -> None:
    need_namespaces()
    pytest.importorskip("torch", reason="LOUD SKIP: the loop needs the train extra")
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)
    other = task.model_copy(update={"id": "calc-2", "split": "heldout"})
    (tmp_path / "set").mkdir()
    write_task_set(tmp_path / "set", MANIFEST, [task, other], objects)
    done = loop(tmp_path)
    assert done.returncode == 2
    assert "Training tasks overlap held-out tasks" in done.stderr
    assert "calc-1 and calc-2" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.train
def test_benchmark_tasks_are_not_trained_on_unless_the_recipe_says_so(tmp_path: Path) -> None:
    need_namespaces()
    pytest.importorskip("torch", reason="LOUD SKIP: the loop needs the train extra")
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)
    source = task.source.model_copy(update={"kind": "benchmark"})
    (tmp_path / "set").mkdir()
    tasks = [task.model_copy(update={"source": source}), doubling_task(objects, task)]
    write_task_set(tmp_path / "set", MANIFEST, tasks, objects)
    done = loop(tmp_path)
    assert done.returncode == 2
    assert "1 benchmark tasks to train on, the first calc-1" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.train
def test_the_loop_closes_and_a_second_run_finds_everything_done(tmp_path: Path) -> None:
    need_namespaces()
    pytest.importorskip("torch", reason="LOUD SKIP: the loop needs the train extra")
    objects = ObjectStore(tmp_path / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    task = calc_task(objects).model_copy(update={"environment": Environment(python=python, lock=lock)})
    other = doubling_task(objects, task)
    (tmp_path / "set").mkdir()
    write_task_set(tmp_path / "set", MANIFEST, [task, other], objects)

    done = loop(tmp_path)
    assert done.returncode == 0, done.stderr
    report = LoopReport.model_validate_json(done.stdout)
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == json.loads(done.stdout)
    assert report.demonstrations.resolved == 1
    assert list(report.evaluations) == ["eval-base", "eval-warm", "eval-final"]
    assert report.checklist.sound

    warm = report.updates["warm-start"]
    assert warm.gradient == "nonzero"
    assert warm.version is not None
    assert warm.loss_first is not None
    assert warm.loss_last is not None
    assert warm.loss_last < warm.loss_first / 2
    base_rate, warm_rate = (report.evaluations[name].valid_action_rate for name in ("eval-base", "eval-warm"))
    assert base_rate is not None
    assert warm_rate is not None
    assert warm_rate > base_rate

    run = RunDirectory.read(tmp_path / "run")
    version = warm.version
    for name in ("round-1", "round-2"):
        trajectories = run.phase(name)
        assert [trajectory.policy.version for trajectory in trajectories] == [version] * 4
        steps = [step for trajectory in trajectories for step in trajectory.steps]
        assert all(step.tokens is not None and step.tokens.logprobs is not None for step in steps)
        update = report.updates[name]
        assert update.gradient == "nonzero" or update.why
        if update.version is not None:
            assert update.sampler_gap is not None
            assert update.sampler_gap.mean < 1e-3
            assert read_checkpoint(tmp_path / "run" / "checkpoints" / update.version).parent == version
            version = update.version

    lines = (tmp_path / "run" / "trajectories.jsonl").read_bytes()
    again = loop(tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "trajectories.jsonl").read_bytes() == lines
    assert LoopReport.model_validate_json(again.stdout).updates == report.updates
