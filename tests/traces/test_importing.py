"""Logs become a run; what cannot be read is counted."""

import json
from pathlib import Path

import pytest

from patchgym.errors import UsageError
from patchgym.store import RunDirectory
from patchgym.traces.importing import import_logs
from tests.records_for_tests import make_manifest

ROW = {
    "task_id": "t1",
    "repo": "a/b",
    "base_commit": "c" * 40,
    "prompt": "It fails.",
    "trajectory": [{"step": 1, "action": "run", "args": {"command": "ls"}, "output_excerpt": "x", "success": True}],
    "final_patch": "",
}


def imported(tmp_path: Path, text: str) -> RunDirectory:
    (tmp_path / "log.jsonl").write_text(text)
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    import_logs([tmp_path / "log.jsonl"], "auto", run)
    run.close()
    return RunDirectory.read(tmp_path / "run")


def test_a_row_becomes_a_trajectory_that_says_where_it_is_from(tmp_path: Path) -> None:
    (trajectory,) = imported(tmp_path, json.dumps(ROW)).trajectories
    assert trajectory.origin is not None
    assert (trajectory.origin.repo, trajectory.origin.file) == ("a/b", "log.jsonl")
    (step,) = trajectory.steps
    assert step.action is not None
    assert step.action.arguments == {"command": "ls"}
    assert step.observation is not None
    assert (step.observation.shown, step.observation.ok, step.observation.exit_code) == ("x", True, None)


def test_of_one_name_the_next_gets_a_number(tmp_path: Path) -> None:
    assert imported(tmp_path, f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n").ids == ["t1", "t1~2"]


def test_of_one_file_nothing_is_broken_because_a_name_is_taken(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(f"{json.dumps(ROW)}\n{json.dumps(ROW)}\n")
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    (done,) = import_logs([tmp_path / "log.jsonl"], "auto", run)
    run.close()
    assert (done.trajectories, done.renamed, done.broken) == (2, 1, {})


def test_a_folder_without_a_log_gives_nothing(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    assert import_logs([tmp_path / "logs"], "auto", run) == []
    run.close()


def test_a_file_of_no_known_format_is_counted(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n")
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    (done,) = import_logs([tmp_path / "notes.md"], "auto", run)
    run.close()
    assert (done.format, done.broken) == (None, {"unknown_format": 1})


def test_a_log_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    with pytest.raises(UsageError, match="no log"):
        import_logs([tmp_path / "gone"], "auto", run)
    run.close()


def test_a_file_of_another_format_than_was_said_is_named(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(json.dumps(ROW))
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    (done,) = import_logs([tmp_path / "log.jsonl"], "codex", run)
    run.close()
    assert done.trajectories == 0
    assert done.problems[0] == "log.jsonl: looks like article, not like codex; try that, or auto"


def test_a_name_that_looks_like_a_numbered_one_keeps_its_own(tmp_path: Path) -> None:
    rows = [json.dumps({**ROW, "task_id": name}) for name in ("t1", "t1", "t1~2", "t1")]
    assert imported(tmp_path, "\n".join(rows)).ids == ["t1", "t1~2", "t1~2~2", "t1~3"]
