"""Evaluations in runs and files, whole and damaged."""

from pathlib import Path

import pytest

from patchgym.errors import DataError, PatchgymError, UsageError
from patchgym.evaluate import evaluate
from patchgym.evaluate.kept import evaluations_of, keep, read_evaluation
from patchgym.records import Trajectory, Verdict
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_report, make_trajectory


def solved(sample: int = 0, phase: str = "rollout") -> Trajectory:
    return make_trajectory(sample, phase=phase, report=make_report(Verdict.RESOLVED), reward=1.0)


def run_of(path: Path, *trajectories: Trajectory) -> RunDirectory:
    run = RunDirectory.open_for_writing(path, make_manifest())
    for one in trajectories:
        run.append(one)
    return run


def test_a_kept_evaluation_is_read_back(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved())
    report = evaluate(run.trajectories, [])
    path = keep(run, "eval-base", report)
    run.close()
    assert path == tmp_path / "run" / "eval" / "eval-base.json"
    assert read_evaluation(path) == report
    assert evaluations_of(tmp_path / "run") == {"eval-base": report}
    assert evaluations_of(path) == {"eval-base": report}


def test_a_run_that_keeps_none_is_measured_now(tmp_path: Path) -> None:
    run_of(tmp_path / "run", solved(0), solved(1)).close()
    found = evaluations_of(tmp_path / "run")
    assert list(found) == ["rollout"]
    assert found["rollout"].pass_at_k == {1: 1.0, 2: 1.0}
    assert not (tmp_path / "run" / "eval").exists()


def test_of_a_closed_loop_the_phases_that_measure_are_taken(tmp_path: Path) -> None:
    run_of(tmp_path / "run", solved(phase="eval-base"), solved(phase="round-1"), solved(phase="eval-final")).close()
    assert list(evaluations_of(tmp_path / "run")) == ["eval-base", "eval-final"]


def test_a_run_in_progress_is_told_as_far_as_it_is(tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", solved())
    found = evaluations_of(tmp_path / "run")["rollout"]
    run.close()
    assert "still being written" in found.notes[0]


def test_damaged_lines_are_said_to_be_missing(tmp_path: Path) -> None:
    run_of(tmp_path / "run", solved()).close()
    with (tmp_path / "run" / "trajectories.jsonl").open("a") as file:
        file.write('{"schema_version": 2, "id": "torn"}\n')
    found = evaluations_of(tmp_path / "run")["rollout"]
    assert found.trajectories == 1
    assert "1 problems of the run" in found.notes[0]


def test_a_run_that_nobody_graded_says_how_to_grade_it(tmp_path: Path) -> None:
    run_of(tmp_path / "run", solved().model_copy(update={"report": None, "reward": None})).close()
    with pytest.raises(DataError, match="Nobody graded") as refused:
        evaluations_of(tmp_path / "run")
    assert "--attempts" in refused.value.mend


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema_version": 1}', '{"schema_version": 9}', "\x00", "null"])
def test_a_damaged_evaluation_is_refused_by_its_name(tmp_path: Path, content: str) -> None:
    path = tmp_path / "eval.json"
    path.write_text(content)
    with pytest.raises(DataError, match=r"eval\.json"):
        read_evaluation(path)


@pytest.mark.parametrize("name", ["absent", "empty", "run/eval/absent.json"])
def test_where_no_evaluation_is_it_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    run_of(tmp_path / "run").close()
    with pytest.raises(UsageError, match="no evaluation"):
        evaluations_of(tmp_path / name)


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    run_of(tmp_path / "run").close()
    with pytest.raises(PatchgymError, match="Nobody graded"):
        evaluations_of(tmp_path / "run")
