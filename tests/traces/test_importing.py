"""Logs become a run; what cannot be read is counted."""

import json
from pathlib import Path

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


def test_a_name_that_looks_like_a_numbered_one_keeps_its_own(tmp_path: Path) -> None:
    rows = [json.dumps({**ROW, "task_id": name}) for name in ("t1", "t1", "t1~2", "t1")]
    assert imported(tmp_path, "\n".join(rows)).ids == ["t1", "t1~2", "t1~2~2", "t1~3"]
