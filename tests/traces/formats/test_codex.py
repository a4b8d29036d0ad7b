"""Rollouts of Codex: what this format alone has."""

import json
from pathlib import Path
from typing import Any

import pytest

from patchgym.records import SpawnedBy, Usage
from tests.traces.imports_for_tests import one_of, told, write_lines

WHEN = "2026-01-02T03:04:05.678Z"
META = {"type": "session_meta", "timestamp": WHEN, "payload": {"id": "s", "cli_version": "1", "cwd": "/x"}}


def item(kind: str, **payload: object) -> dict[str, Any]:
    """An item that went to the model or came from it."""
    return {"type": "response_item", "timestamp": WHEN, "payload": {"type": kind, **payload}}


def event(kind: str, **payload: object) -> dict[str, Any]:
    """An event."""
    return {"type": "event_msg", "timestamp": WHEN, "payload": {"type": kind, **payload}}


def asked(text: str) -> dict[str, Any]:
    """A user's message."""
    return item("message", role="user", content=[{"type": "input_text", "text": text}])


def said(text: str) -> dict[str, Any]:
    """A model's."""
    return item("message", role="assistant", content=[{"type": "output_text", "text": text}])


def call(call_id: str) -> dict[str, Any]:
    """A call of the shell."""
    return item("function_call", name="shell", arguments='{"command": ["ls"]}', call_id=call_id)


def output(call_id: str, value: object) -> dict[str, Any]:
    """What came of it."""
    return item("function_call_output", call_id=call_id, output=value)


def rollout(tmp_path: Path, *lines: object) -> Path:
    """A rollout's file."""
    return write_lines(tmp_path / "rollout.jsonl", [META, *lines])


def outcome(tmp_path: Path, value: object, *events: object) -> Any:
    """What is made of an output."""
    return one_of(rollout(tmp_path, asked("Go."), call("c"), output("c", value), *events)).steps[0].observation


def test_the_exit_code_stands_in_json_in_a_string(tmp_path: Path) -> None:
    told_ = json.dumps({"output": "a.py\n", "metadata": {"exit_code": 3, "duration_seconds": 0.5}})
    seen = outcome(tmp_path, told_)
    assert (seen.exit_code, seen.seconds, seen.stdout.text, seen.shown) == (3, 0.5, "a.py\n", told_)


@pytest.mark.parametrize(
    "head",
    [
        "Exit code: 3\nWall time: 0.5 seconds\nTotal output lines: 9\nOutput:\n",
        "Chunk ID: 5f3a\nWall time: 0.5 seconds\nProcess exited with code 3\nOriginal token count: 9\nOutput:\n",
    ],
)
def test_the_exit_code_stands_in_the_first_lines_of_a_text(tmp_path: Path, head: str) -> None:
    seen = outcome(tmp_path, f"{head}a\nExit code: 9\nOutput:\nb")
    assert (seen.exit_code, seen.seconds, seen.stdout.text) == (3, 0.5, "a\nExit code: 9\nOutput:\nb")


def test_a_process_that_goes_on_has_no_exit_code(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "Wall time: 10.0 seconds\nProcess running with session ID 7\nOutput:\nx")
    assert (seen.exit_code, seen.seconds) == (None, 10.0)


def test_an_output_that_only_talks_of_exit_codes_has_none(tmp_path: Path) -> None:
    assert outcome(tmp_path, "Plan updated\nExit code: 3").exit_code is None


@pytest.mark.parametrize("late", [True, False])
def test_the_exit_code_stands_in_an_event_of_its_own(tmp_path: Path, late: bool) -> None:
    ended = event(
        "exec_command_end", call_id="c", stdout="o", stderr="e", exit_code=3, duration={"secs": 1, "nanos": 500_000_000}
    )
    lines = [output("c", "shown"), ended] if late else [ended, output("c", "shown")]
    seen = one_of(rollout(tmp_path, asked("Go."), call("c"), *lines)).steps[0].observation
    assert seen is not None
    assert (seen.shown, seen.exit_code, seen.seconds) == ("shown", 3, 1.5)
    assert (seen.stdout and seen.stdout.text, seen.stderr and seen.stderr.text) == ("o", "e")


