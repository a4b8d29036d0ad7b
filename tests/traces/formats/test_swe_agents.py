"""Trajectories of mini-swe-agent and of SWE-agent: what these formats alone have."""

import json
from pathlib import Path
from typing import Any

import pytest

from patchgym.records import StopReason
from tests.traces.imports_for_tests import one_of, told, write_json

DIFF = "diff --git a/x b/x\n--- a/x\n+++ b/x\n"


def mini(tmp_path: Path, *messages: dict[str, Any], **info: object) -> Path:
    """A trajectory of mini-swe-agent."""
    document = {
        "info": {"mini_version": "2.0.0", **info},
        "messages": messages,
        "trajectory_format": "mini-swe-agent-1",
    }
    return write_json(tmp_path / "run.traj.json", document)


def test_an_action_of_version_1_is_the_one_block_of_its_text(tmp_path: Path) -> None:
    path = mini(
        tmp_path,
        {"role": "user", "content": [{"type": "text", "text": "Fix it."}]},
        {"role": "assistant", "content": "THOUGHT: I look.\n\n```bash\nls\n```"},
        {"role": "user", "content": "<returncode>2</returncode>\n<output>\nno\n</output>"},
        exit_status="Submitted",
        submission=DIFF,
    )
    trajectory = one_of(path)
    (step,) = trajectory.steps
    assert step.action is not None
    assert (step.action.tool, step.action.arguments) == ("bash", {"command": "ls"})
    assert step.observation is not None
    assert step.observation.stdout is not None
    assert (step.observation.exit_code, step.observation.ok, step.observation.stdout.text) == (2, True, "no")
    assert (trajectory.final_patch, trajectory.stop) == (DIFF, StopReason.SUBMITTED)


def test_an_answer_with_two_blocks_asks_for_nothing_that_can_be_read(tmp_path: Path) -> None:
    answer = {"role": "assistant", "content": "```bash\nls\n```\n```bash\npwd\n```"}
    (step,) = one_of(mini(tmp_path, answer, {"role": "user", "content": "Give one block."})).steps
    assert step.action is None
    assert step.parse_error is not None


def test_a_command_whose_time_ran_out_has_no_exit_code(tmp_path: Path) -> None:
    call = {"id": "c", "function": {"name": "bash", "arguments": '{"command": "sleep 99"}'}}
    extra = {"returncode": -1, "raw_output": "x", "exception_info": "Command timed out after 60 seconds"}
    path = mini(
        tmp_path,
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "content": "<returncode>-1</returncode>", "tool_call_id": "c", "extra": extra},
    )
    seen = one_of(path).steps[0].observation
    assert seen is not None
    assert (seen.exit_code, seen.timed_out, seen.ok) == (None, True, False)


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        ("Submitted", StopReason.SUBMITTED),
        ("TimeExceeded", StopReason.TIME_LIMIT),
        ("RepeatedFormatError", StopReason.PROTOCOL),
        ("ContextWindowExceededError", StopReason.CONTEXT_LIMIT),
        ("InternalServerError", StopReason.INFRASTRUCTURE),
        ("Timeout", StopReason.INFRASTRUCTURE),
        ("Unheard", None),
    ],
)
def test_why_it_ended_is_told_by_its_status(tmp_path: Path, status: str, stop: StopReason | None) -> None:
    trajectory = one_of(mini(tmp_path, {"role": "assistant", "content": "x"}, exit_status=status))
    assert trajectory.stop == stop
    assert (trajectory.status == "infra_error") == (stop is StopReason.INFRASTRUCTURE)
    assert [one.where for one in trajectory.faults] == (["policy"] if stop is StopReason.INFRASTRUCTURE else [])


@pytest.mark.parametrize(("calls", "stop"), [(5, StopReason.TURN_LIMIT), (4, StopReason.TOKEN_LIMIT)])
def test_which_limit_was_exceeded_is_told_by_the_counts(tmp_path: Path, calls: int, stop: StopReason) -> None:
    about = {"config": {"agent": {"step_limit": 5}}, "model_stats": {"api_calls": calls}}
    answer = {"role": "assistant", "content": "x"}
    assert one_of(mini(tmp_path, answer, exit_status="LimitsExceeded", **about)).stop is stop


def test_answers_of_the_responses_api_are_read(tmp_path: Path) -> None:
    items = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Where?"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "name": "bash", "arguments": '{"command": "ls"}', "call_id": "c"},
    ]
    usage = {"input_tokens": 5, "output_tokens": 7}
    path = mini(
        tmp_path,
        {"role": "user", "content": "Fix it."},
        {"object": "response", "output": items, "usage": usage, "extra": {"timestamp": 1.5e9}},
        {"type": "function_call_output", "call_id": "c", "output": "a.py", "extra": {"returncode": 0}},
    )
    trajectory = one_of(path)
    assert told(trajectory) == [
        ("asked", "Fix it."),
        ("answered", "I look.", "Where?"),
        ("did", "bash", {"command": "ls"}, "a.py"),
    ]
    assert trajectory.steps[0].usage is not None
    assert trajectory.steps[0].observation is not None
    assert trajectory.steps[0].observation.exit_code == 0


