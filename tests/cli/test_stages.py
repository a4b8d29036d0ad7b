"""Stages of a loop: what a recipe may say of them, the gates between them, and alarms that pause."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner

from patchgym.cli.closed_loop import ClosedLoop, LoopReport
from patchgym.cli.loop import command
from patchgym.cli.recipe import LoopRecipe, Stage
from patchgym.cli.stages import goes_on, rounds_of, sampling, upto_of
from patchgym.config import load_recipe, validated
from patchgym.content import ObjectStore
from patchgym.errors import ConfigError, PausedError, UsageError
from patchgym.records import TaskSetManifest
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from patchgym.train import UpdateReport
from tests.diagnose.planted.drawn import Drawn
from tests.diagnose.planted.faults import Bases
from tests.diagnose.planted.kit import HELD, TRAIN, make_tasks
from tests.diagnose.planted.made import manifest
from tests.diagnose.planted.updates import too_fast
from tests.records_for_tests import THEN, make_task
from tests.workshop import here, sandboxes

needs_torch = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")),
    reason="needs the train extra: pip install 'patchgym[train]'",
)
SAMPLE, TRAINS = {"rollouts": 10, "samples": 2}, {"epochs": 2}
BUILT = TaskSetManifest(name="kit", recipe={}, funnel={"candidates": 5}, created_at=THEN)


def recipe(*stages: Mapping[str, object], **more: object) -> LoopRecipe:
    return validated(
        LoopRecipe, {"stages": [dict(stage) for stage in stages], "samples": 4, "tasks_per_round": 3, **more}, "test"
    )


@pytest.mark.parametrize("name", ["starter", "advanced"])
def test_the_articles_configurations_are_valid_and_have_three_stages(name: str) -> None:
    stages = load_recipe(LoopRecipe, name).stages
    assert [(stage.rollouts, stage.trains) for stage in stages] == [(10, False), (200, False), (0, True)]


@pytest.mark.parametrize("name", ["starter", "advanced", "default"])
def test_a_dry_run_shows_the_stages_and_starts_nothing(name: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(command, [name, "--dry-run", "--out", str(tmp_path / "run")])
    assert (done.exit_code, done.exception) == (0, None)
    assert "The recipe is valid" in done.stdout
    assert not (tmp_path / "run").exists()


def test_the_starter_names_no_tasks_and_says_how_to() -> None:
    done = CliRunner().invoke(command, ["starter"])
    assert isinstance(done.exception, UsageError)
    assert "--tasks SET" in done.exception.mend


@pytest.mark.parametrize(
    "stages",
    [[{}], [{"rollouts": 3, "rounds": 1}], [{"epochs": 1, "rounds": 1}], [SAMPLE], [TRAINS, SAMPLE], [TRAINS, TRAINS]],
)
def test_stages_that_say_nothing_or_too_much_are_refused(stages: Sequence[Mapping[str, object]]) -> None:
    with pytest.raises(ConfigError):
        recipe(*stages)


@pytest.mark.parametrize(("tasks", "wanted"), [(9, (5, 2)), (5, (5, 2)), (3, (3, 4)), (1, (1, 10))])
def test_a_stage_takes_as_many_tasks_and_samples_as_make_its_rollouts(tasks: int, wanted: tuple[int, int]) -> None:
    chosen, samples = sampling(Stage(rollouts=10, samples=2), recipe(), [make_task(f"t-{at}") for at in range(tasks)])
    assert (len(chosen), samples) == wanted


def test_epochs_are_as_many_rounds_as_go_through_all_tasks() -> None:
    assert rounds_of(Stage(epochs=2), recipe(), 7) == 5
    assert rounds_of(Stage(epochs=1), recipe(), 2) == 1
    assert rounds_of(Stage(rounds=4), recipe(), 7) == 4


def test_without_a_terminal_nobody_is_asked_and_the_command_line_decides() -> None:
    assert not goes_on(1, 3, asked_for=None, yes=False)
    assert goes_on(1, 3, asked_for=None, yes=True)
    assert goes_on(1, 3, asked_for=2, yes=False)
    assert not goes_on(2, 3, asked_for=2, yes=True)
    assert not goes_on(3, 3, asked_for=None, yes=True)


def test_a_stage_that_is_not_there_is_refused() -> None:
    assert upto_of(recipe(SAMPLE, TRAINS), None) == 2
    with pytest.raises(UsageError, match="no stage 3"):
        upto_of(recipe(SAMPLE, TRAINS), 3)
    with pytest.raises(UsageError, match="no stages"):
        upto_of(recipe(), 1)


class Place:
    """A loop over tiny tasks with a tiny model, in one run directory."""

    def __init__(self, folder: Path) -> None:
        from tests.diagnose.planted.trainable import save_model

        self.folder, self.model = folder, save_model(folder / "model")

    def go(
        self, settings: LoopRecipe, drawn: Drawn, *, upto: int = 0, go_on: bool = False, later: Drawn | None = None
    ) -> LoopReport:
        from tests.diagnose.planted.trainable import Trainable

        source = Trainable(self.model, self.folder / "cache", drawn, later)
        run = RunDirectory.open_for_writing(self.folder / "run", manifest("loop", "run", settings.reward))
        try:
            train, held = make_tasks(run.objects, TRAIN[:2]), make_tasks(run.objects, HELD[:2])
            run.keep_tasks([*train, *held])
            with sandboxes(run.objects, self.folder / "sandboxes") as factory:
                loop = ClosedLoop(settings, run, factory, source, str(self.model), train, held, go_on=go_on, build=here)
                gate = None
                for number in range(1, upto + 1):
                    gate = loop.stage(number)
                return loop.report(BUILT, gate) if upto else loop.go(BUILT)
        finally:
            run.close()
            asyncio.run(source.close())

    @property
    def places(self) -> list[tuple[str, bool]]:
        return [(gate.place, gate.passed) for gate in RunDirectory.read(self.folder / "run").gates()]


SMALL = {
    "rounds": 1,
    "tasks_per_round": 2,
    "samples": 3,
    "rollout": {"concurrency": 4, "temperature": 1.0},
    "warm_start": {"max_row_tokens": 8192, "lora_rank": 4, "learning_rate": 1e-3},
    "grpo": {"max_row_tokens": 8192, "lora_rank": 4, "learning_rate": 1e-3},
    "diagnose": {"few": 6},
}


@needs_torch
@pytest.mark.slow
@pytest.mark.train
def test_a_sound_loop_passes_every_gate_and_keeps_them(tmp_path: Path) -> None:
    place = Place(tmp_path)
    report = place.go(
        recipe({"rollouts": 6, "samples": 3}, {"rounds": 1}, **SMALL),
        Drawn({"whole": 0.3, "half": 0.4, "nothing": 0.3}, looks=(1, 3)),
        upto=2,
    )
    assert report.passed, report.checklist.verdict
    wanted = ["stage-1", "demonstrate", "round-1", "round-1, update", "stage-2"]
    assert place.places == [(name, True) for name in wanted]
    assert report.updates["round-1"].version is not None
    assert list(report.evaluations) == ["eval-base", "eval-warm", "eval-final"]


@needs_torch
@pytest.mark.slow
@pytest.mark.train
def test_a_gate_stops_whatever_the_recipe_says_of_alarms_and_going_on_passes_what_was_said(tmp_path: Path) -> None:
    place, nothing = Place(tmp_path), Drawn({"nothing": 1.0}, looks=(1, 3))
    settings = recipe({"rollouts": 8}, {"rounds": 1}, **SMALL, alarms={"pause": False})
    for _ in range(2):
        with pytest.raises(PausedError, match="stage-1: process signal"):
            place.go(settings, nothing, upto=1)
    assert place.places == [("stage-1", False)]
    assert place.go(settings, nothing, upto=1, go_on=True).passed
    assert place.places == [("stage-1", False), ("stage-1", True)]


@needs_torch
@pytest.mark.slow
@pytest.mark.train
def test_an_alarm_pauses_a_round_before_its_update(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with pytest.raises(PausedError, match="Paused after round-1: process signal"):
        place.go(recipe(**SMALL), Drawn({"nothing": 1.0}, looks=(1, 3)))
    rows = RunDirectory.read(tmp_path / "run").metrics()
    assert [row["name"] for row in rows if row["kind"] == "update"] == ["warm-start"]


@needs_torch
@pytest.mark.train
def test_an_update_that_goes_too_far_pauses_and_goes_on_from_where_it_was(tmp_path: Path) -> None:
    from tests.train.tiny import save_tiny_model

    bases = Bases(tmp_path, save_tiny_model(tmp_path / "tiny"), tmp_path / "cache")
    with pytest.raises(PausedError, match="step size is broken"):
        too_fast(tmp_path / "run", bases, pause=True)
    assert not [row for row in RunDirectory.read(tmp_path / "run").metrics() if row["kind"] == "update"]
    too_fast(tmp_path / "run", bases, pause=True, more=["--go-on"])
    run = RunDirectory.read(tmp_path / "run")
    (report,) = [row["report"] for row in run.metrics() if row["kind"] == "update"]
    assert isinstance(report, dict)
    assert len(UpdateReport.model_validate(report).steps) == 24
    assert not run.gates()[0].passed


SCALED = {
    "stages": "[{rollouts=6,samples=3},{tasks=2,rounds=1}]",
    "tasks_per_round": 2,
    "samples": 2,
    "search.nodes": 14,
    "rollout.concurrency": 4,
    "warm_start.max_row_tokens": 8192,
    "warm_start.lora_rank": 4,
    "grpo.max_row_tokens": 8192,
    "grpo.lora_rank": 4,
    "evaluation.samples": 1,
    "alarms.pause": "false",
}


def went_on(place: Place, settings: LoopRecipe, drawn: Drawn) -> LoopReport:
    """The loop to its end, past whatever its gates find: each command goes on past what the ones before said."""
    for _ in range(5):
        with suppress(PausedError):
            return place.go(settings, drawn, upto=len(settings.stages), go_on=True)
    pytest.fail("each of five commands found something else broken")


@needs_torch
@pytest.mark.slow
@pytest.mark.train
def test_the_advanced_recipe_runs_to_its_end_on_tiny_tasks(tmp_path: Path) -> None:
    """Everything that sets it apart happens: trees in place of samples, an update by DAPO with credits of steps, the
    second layer of rewards, more held-out samples. What its checks say of so few tasks is passed."""
    settings = load_recipe(LoopRecipe, "advanced", [f"{key}={value}" for key, value in SCALED.items()])
    place, drawn = Place(tmp_path), Drawn({"whole": 0.4, "half": 0.4, "nothing": 0.2}, looks=(0, 2))
    report = went_on(place, settings, drawn)
    assert list(report.evaluations) == ["eval-base", "eval-warm", "eval-final"]
    run = RunDirectory.read(tmp_path / "run")
    trees = [tree for tree in run.trees if tree.phase == "round-1"]
    assert len(trees) == 4
    assert any(sum(node.step.parent == 0 for node in tree.nodes) > 1 for tree in trees)
    update = report.updates["round-1"]
    assert update.algorithm == "dapo"
    assert update.gradient == "nonzero", update.why
    assert update.version is not None
    assert all(step.entropy is not None for step in update.steps)
    assert place.places[-1][0] == "stage-2"


@needs_torch
@pytest.mark.slow
@pytest.mark.network
@pytest.mark.train
def test_the_starter_really_runs_with_the_small_model(tmp_path: Path) -> None:
    """On two tiny tasks, to its first gate: whatever that says, the attempts and the verdict are kept."""
    objects = ObjectStore(tmp_path / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    tasks = [*make_tasks(objects, TRAIN[:2]), *make_tasks(objects, HELD[:1])]
    locked = [
        task.model_copy(update={"environment": task.environment.model_copy(update={"lock": lock})}) for task in tasks
    ]
    (tmp_path / "set").mkdir()
    write_task_set(tmp_path / "set", BUILT, locked, objects)
    settings = {
        "stages": "[{rollouts=4,samples=2,after_warm_start=true},{tasks=2,rounds=1}]",
        "tasks_per_round": 2,
        "rollout.max_tokens": 60,
        "warm_start.passes": 1,
        "warm_start.lora_layers": 5,
    }
    overrides = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    asked = ["loop", "starter", "--tasks", "set", "--out", "run", "--stage", "1", "--json", *overrides]
    done = subprocess.run(
        [sys.executable, "-m", "patchgym", *asked], cwd=tmp_path, capture_output=True, text=True, timeout=900
    )
    assert done.returncode in (0, 1), done.stderr
    run = RunDirectory.read(tmp_path / "run")
    assert len(run.phase("stage-1")) == 4
    (gate,) = [gate for gate in run.gates() if gate.place == "stage-1"]
    assert gate.passed == (done.returncode == 0) or "Paused after" in done.stderr
    assert gate.checklist.thresholds["few"] == 10
