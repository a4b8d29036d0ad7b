"""``patchgym train`` as a person and as a program meet it."""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from patchgym.content import ObjectStore
from patchgym.errors import DataError, PatchgymError, UsageError
from patchgym.records import Task, TaskSetManifest, Trajectory
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from patchgym.train import StepReport, UpdateReport
from tests.records_for_tests import THEN, make_manifest
from tests.workshop import calc_task

pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")),
        reason="needs the train extra: pip install 'patchgym[train]'",
    ),
]

RECIPE = """
algorithm = "dr_grpo"
[grpo]
learning_rate = 1e-3
lora_rank = 4
max_row_tokens = 64
rows_per_step = 2
passes = 3
[alarms]
pause = false  # a tiny model is taught in a few steps, which are too long for a real one
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny model, a recipe, and a run of two groups at one task."""
    from tests.train.tiny import BAD, GOOD, PROMPT, SEEN, graded, load, sampled_steps, save_tiny_model

    place = tmp_path_factory.mktemp("place")
    model = save_tiny_model(place / "tiny")
    (place / "recipe.toml").write_text(f'start = "{model}"\n{RECIPE}')
    weights = load(model, place / "cache")
    attempts = [
        graded(sampled_steps(weights, [(PROMPT, answer), (SEEN, answer)]), reward, at, group)
        for group in "ab"
        for at, (answer, reward) in enumerate(((GOOD, 1.0), (BAD, 0.0)))
    ]
    write_run(place / "run", [one.model_copy(update={"task_id": "calc-1"}) for one in attempts])
    return place


