"""``patchgym traces export`` as a person and as a program meets it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_report, make_step, make_trajectory


def export(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run the command."""
    command = [sys.executable, "-m", "patchgym", "traces", "export", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two trajectories, one of which was lost."""
    made = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    made.append(make_trajectory(0, steps=[make_step()], report=make_report(), reward=0.0))
    made.append(make_trajectory(1))
    made.close()
    return tmp_path / "run"


def test_a_program_reads_what_was_written_dropped_and_refused(run: Path, tmp_path: Path) -> None:
    done = export("chat", str(run), "--out", str(tmp_path / "out.jsonl"), "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["trajectories"], told["rows"], told["out"]) == (1, 1, str(tmp_path / "out.jsonl"))
    assert told["dropped"]["steps.state_before"] == 1
    assert told["refused"]["no_steps"]["such_as"] == ["round-1.demo-1.1"]


def test_a_person_reads_what_the_format_does_not_hold(run: Path, tmp_path: Path) -> None:
    done = export("chat", str(run), "--out", str(tmp_path / "out.jsonl"))
    assert "What chat does not hold" in done.stdout
    assert "it has no steps" in done.stdout
    assert "1 trajectory written to" in done.stdout


def test_where_nothing_can_be_written_the_exit_code_is_1(run: Path, tmp_path: Path) -> None:
    for chosen, said in (("trusted", "could be written as this format"), ("resolved", "is chosen")):
        done = export("trl", str(run), "--out", str(tmp_path / "out.jsonl"), "--only", chosen)
        assert done.returncode == 1
        assert f"No trajectory {said}: nothing was written." in done.stdout
    assert not (tmp_path / "out.jsonl").exists()


def test_a_wrong_ending_is_told_in_three_lines(run: Path, tmp_path: Path) -> None:
    done = export("chat", str(run), "--out", str(tmp_path / "out.csv"))
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 3
    assert "Let --out end in .jsonl or .parquet." in done.stderr


def test_no_run_is_told(tmp_path: Path) -> None:
    done = export("atif", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.returncode == 2
    assert "There is no run" in done.stderr