def test_a_bare_list_of_messages_is_told_by_its_text(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "```mswea_bash_command\nls\n```"},
        {"role": "user", "content": "<returncode>0</returncode>\n<output>\na\n</output>"},
    ]
    trajectory = one_of(write_json(tmp_path / "run.traj.json", messages))
    assert trajectory.origin is not None
    assert trajectory.origin.format == "mini_swe_agent"
    assert (trajectory.id, trajectory.stop) == ("run", None)


def swe(tmp_path: Path, **document: object) -> Path:
    """A trajectory of SWE-agent."""
    return write_json(tmp_path / "a__b-1.traj", {"environment": "main", **document})


STEP = {
    "action": "ls\n",
    "observation": "a.py",
    "response": "I look.\n```\nls\n```",
    "thought": "I look.",
    "state": "{}",
}
HISTORY = [
    {"role": "system", "content": "You are.", "agent": "main"},
    {"role": "user", "content": "A demonstration.", "agent": "main", "is_demo": True},
    {"role": "user", "content": "Fix it.", "agent": "main"},
    {"role": "assistant", "content": "I look.\n```\nls\n```", "thought": "I look.", "action": "ls\n", "agent": "main"},
    {"role": "user", "content": "a.py\n(Open file: n/a)", "agent": "main"},
]


def test_what_the_model_was_shown_and_what_the_command_printed_are_both_kept(tmp_path: Path) -> None:
    path = swe(tmp_path, trajectory=[{**STEP, "execution_time": 0.5}], history=HISTORY, info={})
    (step,) = one_of(path).steps
    assert step.action is not None
    assert (step.action.tool, step.action.arguments) == ("bash", {"command": "ls\n"})
    assert step.observation is not None
    assert step.observation.stdout is not None
    assert (step.observation.shown, step.observation.stdout.text) == ("a.py\n(Open file: n/a)", "a.py")
    assert (step.observation.seconds, step.observation.exit_code, step.started_at) == (0.5, None, None)
    assert [one.content for one in step.prompt] == ["You are.", "A demonstration.", "Fix it."]


def test_what_came_of_the_last_step_stands_in_the_steps_alone(tmp_path: Path) -> None:
    last = {"role": "assistant", "content": "submit", "action": "submit", "agent": "main"}
    path = swe(tmp_path, trajectory=[STEP, {**STEP, "action": "submit", "observation": DIFF}], history=[*HISTORY, last])
    seen = one_of(path).steps[-1].observation
    assert seen is not None
    assert seen.shown == DIFF


def test_where_the_history_tells_of_other_answers_the_steps_are_read(tmp_path: Path) -> None:
    trajectory = one_of(swe(tmp_path, trajectory=[STEP, STEP, STEP], history=HISTORY))
    assert len(trajectory.steps) == 3
    assert [one.content for one in trajectory.steps[0].prompt] == ["You are.", "A demonstration.", "Fix it."]
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"messages_of_a_history_that_differs": 2}


def test_native_calls_of_later_versions_are_the_actions(tmp_path: Path) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "open", "arguments": '{"path": "a"}'}}
    history = [
        {"role": "user", "content": "Fix it.", "agent": "main"},
        {"role": "assistant", "content": "I look.", "action": "open a", "agent": "main", "tool_calls": [call]},
        {"role": "tool", "content": "text", "agent": "main", "tool_call_ids": ["c"]},
    ]
    assert told(one_of(write_json(tmp_path / "x.traj", {"history": history}))) == [
        ("asked", "Fix it."),
        ("answered", "I look.", None),
        ("did", "open", {"path": "a"}, "text"),
    ]


@pytest.mark.parametrize(("submission", "patch"), [(None, None), ("flag{x}", None), (DIFF, DIFF), ("", None)])
def test_a_submission_is_a_patch_only_where_it_is_a_diff(
    tmp_path: Path, submission: str | None, patch: str | None
) -> None:
    trajectory = one_of(swe(tmp_path, trajectory=[STEP], info={"exit_status": "submitted", "submission": submission}))
    assert (trajectory.final_patch, trajectory.stop) == (patch, StopReason.SUBMITTED)
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == ({"submission_that_is_no_diff": 1} if submission == "flag{x}" else {})


@pytest.mark.parametrize(
    ("status", "stop"),
    [
        ("submitted (exit_context)", StopReason.CONTEXT_LIMIT),
        ("exit_cost", StopReason.TOKEN_LIMIT),
        ("exit_format", StopReason.PROTOCOL),
        ("exit_environment_error", StopReason.INFRASTRUCTURE),
        ("early_exit", None),
        (None, None),
    ],
)
def test_why_swe_agent_ended_is_told_by_its_status(tmp_path: Path, status: str | None, stop: StopReason | None) -> None:
    assert one_of(swe(tmp_path, trajectory=[STEP], info={"exit_status": status})).stop == stop


def test_the_start_commit_stands_in_a_configuration_in_a_string(tmp_path: Path) -> None:
    repo = {"type": "github", "github_url": "https://example.org/a/b", "base_commit": "c" * 40}
    config = json.dumps({"env": {"repo": repo}, "agent": {"model": {"name": "m"}}})
    trajectory = one_of(swe(tmp_path, trajectory=[STEP], replay_config=config))
    assert trajectory.origin is not None
    assert (trajectory.origin.repo, trajectory.origin.base_commit) == ("https://example.org/a/b", "c" * 40)
    assert trajectory.policy.version == "m"