@pytest.fixture(autouse=True)
def _own_cache(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHGYM_CACHE", str(place / "cache"))


def write_run(path: Path, attempts: Sequence[Trajectory], **changes: object) -> Path:
    """A run of attempts at ``calc-1``, whose task has these changes."""
    run = RunDirectory.open_for_writing(path, make_manifest(id=path.name))
    run.keep_tasks([changed(calc_task(run.objects), **changes)])
    for one in attempts:
        run.append(one)
    run.close()
    return path


def changed(task: Task, **changes: object) -> Task:
    if "kind" in changes:
        changes["source"] = task.source.model_copy(update={"kind": changes.pop("kind")})
    return task.model_copy(update=changes)


def attempts_of(place: Path) -> list[Trajectory]:
    return list(RunDirectory.read(place / "run").trajectories)


def train(place: Path, *arguments: str) -> Result:
    from patchgym.cli.train import command

    return CliRunner().invoke(command, [str(place / "recipe.toml"), *arguments])


def trained(place: Path, out: Path, *arguments: str) -> tuple[int, Any]:
    done = train(place, "--run", str(place / "run"), "--out", str(out), "--json", *arguments)
    assert not isinstance(done.exception, PatchgymError), done.exception
    return done.exit_code, json.loads(done.stdout)


def test_an_update_is_published_and_kept_and_not_made_twice(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, told = trained(place, out)
    report = UpdateReport.model_validate(told)
    assert (code, len(report.steps), report.rows_used) == (0, 6, 4)
    assert report.version is not None
    assert (out / "checkpoints" / report.version / "adapter").is_dir()
    kinds = [row["kind"] for row in RunDirectory.read(out).metrics()]
    assert kinds == ["reward", "rollouts", "update"]
    before = (out / "metrics.jsonl").read_bytes()
    assert trained(place, out) == (0, told)
    assert (out / "metrics.jsonl").read_bytes() == before


def test_other_settings_in_the_same_place_are_refused_by_the_key(place: Path, tmp_path: Path) -> None:
    trained(place, tmp_path / "out")
    arguments = ("--run", str(place / "run"), "--out", str(tmp_path / "out"), "--set", "grpo.passes=1")
    done = train(place, *arguments)
    assert "config.grpo.passes" in str(done.exception)


def test_a_person_sees_the_steps_and_the_verdict(place: Path, tmp_path: Path) -> None:
    done = train(place, "--run", str(place / "run"), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0
    assert "The gradient is not zero" in done.stdout
    assert "2 groups, 0 without variance" in done.stdout
    assert "Steps" in done.stdout


def test_no_valid_rows_end_with_1_and_the_reasons(place: Path, tmp_path: Path) -> None:
    lost = [one.model_copy(update={"reward_trusted": False}) for one in attempts_of(place)]
    write_run(tmp_path / "run", lost)
    done = train(place, "--run", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert "4 x not_trusted" in done.stdout
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_held_out_tasks_are_refused(place: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", attempts_of(place), split="heldout")
    done = train(place, "--run", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    assert isinstance(done.exception, DataError)
    assert "held-out tasks: calc-1" in done.exception.what
    assert not (tmp_path / "out").exists()


def test_tasks_that_overlap_a_held_out_set_are_refused(place: Path, tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = changed(calc_task(objects), id="calc-9", split="heldout")
    (tmp_path / "set").mkdir()
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN)
    write_task_set(tmp_path / "set", manifest, [task], objects)
    more = ("--set", f'heldout=["{tmp_path / "set"}"]')
    done = train(place, "--run", str(place / "run"), "--out", str(tmp_path / "out"), *more)
    assert isinstance(done.exception, DataError)
    assert "calc-1 and calc-9" in done.exception.why


def test_benchmark_tasks_are_trained_on_only_where_the_recipe_says_so(place: Path, tmp_path: Path) -> None:
    write_run(tmp_path / "run", attempts_of(place), kind="benchmark")
    arguments = ("--run", str(tmp_path / "run"), "--out", str(tmp_path / "out"))
    done = train(place, *arguments)
    assert isinstance(done.exception, DataError)
    assert "benchmark tasks" in done.exception.what
    assert train(place, *arguments, "--set", "train_on_benchmarks=true").exit_code == 0


def test_only_the_phases_that_are_named_are_trained_on(place: Path, tmp_path: Path) -> None:
    extra = [one.model_copy(update={"id": f"x{one.id}", "phase": "eval"}) for one in attempts_of(place)]
    write_run(tmp_path / "run", [*attempts_of(place), *extra])
    arguments = ("--run", str(tmp_path / "run"), "--json", "--out")
    done = train(place, *arguments, str(tmp_path / "out"), "--set", 'phases=["round-1"]')
    assert json.loads(done.stdout)["rows_used"] == 4
    missing = train(place, *arguments, str(tmp_path / "out2"), "--set", 'phases=["round-9"]')
    assert isinstance(missing.exception, UsageError)


def test_runs_are_kept_apart_where_there_are_several(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place / "run", tmp_path / "again")
    code, told = trained(place, tmp_path / "out", "--run", str(tmp_path / "again"))
    assert (code, told["rows_used"], told["groups"]) == (0, 8, 4)


def test_rejection_imitates_what_is_accepted_and_nothing_else(place: Path, tmp_path: Path) -> None:
    more = ("--set", "algorithm=rejection", "--set", "sft.max_row_tokens=64", "--set", "sft.lora_rank=4")
    code, told = trained(place, tmp_path / "out", *more)
    assert (code, told["algorithm"], told["rows_used"]) == (0, "sft", 1)  # the same actions count once
    row = next(one for one in RunDirectory.read(tmp_path / "out").metrics() if one["kind"] == "rollouts")
    assert row["refused"] == {"verdict": 2, "the_same_actions": 1}


def test_a_step_is_made_again_and_compared(place: Path, tmp_path: Path) -> None:
    from patchgym.cli.train import command

    out = tmp_path / "out"
    trained(place, out)
    done = CliRunner().invoke(command, [str(out), "--replay", "4", "--json"])
    found = json.loads(done.stdout)
    assert (done.exit_code, found["verdict"], found["from_step"]) == (0, "exact", 0)
    steps = out / "updates" / "dr_grpo" / "steps.jsonl"
    loss = json.loads(steps.read_text().splitlines()[1])["report"]["gradient_norm"]
    steps.write_text(steps.read_text().replace(repr(loss), repr(loss * 1.5)))
    other = CliRunner().invoke(command, [str(out / "updates" / "dr_grpo"), "--replay", "2"])
    assert other.exit_code == 1
    assert "gradient_norm" in other.stdout
    assert "different" in other.stdout


def test_a_run_without_an_update_cannot_be_replayed(place: Path) -> None:
    from patchgym.cli.train import command

    done = CliRunner().invoke(command, [str(place / "run"), "--replay", "1"])
    assert isinstance(done.exception, UsageError)


def test_a_dry_run_counts_what_the_update_then_has_without_its_weights(place: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(place / "tiny", tmp_path / "tiny")
    (bare / "model.safetensors").unlink()
    _, told = trained(place, tmp_path / "out")
    code, counted = trained(place, tmp_path / "none", "--dry-run", "--start", str(bare))
    report = UpdateReport.model_validate(told)
    assert code == 0
    assert not (tmp_path / "none").exists()
    assert (counted["rows"], counted["steps"]) == (report.rows_used, len(report.steps))
    assert (counted["trained_tokens"], counted["total_tokens"]) == (report.trained_tokens, report.total_tokens)
    assert counted["read_tokens"] == sum(step.read_tokens for step in report.steps)
    assert counted["trainable_parameters"] == report.trainable_parameters
    assert counted["seconds"] is None


def test_the_estimate_has_the_models_own_number_of_weights(place: Path) -> None:
    from patchgym.cli.dry_run import shape_of
    from patchgym.policy.models import load_model

    model = load_model(str(place / "tiny")).model
    assert shape_of(str(place / "tiny")).parameters == sum(part.numel() for part in model.parameters())


def test_the_recipe_for_gpus_fits_them() -> None:
    from patchgym.cli.train import command

    for more in ((), ("--set", "machine.devices=8")):
        done = CliRunner().invoke(command, ["gpu_7b", "--dry-run", "--json", *more])
        found = json.loads(done.stdout)
        assert done.exit_code == 0
        assert found["fits"]
        assert found["parameters"] == 7615616512


def test_a_logger_that_is_not_installed_is_told_before_work_starts(place: Path, tmp_path: Path) -> None:
    missing = [name for name in ("tensorboard", "trackio", "wandb") if importlib.util.find_spec(name) is None]
    if not missing:
        pytest.skip("all loggers are installed")
    done = train(place, "--run", str(place / "run"), "--out", str(tmp_path / "out"), "--log", missing[0])
    assert f"patchgym[{missing[0]}]" in str(done.exception)
    assert not (tmp_path / "out").exists()


def test_tensorboard_has_every_step(place: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the tensorboard extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    _, told = trained(place, tmp_path / "out", "--log", "tensorboard")
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard" / "out-dr_grpo")).Reload()
    norms = [event.value for event in events.Scalars("train/gradient_norm")]
    assert norms == pytest.approx([step["gradient_norm"] for step in told["steps"]], rel=1e-5)


@pytest.mark.parametrize("name", ["trackio", "wandb"])
def test_other_loggers_keep_their_figures_on_this_machine(place: Path, tmp_path: Path, name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"needs the {name} extra")
    command = [sys.executable, "-m", "patchgym", "train", str(place / "recipe.toml"), "--run", str(place / "run")]
    command += ["--out", str(tmp_path / "out"), "--log", name, "--json"]
    env = {**os.environ, "TRACKIO_DIR": str(tmp_path / "trackio")}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=240)
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["steps"]) == 6
    assert list(tmp_path.rglob("*.db" if name == "trackio" else "*.wandb"))


def test_figures_hold_what_was_measured_and_nothing_else() -> None:
    from patchgym.cli.loggers import figures

    step = StepReport(
        rows=1, trained_tokens=2, total_tokens=3, read_tokens=3, loss=0.5, gradient_norm=1.0, mean_logprob=-1.0,
        ratio_quantiles=(0.9, 1.0, 1.1), seconds=1.0,
    )  # fmt: skip
    found = figures(step)
    assert "kl" not in found
    assert found["ratio_q99"] == 1.1


def test_ctrl_c_and_sigterm_end_a_step_with_130_and_the_same_command_goes_on(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    folder = out / "updates" / "dr_grpo"
    command = [sys.executable, "-m", "patchgym", "train", str(place / "recipe.toml"), "--run", str(place / "run")]
    command += ["--out", str(out), "--set", "grpo.passes=3000"]
    reached = 0
    for number in (signal.SIGINT, signal.SIGTERM):
        done = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ)
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and done.poll() is None:
            steps = [int(one.name[5:]) for one in folder.glob("step-*")]
            if max(steps, default=0) > reached:
                break
            time.sleep(0.01)
        done.send_signal(number)
        _, said = done.communicate(timeout=60)
        assert done.returncode == 130, said
        assert "the same command goes on" in said
        now = max(int(one.name[5:]) for one in folder.glob("step-*"))
        assert now > reached
        reached = now
    first = json.loads((folder / "steps.jsonl").read_text().splitlines()[-1])["step"]
    assert first >= reached
