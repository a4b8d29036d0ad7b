"""Sessions of Gemini CLI and logs of Inspect: what these formats alone have."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from patchgym.records import SpawnedBy, StopReason, Usage
from tests.traces.imports_for_tests import imported, one_of, told, write_json, write_lines

ABOUT = {"sessionId": "s", "projectHash": "0" * 64, "startTime": "2026-01-02T03:04:05Z"}


def user(name: str, text: str) -> dict[str, Any]:
    """A user's message."""
    return {"id": name, "type": "user", "content": [{"text": text}], "timestamp": "2026-01-02T03:04:05Z"}


def gemini(name: str, text: str, *calls: dict[str, Any], **more: object) -> dict[str, Any]:
    """The model's."""
    return {"id": name, "type": "gemini", "content": text, "toolCalls": list(calls), "model": "m", **more}


def answered(output: str, **more: object) -> dict[str, Any]:
    """A call of the shell, and what came of it."""
    response = [{"functionResponse": {"response": {"output": output}}}]
    call = {"id": "c", "name": "run_shell_command", "args": {"command": "x"}, "result": response, "status": "success"}
    return {**call, **more}


def test_messages_that_were_taken_back_stay_as_a_branch(tmp_path: Path) -> None:
    lines = [user("1", "a"), gemini("2", "b"), user("3", "c"), gemini("4", "d"), {"$rewindTo": "3"}]
    path = write_lines(tmp_path / "s.jsonl", [ABOUT, *lines, user("5", "e"), gemini("6", "f")])
    steps = one_of(path).steps
    assert [step.parent for step in steps] == [None, 0, 0]
    assert [one.content for one in steps[2].prompt] == ["e"]


def test_a_checkpoint_without_the_messages_before_it_is_a_compaction(tmp_path: Path) -> None:
    change = {"$set": {"messages": [user("3", "So far.")]}}
    path = write_lines(tmp_path / "s.jsonl", [ABOUT, user("1", "a"), gemini("2", "b"), change, gemini("4", "c")])
    steps = one_of(path).steps
    assert [(step.compacted, [one.content for one in step.prompt]) for step in steps] == [
        (False, ["a"]),
        (True, ["So far."]),
    ]


def test_a_checkpoint_with_the_same_messages_changes_nothing(tmp_path: Path) -> None:
    change = {"$set": {"messages": [user("1", "a"), gemini("2", "b")]}}
    path = write_lines(tmp_path / "s.jsonl", [ABOUT, user("1", "a"), gemini("2", "b"), change])
    assert told(one_of(path)) == [("asked", "a"), ("answered", "b", None)]


def test_the_exit_code_of_a_command_stands_in_what_the_model_was_given(tmp_path: Path) -> None:
    call = answered("Command: x\nOutput: y\nError: (none)\nExit Code: 3\nSignal: (none)")
    document = {**ABOUT, "messages": [user("1", "a"), gemini("2", "b", call)]}
    seen = one_of(write_json(tmp_path / "s.json", document)).steps[0].observation
    assert seen is not None
    assert (seen.exit_code, seen.ok) == (3, True)


def test_a_call_that_was_cancelled_is_interrupted(tmp_path: Path) -> None:
    document = {**ABOUT, "messages": [user("1", "a"), gemini("2", "b", answered("no", status="cancelled"))]}
    seen = one_of(write_json(tmp_path / "s.json", document)).steps[0].observation
    assert seen is not None
    assert (seen.ending, seen.ok) == ("interrupted", False)


def test_a_call_of_which_nothing_came_is_not_answered(tmp_path: Path) -> None:
    call = {"name": "read_file", "args": {}, "status": "success"}
    document = {**ABOUT, "messages": [user("1", "a"), gemini("2", "b", call)]}
    assert one_of(write_json(tmp_path / "s.json", document)).steps[0].observation is None


def test_counts_that_are_all_0_were_not_taken(tmp_path: Path) -> None:
    tokens = {"input": 0, "output": 0, "cached": 0, "thoughts": 0, "tool": 0, "total": 0}
    document = {**ABOUT, "messages": [user("1", "a"), gemini("2", "b", tokens=tokens)]}
    assert one_of(write_json(tmp_path / "s.json", document)).steps[0].usage is None


def test_notes_to_the_user_are_counted(tmp_path: Path) -> None:
    note = {"id": "3", "type": "info", "content": "Update available!"}
    trajectory = one_of(
        write_json(tmp_path / "s.json", {**ABOUT, "messages": [user("1", "a"), gemini("2", "b"), note]})
    )
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"message_of_type_info": 1}


def test_a_sub_agents_session_names_the_folder_of_its_parent(tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "parent" / "x.jsonl", [{**ABOUT, "kind": "subagent"}, user("1", "a"), gemini("2", "b")]
    )
    assert one_of(path).spawned_by == SpawnedBy(trajectory="parent", step=None)


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_saved_chat_is_a_list_of_contents(tmp_path: Path, wrapped: bool) -> None:
    contents = [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"text": "b"}, {"functionCall": {"name": "ls", "args": {"x": 1}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "ls", "response": {"output": "c"}}}]},
        {"role": "model", "parts": [{"text": "d"}, {"text": "hm", "thought": True}]},
    ]
    path = write_json(tmp_path / "checkpoint-x.json", {"history": contents} if wrapped else contents)
    assert told(one_of(path)) == [
        ("asked", "a"),
        ("answered", "b", None),
        ("did", "ls", {"x": 1}, "c"),
        ("answered", "d", "hm"),
    ]


EVAL = {"version": 2, "status": "success", "eval": {"task": "x/t", "model": "m"}, "plan": {}}


