"""``patchgym value`` and ``patchgym spotcheck`` as a person and as a program meet them."""

import json
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from tests.cli.test_cli import patchgym
from tests.records_for_tests import make_manifest
from tests.reward.value.made import telling_attempts


def written(path: Path, attempts: list[Trajectory]) -> Path:
    run = RunDirectory.open_for_writing(path, make_manifest(id=path.name))
    for one in attempts:
        run.append(one)
    run.close()
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("runs") / "run", telling_attempts())


@pytest.fixture(scope="module")
def model(run: Path) -> Path:
    pytest.importorskip("sklearn", reason="needs the value extra")
    path = run.parent / "value.json"
    done = patchgym("value", "fit", str(run), "--out", str(path), "--set", "least=5", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_out"]["ends"]["auc"]["value"] > 0.7
    return path


def test_a_report_on_fresh_attempts_has_figures_and_a_drawing(model: Path, tmp_path: Path) -> None:
    fresh = written(tmp_path / "fresh", telling_attempts(tasks=12, seed=1))
    drawing = tmp_path / "plot.svg"
    done = patchgym("value", "report", str(model), str(fresh), "--svg", str(drawing), "--json")
    found = json.loads(done.stdout)
    assert found["unseen_tasks"] == found["report"]["tasks"] == 4
    assert sum(one["count"] for one in found["report"]["steps"]["bins"]) == found["report"]["steps"]["scores"]
    assert drawing.read_text().startswith("<svg")


def test_a_report_on_the_run_that_it_was_fitted_on_says_so(model: Path, run: Path) -> None:
    done = patchgym("value", "report", str(model), str(run))
    assert done.returncode == 0
    assert "no fresh ones" in done.stderr
    assert "has not seen 0" in done.stdout
    assert "share solved (#)" in done.stdout


def test_scores_have_a_value_for_each_step_and_can_be_cut_to_levels(model: Path, run: Path) -> None:
    found = json.loads(patchgym("value", "score", str(model), str(run), "--levels", "3", "--json").stdout)
    kept = RunDirectory.read(run)
    assert {name: len(scores) for name, scores in found["scores"].items()} == {
        one.id: len(one.steps) for one in kept.trajectories
    }
    assert {score for scores in found["scores"].values() for score in scores} <= {0.0, 0.5, 1.0}


def test_another_hash_is_refused_in_three_lines(model: Path, run: Path) -> None:
    done = patchgym("value", "score", str(model), str(run), "--hash", "0" * 64)
    assert done.returncode == 2
    assert "0" * 64 in done.stderr
    assert len(done.stderr.strip().splitlines()) == 3


def test_drift_is_an_alarm_by_exit_code(model: Path, run: Path, tmp_path: Path) -> None:
    same = written(tmp_path / "same", telling_attempts(seed=5))
    short = [one.model_copy(update={"steps": one.steps[:1]}) for one in telling_attempts(seed=6)]
    moved = written(tmp_path / "moved", short)
    quiet = patchgym("value", "drift", str(model), str(same), "--reference", str(run), "--json")
    assert (quiet.returncode, json.loads(quiet.stdout)["alarm"]) == (0, False)
    loud = patchgym("value", "drift", str(model), str(moved), "--reference", str(run))
    assert loud.returncode == 1
    assert "broken" in loud.stdout


def test_a_run_without_grades_cannot_be_fitted_on(tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="needs the value extra")
    bare = written(tmp_path / "bare", [one.model_copy(update={"report": None}) for one in telling_attempts(tasks=1)])
    done = patchgym("value", "fit", str(bare), "--out", str(tmp_path / "m.json"))
    assert done.returncode == 2
    assert "0 graded attempts" in done.stderr
    assert not (tmp_path / "m.json").exists()


def test_items_are_exported_blind_and_labels_come_from_a_file(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "items"
    done = patchgym("spotcheck", str(run), "--export", str(folder))
    assert done.returncode == 0
    assert "60 attempts were asked for; the run has 48" in done.stderr
    order = json.loads((folder / "items.json").read_text())
    assert sorted(f"{item}.json" for item in order) == sorted(
        path.name for path in folder.iterdir() if path.name != "items.json"
    )
    labels = tmp_path / "labels.jsonl"
    labels.write_text("".join(json.dumps({"item": item, "label": "yes"}) + "\n" for item in order[:10]))
    found = json.loads(patchgym("spotcheck", str(run), "--labels", str(labels), "--json").stdout)
    assert found["labelled"] == found["high_yes"] + found["low_yes"] == 10


@pytest.mark.parametrize("line", ["{", '{"item": "x", "label": "maybe"}', '{"item": "x", "label": "yes"}'])
def test_a_bad_label_is_refused(run: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "labels.jsonl").write_text(line + "\n")
    done = patchgym("spotcheck", str(run), "--labels", str(tmp_path / "labels.jsonl"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_without_a_terminal_nobody_is_asked(run: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "patchgym", "spotcheck", str(run)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert "--labels FILE" in done.stderr


def typed(run: Path, keys: str, save: Path) -> str:
    """What a terminal shows to whoever presses these keys, one after the other."""
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "patchgym", "spotcheck", str(run), "--save", str(save), "--each", "2"]
    done = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, close_fds=True)
    os.close(follower)
    shown = b""
    for key in keys:
        asked = shown.count(b"Does it solve")
        while shown.count(b"Does it solve") == asked:
            shown += os.read(leader, 65536)
        time.sleep(0.1)  # the terminal takes single keys only once the question stands
        os.write(leader, key.encode())
    while True:
        try:
            more = os.read(leader, 65536)
        except OSError:  # the terminal is closed
            break
        if not more:
            break
        shown += more
    done.wait(timeout=60)
    os.close(leader)
    return shown.decode()


def test_a_person_answers_goes_back_leaves_and_goes_on(tmp_path: Path) -> None:
    attempts = telling_attempts(tasks=2, samples=4)
    evil = (
        attempts[0]
        .steps[0]
        .model_copy(
            update={"message": attempts[0].steps[0].message.model_copy(update={"content": "\x1b]0;owned\x07[bold]"})}
        )
    )
    made = [one.model_copy(update={"steps": (evil, *one.steps[1:])}) for one in attempts]
    here = written(tmp_path / "run", made)
    save = tmp_path / "labels.jsonl"
    first = typed(here, "ynbuq", save)
    assert "\x1b]0;owned" not in first
    assert "\\x1b]0;owned\\x07[bold]" in first
    labels = [json.loads(line) for line in save.read_text().splitlines()]
    assert [label["label"] for label in labels] == ["yes", "no", "unsure"]
    assert labels[1]["item"] == labels[2]["item"]
    assert "2 of 4 labelled" in first
    second = typed(here, "yn", save)
    assert "3 of 4 =====" in second
    assert "1 of 4 =====" not in second
    assert "4 of 4 labelled, 1 unsure" in second