def test_a_command_whose_time_ran_out_is_marked(tmp_path: Path) -> None:
    text = "command timed out after 1000 milliseconds\nhalf"
    seen = outcome(tmp_path, json.dumps({"output": text, "metadata": {"exit_code": 124, "duration_seconds": 1.0}}))
    assert seen.timed_out


def test_a_call_that_was_aborted_is_interrupted(tmp_path: Path) -> None:
    assert outcome(tmp_path, "aborted by user after 3.2s").ending == "interrupted"


def test_a_call_that_waits_when_its_turn_is_aborted_is_interrupted(tmp_path: Path) -> None:
    path = rollout(tmp_path, asked("Go."), call("c"), event("turn_aborted", reason="interrupted"))
    seen = one_of(path).steps[0].observation
    assert seen is not None
    assert (seen.ending, seen.shown) == ("interrupted", "")


def test_an_output_that_comes_after_an_aborted_turn_is_kept(tmp_path: Path) -> None:
    path = rollout(tmp_path, asked("Go."), call("c"), event("turn_aborted"), output("c", "late"))
    seen = one_of(path).steps[0].observation
    assert seen is not None
    assert (seen.ending, seen.shown) == ("none", "late")


def counted(total: int, sampled: int) -> dict[str, Any]:
    """Token counts."""
    last = {"input_tokens": 10, "output_tokens": sampled}
    return event("token_count", info={"last_token_usage": last, "total_token_usage": {"total_tokens": total}})


def test_token_counts_may_come_after_the_items_of_their_answer(tmp_path: Path) -> None:
    lines = [asked("a"), said("b"), counted(1, 3), counted(1, 3), asked("c"), said("d"), counted(2, 4)]
    steps = one_of(rollout(tmp_path, *lines)).steps
    assert [step.usage for step in steps] == [Usage(prompt_tokens=10, sampled_tokens=n) for n in (3, 4)]


def test_token_counts_of_old_versions_that_say_nothing_are_none(tmp_path: Path) -> None:
    path = rollout(tmp_path, asked("a"), said("b"), event("token_count", info={"prompt": 1}), event("token_count"))
    assert one_of(path).steps[0].usage is None


def test_turns_that_were_taken_back_stay_as_a_branch(tmp_path: Path) -> None:
    back = event("thread_rolled_back", num_turns=1)
    path = rollout(tmp_path, asked("a"), said("b"), asked("c"), said("d"), back, asked("e"), said("f"))
    steps = one_of(path).steps
    assert [step.parent for step in steps] == [None, 0, 0]
    assert [one.content for one in steps[2].prompt] == ["e"]


def test_a_compaction_replaces_the_conversation(tmp_path: Path) -> None:
    kept = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "So far."}]}]
    compacted = {"type": "compacted", "timestamp": WHEN, "payload": {"message": "m", "replacement_history": kept}}
    steps = one_of(rollout(tmp_path, asked("a"), said("b"), compacted, asked("c"), said("d"))).steps
    assert steps[1].compacted
    assert [one.content for one in steps[1].prompt] == ["So far.", "c"]


def test_a_compaction_of_old_versions_is_a_summary(tmp_path: Path) -> None:
    compacted = {"type": "compacted", "timestamp": WHEN, "payload": {"message": "So far."}}
    steps = one_of(rollout(tmp_path, asked("a"), said("b"), compacted, asked("c"), said("d"))).steps
    assert [one.content for one in steps[1].prompt] == ["So far.", "c"]


