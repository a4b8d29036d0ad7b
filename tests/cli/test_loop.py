"""The closed loop, whole and real, on one tiny task: model, sandbox, update, evaluation, resumption."""

import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from patchgym.cli.closed_loop import LoopReport
from patchgym.content import ObjectStore
from patchgym.policy.models import read_checkpoint
from patchgym.records import Environment, TaskSetManifest
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.workshop import calc_task, need_namespaces

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
    other = task.model_copy(update={"id": "calc-2", "split": "heldout"})
    (tmp_path / "set").mkdir()
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={"candidates": 2}, created_at=THEN)
    write_task_set(tmp_path / "set", manifest, [task, other], objects)

    done = loop(tmp_path)
    assert done.returncode == 0, done.stderr
    report = LoopReport.model_validate_json(done.stdout)
    assert json.loads((tmp_path / "run" / "report.json").read_text()) == json.loads(done.stdout)
    assert report.demonstrations.resolved == 1
    assert list(report.evaluations) == ["eval-base", "eval-warm", "eval-final"]
    assert report.judgement.sound

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