def sample(tmp_path: Path, *messages: object, **more: object) -> Path:
    """A log with one sample."""
    one = {"id": "a", "epoch": 2, "messages": messages, **more}
    return write_json(tmp_path / "log.json", {**EVAL, "samples": [one]})


def inspect_call(call_id: str = "c", **more: object) -> dict[str, Any]:
    """An answer that asks for a tool."""
    call = {"id": call_id, "function": "bash", "arguments": {"cmd": "ls"}}
    return {"role": "assistant", "content": "I look.", "tool_calls": [call], **more}


def tool(content: str, call_id: str = "c", **more: object) -> dict[str, Any]:
    """What came of it."""
    return {"role": "tool", "content": content, "tool_call_id": call_id, **more}


def test_a_sample_is_named_by_its_task_and_its_epoch(tmp_path: Path) -> None:
    trajectory = one_of(sample(tmp_path, {"role": "user", "content": "Go."}, inspect_call()))
    assert (trajectory.id, trajectory.task_id, trajectory.sample_index) == ("t-a-epoch-2", "x/t/a", 1)


@pytest.mark.parametrize(
    ("limit", "stop"), [("message", "turn_limit"), ("time", "time_limit"), ("token", "token_limit")]
)
def test_a_limit_is_why_it_ended(tmp_path: Path, limit: str, stop: str) -> None:
    assert one_of(sample(tmp_path, inspect_call(), limit={"type": limit, "limit": 1})).stop == StopReason(stop)


def test_a_call_whose_time_ran_out_is_marked_and_an_error_is_not_ok(tmp_path: Path) -> None:
    error = {"type": "timeout", "message": "Command timed out."}
    (step,) = one_of(sample(tmp_path, inspect_call(), tool("", error=error))).steps
    assert step.observation is not None
    assert (step.observation.timed_out, step.observation.ok, step.observation.shown) == (
        True,
        False,
        "Command timed out.",
    )


def test_the_exit_code_is_that_of_the_one_command_that_a_call_ran(tmp_path: Path) -> None:
    when = "2026-01-02T03:04:0{}Z"
    events = [
        {"event": "tool", "id": "c", "timestamp": when.format(1), "completed": when.format(3)},
        {"event": "sandbox", "action": "exec", "timestamp": when.format(2), "cmd": "ls", "result": 3},
        {"event": "sandbox", "action": "exec", "timestamp": when.format(5), "cmd": "true", "result": 0},
    ]
    (step,) = one_of(sample(tmp_path, inspect_call(), tool("x"), events=events)).steps
    assert step.observation is not None
    assert (step.observation.exit_code, step.observation.seconds) == (3, 2.0)


def model_event(answer: dict[str, Any], **more: object) -> dict[str, Any]:
    """An event that tells of an answer."""
    usage = {"input_tokens": 2, "output_tokens": 3, "input_tokens_cache_read": 5}
    output = {"model": "m2", "choices": [{"message": answer}], "usage": usage, "time": 1.5}
    return {"event": "model", "timestamp": "2026-01-02T03:04:05Z", "input": [], "output": output, **more}


def test_events_tell_counts_and_times_of_the_answer_that_they_are_of(tmp_path: Path) -> None:
    grader = {"role": "assistant", "content": "Good."}
    events = [model_event(grader), model_event(inspect_call()), model_event(grader)]
    trajectory = one_of(sample(tmp_path, inspect_call(), tool("x"), events=events))
    (step,) = trajectory.steps
    assert step.usage == Usage(prompt_tokens=7, sampled_tokens=3, cached_tokens=5)
    assert (step.policy_version, step.sampling_seconds) == ("m2", 1.5)
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"model_calls_outside_of_the_conversation": 2}


def test_a_sample_without_messages_is_read_from_its_last_call_and_the_pool(tmp_path: Path) -> None:
    pool = [{"role": "system", "content": "S"}, {"role": "user", "content": "unused"}, {"role": "user", "content": "U"}]
    event = model_event({"role": "assistant", "content": "A"}, input_refs=[[0, 1], [2, 3]])
    trajectory = one_of(sample(tmp_path, events=[event], events_data={"messages": pool, "calls": []}))
    assert told(trajectory) == [("asked", "U"), ("answered", "A", None)]


def test_an_attachment_that_is_not_there_is_counted(tmp_path: Path) -> None:
    reference = f"attachment://{'0' * 32}"
    (_,), (done,) = imported(sample(tmp_path, {"role": "user", "content": reference}, inspect_call()))
    assert done.broken == {"missing_attachment": 1}


def test_an_image_that_stands_in_the_attachments_is_kept(tmp_path: Path) -> None:
    image = f"data:image/png;base64,{base64.b64encode(b'png').decode()}"
    content = [{"type": "image", "image": f"attachment://{'a' * 32}"}]
    path = sample(tmp_path, {"role": "user", "content": content}, inspect_call(), attachments={"a" * 32: image})
    (kept,) = one_of(path).steps[0].prompt[0].attachments
    assert (kept.media_type, kept.size) == ("image/png", 3)
    assert kept.blob is not None


def test_scores_are_counted_and_make_no_verdict(tmp_path: Path) -> None:
    trajectory = one_of(sample(tmp_path, inspect_call(), scores={"match": {"value": "C"}}))
    assert trajectory.report is None
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"scores": 1}


def test_a_log_whose_samples_are_missing_says_so(tmp_path: Path) -> None:
    (tmp_path / "log.json").write_text(json.dumps(EVAL))
    assert imported(tmp_path / "log.json")[1][0].broken == {"no_list_of_samples": 1}
