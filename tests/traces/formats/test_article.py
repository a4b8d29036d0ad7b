"""The simple row both ways, and as a log that tasks are made from."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Action, Message, Observation, Outcome, Step, Trajectory, Verdict
from patchgym.store import RunDirectory
from patchgym.tasks.sources.sessions import Session, SessionSource
from patchgym.traces.exporting import export_run
from patchgym.traces.formats import article
from patchgym.traces.glance import Glance
from patchgym.traces.intake import Intake
from patchgym.traces.writers import Known
from patchgym.traces.writers import article as writer
from tests.records_for_tests import make_manifest, make_report, make_task, make_trajectory
from tests.tasks.formats.rows_for_tests import GOLD, make_clone, repo_bytes
from tests.traces.trajectories_for_tests import JSON, TEXT, trajectories

ROW: dict[str, Any] = {
    "task_id": "t1",
    "repo": "a/b",
    "base_commit": "c" * 40,
    "prompt": "It fails.",
    "trajectory": [
        {"step": 1, "action": "run", "args": {"command": "ls"}, "output_excerpt": "x", "success": True},
        {"step": 2, "action": "edit", "args": {}, "output_excerpt": "no", "success": False},
    ],
    "test_result": {"pass": True, "passed_tests": ["t::a"], "failed_tests": ["t::b"]},
    "final_patch": "diff",
    "reward": 0.5,
}
STEPS = st.builds(
    lambda action, args, shown, success: {
        "action": action,
        "args": args,
        "output_excerpt": shown,
        "success": success,
    },
    TEXT.filter(bool),
    st.dictionaries(TEXT, JSON, max_size=2),
    TEXT,
    st.booleans() | st.none(),
)


def read(row: dict[str, Any]) -> Trajectory:
    """The trajectory of a row."""
    found = article.trajectory_of(row, "name", "f.jsonl", Glance())
    assert found is not None
    return found


def test_a_row_tells_tests_and_reward() -> None:
    found = read(ROW)
    assert found.report is not None
    assert found.reward is not None
    assert (found.report.verdict, found.report.tests, found.report.seconds, found.reward.value) == (
        Verdict.RESOLVED,
        {"t::a": Outcome.PASSED, "t::b": Outcome.FAILED},
        None,
        0.5,
    )
    assert not found.reward_trusted
    assert found.origin is not None
    assert found.origin.left_out == {}


def test_a_row_comes_back_the_same() -> None:
    assert writer.rows(read(ROW), Known()) == [ROW]


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEPS, min_size=1, max_size=3), TEXT.filter(bool), st.none() | TEXT, st.none() | st.floats(-1, 1))
def test_every_row_comes_back_the_same(
    steps: list[dict[str, JsonValue]], prompt: str, patch: str | None, reward: float | None
) -> None:
    numbered = [{"step": number, **step} for number, step in enumerate(steps, start=1)]
    row = {**ROW, "prompt": prompt, "trajectory": numbered, "final_patch": patch, "reward": reward}
    (back,) = writer.rows(read(row), Known())
    assert json.loads(json.dumps(back)) == row


@settings(max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(trajectories(line=True))
def test_whatever_a_trajectory_holds_makes_a_row(trajectory: Trajectory) -> None:
    for row in writer.rows(trajectory, Known()):
        assert len(read(json.loads(json.dumps(row))).steps) == len(row["trajectory"] or ())  # type: ignore[arg-type]


@pytest.mark.parametrize("key", ["trajectory", "test_result", "reward", "prompt", "final_patch", "args", "success"])
@given(value=JSON)
def test_values_of_any_kind_break_nothing(key: str, value: JsonValue) -> None:
    step = {**ROW["trajectory"][0], key: value}
    row = {**ROW, "trajectory": [step, value], **({key: value} if key in ROW else {})}
    found = article.trajectory_of(row, "n", "f", Glance())
    assert found is None or Trajectory.from_line(found.to_line()) == found


@pytest.mark.parametrize(
    ("data", "count", "broken"),
    [
        (b"", 0, {}),
        (b"\xef\xbb\xbf" + json.dumps(ROW).encode() + b"\r\n{}\r\n", 1, {"no_trajectory": 1}),
        (b"[1]\n" + json.dumps(ROW).encode(), 1, {"no_object": 1}),
        (json.dumps(ROW).encode() + b"\n{", 1, {"no_json": 1}),
        (json.dumps([ROW, ROW], indent=1).encode(), 2, {}),
    ],
)
def test_bad_input_is_counted(tmp_path: Path, data: bytes, count: int, broken: dict[str, int]) -> None:
    (tmp_path / "log.jsonl").write_bytes(data)
    intake = Intake(ObjectStore(tmp_path / "objects"))
    assert len(list(article.read(tmp_path / "log.jsonl", intake))) == count
    assert intake.broken == broken


def test_a_failing_command_is_no_success() -> None:
    step = Step(
        index=0,
        parent=None,
        prompt=(Message(role="user", content="It fails."),),
        message=Message(role="assistant", content=""),
        action=Action(tool="run", arguments={"command": "false"}),
        observation=Observation(shown="", ok=True, exit_code=1),
    )
    (row,) = writer.rows(make_trajectory(steps=[step], report=make_report()), Known())
    assert row["trajectory"] == [
        {"step": 1, "action": "run", "args": {"command": "false"}, "output_excerpt": "", "success": False}
    ]


def test_rows_are_a_log_that_tasks_are_made_from() -> None:
    task = make_task()
    source = task.source.model_copy(update={"repo": "owner/calc", "base_commit": "c" * 40})
    known = Known({"demo-1": task.model_copy(update={"source": source})})
    step = read(ROW).steps[0]
    (row,) = writer.rows(make_trajectory(steps=[step], report=make_report(), patch="diff"), known)
    session = Session.model_validate_json(json.dumps(row))
    assert (session.task_id, session.repo, session.base_commit) == ("demo-1", "owner/calc", "c" * 40)
    assert (session.prompt, session.final_patch) == ("Two tests fail.", "diff")
    assert session.trajectory[0].args == {"command": "ls"}


def test_an_exported_log_gives_a_candidate_for_a_task(tmp_path: Path) -> None:
    files = {**repo_bytes(), "pyproject.toml": b'[project]\nname = "calc"\nversion = "1.0"\n'}
    commit = make_clone(tmp_path / "repos" / "owner__calc", files)
    row = {**ROW, "repo": "owner/calc", "base_commit": commit, "final_patch": GOLD}
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    run.append(read(row))
    run.close()
    found = RunDirectory.read(tmp_path / "run")
    export_run(found, found.ids, "article", tmp_path / "sessions.jsonl")
    source = SessionSource(tmp_path / "sessions.jsonl", tmp_path / "repos")
    (candidate,) = source.candidates(ObjectStore(tmp_path / "objects"))
    assert source.sessions == {candidate.id: "t1"}
    assert dict(source.refused) == {}