def test_calls_of_every_kind_are_actions(tmp_path: Path) -> None:
    path = rollout(
        tmp_path,
        asked("Go."),
        item("custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="1"),
        item("local_shell_call", action={"type": "exec", "command": ["ls"]}, call_id="2"),
        item("function_call", namespace="mcp", name="look", arguments="{}", call_id="3"),
        item("web_search_call", id="4", action={"type": "search", "query": "x"}),
        item("function_call", name="broken", arguments="{", call_id="5"),
        item("custom_tool_call_output", call_id="1", output=[{"type": "input_text", "text": "Done."}]),
        output("3", {"content": "no", "success": False}),
    )
    steps = one_of(path).steps
    assert [(step.action.tool, step.action.arguments) if step.action else step.parse_error for step in steps] == [
        ("apply_patch", {"input": "*** Begin Patch"}),
        ("local_shell", {"type": "exec", "command": ["ls"]}),
        ("mcp.look", {}),
        ("web_search", {"type": "search", "query": "x"}),
        "The arguments of broken are not JSON.",
    ]
    assert steps[0].observation is not None
    assert steps[0].observation.shown == "Done."
    assert steps[2].observation is not None
    assert steps[2].observation.ok is False


def test_a_sub_agents_rollout_names_its_parent(tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": "p", "depth": 1}}}
    meta = {**META, "payload": {"id": "s", "source": source}}
    path = write_lines(tmp_path / "rollout.jsonl", [meta, asked("a"), said("b")])
    assert one_of(path).spawned_by == SpawnedBy(trajectory="p", step=None)


def test_the_start_commit_and_the_instructions_are_kept(tmp_path: Path) -> None:
    git = {"commit_hash": "c" * 40, "repository_url": "https://example.org/x.git"}
    meta = {**META, "payload": {"id": "s", "git": git, "base_instructions": {"text": "You are."}}}
    trajectory = one_of(write_lines(tmp_path / "rollout.jsonl", [meta, asked("a"), said("b")]))
    assert trajectory.origin is not None
    assert (trajectory.origin.repo, trajectory.origin.base_commit) == (git["repository_url"], "c" * 40)
    assert [(one.role, one.content) for one in trajectory.steps[0].prompt] == [("system", "You are."), ("user", "a")]


def test_what_has_no_place_is_counted_by_its_kind(tmp_path: Path) -> None:
    lines = [item("ghost_snapshot"), event("plan_update"), event("plan_update"), {"type": "new", "payload": {}}]
    trajectory = one_of(rollout(tmp_path, asked("a"), said("b"), *lines))
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"item_ghost_snapshot": 1, "event_plan_update": 2, "line_new": 1}


def test_a_rollout_of_the_first_version_has_bare_items(tmp_path: Path) -> None:
    lines = [
        {"id": "s", "timestamp": WHEN, "instructions": None, "git": {"commit_hash": "c" * 40}},
        {"record_type": "state"},
        asked("a")["payload"],
        said("b")["payload"],
        call("c")["payload"],
        output("c", "x")["payload"],
    ]
    trajectory = one_of(write_lines(tmp_path / "rollout.jsonl", lines))
    assert trajectory.id == "s"
    assert told(trajectory) == [("asked", "a"), ("answered", "b", None), ("did", "shell", {"command": ["ls"]}, "x")]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_rollout_of_the_very_first_versions_is_a_document(tmp_path: Path, indent: int | None) -> None:
    session = {"id": "s", "timestamp": WHEN, "instructions": "You are."}
    items = [one["payload"] for one in (asked("a"), said("b"), call("c"), output("c", "x"))]
    path = tmp_path / "rollout.json"
    path.write_text(json.dumps({"session": session, "items": items}, indent=indent))
    trajectory = one_of(path)
    assert (trajectory.id, trajectory.origin and trajectory.origin.format) == ("s", "codex")
    assert told(trajectory) == [("asked", "a"), ("answered", "b", None), ("did", "shell", {"command": ["ls"]}, "x")]
