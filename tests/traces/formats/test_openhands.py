"""Conversations of OpenHands: what this format alone has."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from patchgym.records import StopReason, Usage
from tests.traces.formats.logs_for_tests import openhands_v1_events
from tests.traces.imports_for_tests import Call, Turn, flat, imported, one_of, told, write_json, write_lines

TURNS = [
    Turn("It fails.", "I look.", "Where?", (Call("terminal", {"command": "ls"}, "a"), Call("terminal", {}, "b"))),
    Turn("Go on.", "Done.", "So.", ()),
]


def folder(path: Path, events: Sequence[dict[str, Any]], **state: object) -> Path:
    """A folder of events of version 1."""
    for number, event in enumerate(events):
        write_json(path / "events" / f"event-{number:05d}-{number:032x}.json", event)
    write_json(path / "base_state.json", state)
    return path


def v1(tmp_path: Path, *events: dict[str, Any]) -> Path:
    """A list of events of version 1, each with an id."""
    return write_json(
        tmp_path / "log.json",
        [{"id": f"e{at}", "timestamp": "2026-01-02T03:04:05", "source": "x", **one} for at, one in enumerate(events)],
    )


def v0(tmp_path: Path, *events: dict[str, Any]) -> Path:
    """A list of events of version 0."""
    return write_json(
        tmp_path / "log.json", [{"id": at, "timestamp": "2026-01-02T03:04:05", **one} for at, one in enumerate(events)]
    )


def message(text: str, source: str = "user") -> dict[str, Any]:
    """A message of version 1."""
    said = {"role": source, "content": [{"type": "text", "text": text}]}
    return {"kind": "MessageEvent", "source": source, "llm_message": said}


def action(call_id: str, tool: str = "terminal", **more: object) -> dict[str, Any]:
    """An action of version 1."""
    called = {"id": call_id, "name": tool, "arguments": "{}"}
    return {
        "kind": "ActionEvent",
        "source": "agent",
        "thought": [],
        "tool_call_id": call_id,
        "tool_call": called,
        **more,
    }


def observation(call_id: str, **told_: object) -> dict[str, Any]:
    """What came of it."""
    return {"kind": "ObservationEvent", "source": "environment", "tool_call_id": call_id, "observation": told_}


def test_files_of_events_are_read_by_their_number(tmp_path: Path) -> None:
    for number in range(12):
        event = {"id": number, "timestamp": "2026-01-02T03:04:05", "source": ("user", "agent")[number % 2]}
        said = {"action": "message", "args": {"content": str(number)}}
        write_json(tmp_path / "c" / "events" / f"{number}.json", {**event, **said})
    write_json(tmp_path / "c" / "metadata.json", {"conversation_id": "named", "llm_model": "m"})
    trajectory = one_of(tmp_path / "c")
    assert (trajectory.id, trajectory.policy.version) == ("named", "m")
    assert [step.message.content for step in trajectory.steps] == ["1", "3", "5", "7", "9", "11"]


def test_a_folder_is_found_below_another_and_is_one_log(tmp_path: Path) -> None:
    folder(tmp_path / "a" / "b", list(openhands_v1_events(TURNS)), id="named", agent_status="finished")
    (trajectory,), (done,) = imported(tmp_path)
    assert (trajectory.id, trajectory.stop, done.format) == ("named", StopReason.SUBMITTED, "openhands")
    assert told(trajectory) == flat(TURNS)


def test_token_counts_and_seconds_stand_apart_by_the_id_of_the_response(tmp_path: Path) -> None:
    metrics = {
        "token_usages": [{"prompt_tokens": 9, "completion_tokens": 3, "response_id": "response-0"}],
        "response_latencies": [{"latency": 1.5, "response_id": "response-0"}],
    }
    stats = {"service_to_metrics": {"default": metrics}}
    steps = one_of(folder(tmp_path / "c", list(openhands_v1_events(TURNS)), stats=stats)).steps
    assert [step.usage for step in steps] == [Usage(prompt_tokens=9, sampled_tokens=3), None, None]
    assert steps[0].sampling_seconds == 1.5


def test_an_exit_code_of_minus_one_is_none(tmp_path: Path) -> None:
    path = v1(
        tmp_path,
        message("Go."),
        action("1"),
        observation(
            "1", kind="TerminalObservation", content=[{"type": "text", "text": "x"}], exit_code=-1, timeout=True
        ),
        action("2"),
        observation(
            "2", kind="ExecuteBashObservation", output="y", error=False, metadata={"exit_code": 3, "suffix": "!"}
        ),
    )
    first, second = (step.observation for step in one_of(path).steps)
    assert first is not None
    assert second is not None
    assert (first.exit_code, first.timed_out) == (None, True)
    assert (second.exit_code, second.ok, second.shown, second.stdout and second.stdout.text) == (3, True, "y!", "y")


def test_an_action_that_a_person_rejects_is_interrupted_and_an_error_is_not_ok(tmp_path: Path) -> None:
    rejected = {"kind": "UserRejectObservation", "tool_call_id": "1", "rejection_reason": "No."}
    failed = {"kind": "AgentErrorEvent", "tool_call_id": "2", "error": "Unknown tool."}
    path = v1(tmp_path, message("Go."), action("1"), rejected, action("2"), failed)
    first, second = (step.observation for step in one_of(path).steps)
    assert first is not None
    assert second is not None
    assert (first.ending, first.shown) == ("interrupted", "Action rejected: No.")
    assert (second.ok, second.shown) == (False, "Unknown tool.")


def test_events_that_follow_an_earlier_one_are_a_branch(tmp_path: Path) -> None:
    path = v1(
        tmp_path,
        message("a"),
        message("b", "agent"),
        message("c"),
        message("d", "agent"),
        {**message("e"), "parent_id": "e1"},
        message("f", "agent"),
    )
    steps = one_of(path).steps
    assert [step.parent for step in steps] == [None, 0, 0]
    assert [one.content for one in steps[2].prompt] == ["e"]


def test_a_condensation_takes_the_place_of_what_was_forgotten(tmp_path: Path) -> None:
    condensed = {"kind": "Condensation", "forgotten_event_ids": ["e0"], "summary": "So far."}
    steps = one_of(v1(tmp_path, message("a"), message("b", "agent"), condensed, message("c", "agent"))).steps
    assert [(step.compacted, [one.content for one in step.prompt]) for step in steps] == [
        (False, ["a"]),
        (True, ["So far."]),
    ]


def test_token_ids_are_those_of_the_answer_before_them(tmp_path: Path) -> None:
    ids = {"kind": "TokenEvent", "prompt_token_ids": [1, 2], "response_token_ids": [3]}
    tokens = one_of(v1(tmp_path, message("a"), message("b", "agent"), ids)).steps[0].tokens
    assert tokens is not None
    assert (tokens.prompt_ids, tokens.sampled_ids, tokens.logprobs, tokens.restart) == ((1, 2), (3,), None, True)


def test_what_has_no_place_is_counted_by_its_kind(tmp_path: Path) -> None:
    trajectory = one_of(v1(tmp_path, message("a"), message("b", "agent"), {"kind": "PauseEvent"}, {"kind": "NewEvent"}))
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"event_pauseevent": 1, "event_newevent": 1}


def old(kind: str, **more: object) -> dict[str, Any]:
    """An action of version 0."""
    return {"source": "agent", "action": kind, **more}


def test_a_command_of_version_0_that_had_not_ended_timed_out(tmp_path: Path) -> None:
    suffix = "\n[The command timed out after 60 seconds.]"
    path = v0(
        tmp_path,
        old("run", args={"command": "sleep 99", "thought": "Wait."}),
        {"observation": "run", "content": "x", "cause": 0, "extras": {"metadata": {"exit_code": -1, "suffix": suffix}}},
    )
    (step,) = one_of(path).steps
    assert step.action is not None
    assert (step.action.arguments, step.message.content) == ({"command": "sleep 99"}, "Wait.")
    assert step.observation is not None
    assert (step.observation.exit_code, step.observation.timed_out) == (None, True)


def test_an_observation_of_version_0_belongs_to_its_cause(tmp_path: Path) -> None:
    path = v0(
        tmp_path,
        old("run", args={"command": "a"}),
        old("run", args={"command": "b"}),
        {"observation": "run", "content": "B", "cause": 1, "extras": {"exit_code": 0}},
        {"observation": "error", "content": "A", "cause": 0, "extras": {}},
    )
    seen = [step.observation for step in one_of(path).steps]
    assert [(one.shown, one.ok) if one else None for one in seen] == [("A", False), ("B", True)]


def test_the_system_prompt_and_the_tools_of_version_0_are_kept(tmp_path: Path) -> None:
    tool = {"type": "function", "function": {"name": "run", "description": "Runs.", "parameters": {"type": "object"}}}
    system = {"content": "You are.", "tools": [tool], "openhands_version": "0.48.0"}
    trajectory = one_of(v0(tmp_path, old("system", args=system), old("message", args={"content": "Hi."})))
    assert [one.name for one in trajectory.tools] == ["run"]
    assert trajectory.steps[0].prompt[0].content == "You are."
    assert trajectory.policy.spec == "openhands 0.48.0"


def test_rows_of_an_evaluation_tell_the_patch_and_where_it_is_from(tmp_path: Path) -> None:
    row = {
        "instance_id": "a__b-1",
        "instance": {"repo": "a/b", "base_commit": "c" * 40},
        "test_result": {"git_patch": "diff --git a/x b/x\n", "resolved": True},
        "history": [[old("message", args={"content": "x"}), {"observation": "null", "content": ""}]],
        "metrics": {"accumulated_cost": 1},
    }
    trajectory = one_of(write_lines(tmp_path / "output.jsonl", [row]))
    assert (trajectory.task_id, trajectory.final_patch) == ("a__b-1", "diff --git a/x b/x\n")
    assert trajectory.origin is not None
    assert (trajectory.origin.repo, trajectory.origin.base_commit) == ("a/b", "c" * 40)
    assert trajectory.origin.left_out == {"metrics": 1, "test_result_resolved": 1, "observation_null": 1}


def test_events_of_the_oldest_rows_have_neither_names_nor_causes(tmp_path: Path) -> None:
    history = [
        {"action": "message", "content": "Fix it.", "wait_for_response": None},
        {"action": "run", "command": "ls", "thought": "I look.", "is_confirmed": "confirmed"},
        {"observation": "run", "content": "a.py", "command": "ls", "exit_code": 0},
        {"action": "message", "content": "What now?", "wait_for_response": True},
        {"action": "message", "content": "Go on."},
        {"action": "finish", "outputs": {}, "thought": "Done."},
    ]
    row = {"issue": {"owner": "a", "repo": "b", "number": 7}, "git_patch": "x", "history": history}
    trajectory = one_of(write_lines(tmp_path / "output.jsonl", [row]))
    assert (trajectory.id, trajectory.task_id, trajectory.stop) == ("a_b-7", "a/b#7", StopReason.SUBMITTED)
    assert told(trajectory) == [
        ("asked", "Fix it."),
        ("answered", "I look.", None),
        ("did", "run", {"command": "ls"}, "a.py"),
        ("asked", "a.py"),
        ("answered", "What now?", None),
        ("asked", "Go on."),
        ("answered", "Done.", None),
        ("did", "finish", {"outputs": {}}, None),
    ]


def test_a_folder_with_a_file_that_is_no_event_says_so(tmp_path: Path) -> None:
    path = folder(tmp_path / "c", list(openhands_v1_events(TURNS)))
    (path / "events" / "event-x.json").write_text("{}")
    (path / "events" / "event-00099-00000000.json").write_text(json.dumps([1]))
    (_,), (done,) = imported(path)
    assert done.broken == {"file_that_is_no_event": 1, "event_that_is_no_object": 1}


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_of_events_may_stand_in_an_object(tmp_path: Path, indent: int | None) -> None:
    events = json.loads(v0(tmp_path, old("run", args={"command": "a", "thought": "x"})).read_text())
    path = tmp_path / "trajectory.json"
    path.write_text(json.dumps({"trajectory": events}, indent=indent))
    (trajectory,), (done,) = imported(path)
    assert (done.format, done.broken, len(trajectory.steps)) == ("openhands", {}, 1)
