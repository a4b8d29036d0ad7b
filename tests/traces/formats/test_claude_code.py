"""Sessions of Claude Code: what this format alone has."""

import base64
from pathlib import Path
from typing import Any

import pytest

from patchgym.records import SpawnedBy, StopReason
from patchgym.store import RunDirectory
from patchgym.traces.importing import import_logs
from tests.records_for_tests import make_manifest
from tests.traces.imports_for_tests import imported, one_of, told, write_lines

PNG = b"\x89PNG not really"


def line(name: str, parent: str | None, kind: str, content: object, **more: object) -> dict[str, Any]:
    """A line of the main conversation, or where ``more`` says so of another."""
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": more.pop("id", name), "model": more.pop("model", "m")}
    return {"type": kind, "uuid": name, "parentUuid": parent, "sessionId": "s", "message": message, **more}


def use(call_id: str, tool: str = "Bash", **arguments: object) -> dict[str, Any]:
    """A part that asks for a tool."""
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def result(call_id: str, content: object, **more: object) -> dict[str, Any]:
    """A part that says what came of it."""
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def session(tmp_path: Path, *lines: object) -> Path:
    """A session's file."""
    return write_lines(tmp_path / "s.jsonl", lines)


def outcome(tmp_path: Path, content: object, detail: object = None, **more: object) -> Any:
    """What is made of a result."""
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", [use("c1", command="x")]),
        line("3", "2", "user", [result("c1", content, **more)], toolUseResult=detail),
    )
    return one_of(path).steps[0].observation


def test_a_message_that_follows_an_earlier_answer_begins_a_branch_there(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "First."),
        line("2", "1", "assistant", "One."),
        line("3", "2", "user", "Second."),
        line("4", "3", "assistant", "Two."),
        line("5", "2", "user", "Second, otherwise."),
        line("6", "5", "assistant", "Two, otherwise."),
    )
    steps = one_of(path).steps
    assert [step.parent for step in steps] == [None, 0, 0]
    assert [one.content for one in steps[2].prompt] == ["Second, otherwise."]


def test_an_answer_that_was_asked_for_again_has_the_same_prompt(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "First."),
        line("2", "1", "assistant", "One."),
        line("3", "1", "assistant", "One, again."),
    )
    steps = one_of(path).steps
    assert [step.parent for step in steps] == [None, None]
    assert steps[0].prompt == steps[1].prompt


def test_a_second_beginning_is_a_second_root(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "First."),
        line("2", "1", "assistant", "One."),
        line("3", None, "user", "First, otherwise."),
        line("4", "3", "assistant", "One, otherwise."),
    )
    assert [step.parent for step in one_of(path).steps] == [None, None]


def test_lines_without_any_links_are_one_conversation(tmp_path: Path) -> None:
    lines = [line(str(at), None, ("user", "assistant")[at % 2], "x") for at in range(6)]
    assert [step.parent for step in one_of(session(tmp_path, *lines)).steps] == [None, 0, 1]


def test_a_link_to_a_line_that_is_not_there_is_counted(tmp_path: Path) -> None:
    trajectory = one_of(session(tmp_path, line("1", "gone", "user", "First."), line("2", "1", "assistant", "One.")))
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"links_to_lines_that_are_not_there": 1}


def test_what_came_of_a_call_may_stand_between_the_parts_of_its_answer(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", [use("c1")], id="msg"),
        line("3", "2", "user", [result("c1", "one")]),
        line("4", "2", "assistant", [use("c2")], id="msg"),
        line("5", "4", "user", [result("c2", "two")]),
        line("6", "5", "assistant", "Done."),
    )
    steps = one_of(path).steps
    assert [(step.continues, step.observation.shown if step.observation else None) for step in steps] == [
        (False, "one"),
        (True, "two"),
        (False, None),
    ]
    assert [one.content for one in steps[2].prompt] == ["one", "two"]


def test_sub_agents_of_a_folder_are_trajectories_that_name_the_step_they_work_for(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", [use("c1", "Read"), use("c2", "Task", prompt="Look.")]),
        line("3", "2", "user", [result("c1", "x")]),
        line("4", "2", "user", [result("c2", "Found.")], toolUseResult={"agentId": "a1"}),
    )
    aside = {"isSidechain": True, "agentId": "a1"}
    write_lines(
        tmp_path / "s" / "subagents" / "agent-a1.jsonl",
        [line("5", None, "user", "Look.", **aside), line("6", "5", "assistant", "Found.", **aside)],
    )
    trajectories, done = imported(tmp_path)
    assert [one.id for one in trajectories] == ["s", "s.agent-a1"]
    assert trajectories[1].spawned_by == SpawnedBy(trajectory="s", step=1)
    assert [one.path for one in done] == [path]


def test_sub_agents_in_the_same_file_are_told_by_what_they_were_asked(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", [use("c1", "Task", prompt="Look."), use("c2", "Task", prompt="Listen.")]),
        line("3", None, "user", "Listen.", isSidechain=True),
        line("4", "3", "assistant", "Heard.", isSidechain=True),
        line("5", None, "user", "Look.", isSidechain=True),
        line("6", "5", "assistant", "Seen.", isSidechain=True),
        line("7", "2", "user", [result("c1", "Seen."), result("c2", "Heard.")]),
    )
    (main, *subs), _ = imported(path)
    assert len(main.steps) == 2
    assert [(one.steps[0].message.content, one.spawned_by) for one in subs] == [
        ("Heard.", SpawnedBy(trajectory="s", step=1)),
        ("Seen.", SpawnedBy(trajectory="s", step=0)),
    ]


def test_a_sub_agent_whose_session_is_not_at_hand_names_it_all_the_same(tmp_path: Path) -> None:
    aside = {"isSidechain": True, "agentId": "a1"}
    lines = [line("5", None, "user", "Look.", **aside), line("6", "5", "assistant", "Found.", **aside)]
    trajectory = one_of(write_lines(tmp_path / "agent-a1.jsonl", lines))
    assert trajectory.spawned_by == SpawnedBy(trajectory="s", step=None)


def test_after_a_compaction_the_summary_takes_the_place_of_the_conversation(tmp_path: Path) -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "3", "parentUuid": None, "sessionId": "s"}
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", "One."),
        {**boundary, "logicalParentUuid": "2"},
        line("4", "3", "user", "So far: one.", isCompactSummary=True),
        line("5", "4", "assistant", "Two."),
    )
    steps = one_of(path).steps
    assert [(step.parent, step.compacted) for step in steps] == [(None, False), (0, True)]
    assert [one.content for one in steps[1].prompt] == ["So far: one."]


def test_the_exit_code_of_a_command_that_failed_stands_in_its_text(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "Exit code 2\nno such file", "Error: Exit code 2", is_error=True)
    assert (seen.exit_code, seen.ok, seen.timed_out) == (2, True, False)


def test_no_exit_code_is_made_up_for_a_command_that_did_not_fail(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "Exit code 2 is bad", {"stdout": "a", "stderr": "b", "interrupted": False}, is_error=False)
    assert (seen.exit_code, seen.ok, seen.ending) == (None, True, "none")
    assert (seen.stdout.text, seen.stderr.text) == ("a", "b")


def test_whether_it_worked_is_none_where_nothing_says_so(tmp_path: Path) -> None:
    assert outcome(tmp_path, "text", [{"type": "text", "text": "text"}]).ok is None


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        ("The user doesn't want to proceed with this tool use.", "User rejected tool use"),
        ("[Request interrupted by user for tool use]", None),
        ("half", {"stdout": "half", "stderr": "", "interrupted": True}),
    ],
)
def test_a_call_that_a_person_stopped_is_interrupted(tmp_path: Path, content: str, detail: object) -> None:
    assert outcome(tmp_path, content, detail, is_error=True).ending == "interrupted"


def test_a_command_whose_time_ran_out_is_marked(tmp_path: Path) -> None:
    seen = outcome(tmp_path, "Exit code 143\nCommand timed out after 2m 0.0s", None, is_error=True)
    assert (seen.exit_code, seen.timed_out) == (143, True)


def test_what_no_model_said_is_no_answer(tmp_path: Path) -> None:
    path = session(
        tmp_path,
        line("1", None, "user", "Go."),
        line("2", "1", "assistant", "API Error: 529", model="<synthetic>", isApiErrorMessage=True),
        line("3", "2", "user", "Again."),
        line("4", "3", "assistant", "One."),
    )
    trajectory = one_of(path)
    assert told(trajectory) == [("asked", "Go."), ("asked", "Again."), ("answered", "One.", None)]
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"answers_that_no_model_gave": 1}


def test_bytes_of_images_and_documents_are_kept_as_objects(tmp_path: Path) -> None:
    data = base64.b64encode(PNG).decode()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    pdf = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    path = session(
        tmp_path,
        line("1", None, "user", [{"type": "text", "text": "Look."}, image, pdf]),
        line("2", "1", "assistant", [use("c1")]),
        line("3", "2", "user", [result("c1", [image])]),
        line("4", "3", "assistant", "Seen."),
    )
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    import_logs([path], "auto", run)
    (trajectory,) = run.trajectories
    kept = [one for step in trajectory.steps for message in step.prompt for one in message.attachments]
    assert [one.media_type for one in kept] == ["image/png", "application/pdf", "image/png"]
    assert all(one.blob is not None and run.objects.get(one.blob) == PNG for one in kept)
    run.close()


def test_an_image_that_is_no_base64_is_counted(tmp_path: Path) -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "a"}}
    path = session(tmp_path, line("1", None, "user", [image]), line("2", "1", "assistant", "x"))
    (trajectory,), (done,) = imported(path)
    assert done.broken == {"broken_base64": 1}
    assert trajectory.steps[0].prompt[0].attachments[0].blob is None


def test_two_sessions_in_one_file_are_two_trajectories(tmp_path: Path) -> None:
    other = {**line("3", None, "user", "Hello."), "sessionId": "t"}
    answer = {**line("4", "3", "assistant", "Hi."), "sessionId": "t"}
    path = session(tmp_path, line("1", None, "user", "Go."), line("2", "1", "assistant", "One."), other, answer)
    assert [one.id for one in imported(path)[0]] == ["s", "t"]


def test_what_the_command_line_prints_as_stream_json_is_read(tmp_path: Path) -> None:
    def printed(kind: str, content: object, parent: str | None = None) -> dict[str, object]:
        message = {"role": kind, "id": str(content), "model": "m", "content": content}
        return {"type": kind, "message": message, "session_id": "s", "parent_tool_use_id": parent}

    path = session(
        tmp_path,
        {"type": "system", "subtype": "init", "session_id": "s", "model": "m", "claude_code_version": "2.1"},
        printed("assistant", [use("c1", "Task", prompt="Look.")]),
        printed("user", [{"type": "text", "text": "Look."}], "c1"),
        printed("assistant", [{"type": "text", "text": "Seen."}], "c1"),
        printed("user", [result("c1", "Seen.")]),
        {"type": "result", "subtype": "error_max_turns", "session_id": "s", "num_turns": 3},
    )
    (main, sub), _ = imported(path)
    assert (main.stop, main.policy.spec, len(main.steps)) == (StopReason.TURN_LIMIT, "claude-code 2.1", 1)
    assert sub.spawned_by == SpawnedBy(trajectory="s", step=0)


def test_an_output_that_was_kept_elsewhere_is_cut_and_says_its_size(tmp_path: Path) -> None:
    detail = {"stdout": "begin", "stderr": "", "interrupted": False, "persistedOutputSize": 90_000}
    seen = outcome(tmp_path, "begin", detail, is_error=False)
    assert (seen.stdout.text, seen.stdout.size, seen.stdout.cut) == ("begin", 90_000, True)


def test_an_image_that_a_command_printed_is_no_text(tmp_path: Path) -> None:
    detail = {"stdout": "data:image/png;base64,AAAA", "stderr": "", "interrupted": False, "isImage": True}
    assert outcome(tmp_path, "", detail, is_error=False).stdout is None


def test_lines_that_a_resumed_session_tells_again_count_once(tmp_path: Path) -> None:
    lines = [line("1", None, "user", "Go."), line("2", "1", "assistant", [use("c1")]), line("3", "2", "user", "Now.")]
    trajectory = one_of(session(tmp_path, *lines, *lines, line("4", "3", "assistant", "Yes.")))
    assert told(trajectory) == [
        ("asked", "Go."),
        ("answered", "", None),
        ("did", "Bash", {}, None),
        ("asked", "Now."),
        ("answered", "Yes.", None),
    ]
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"lines_told_again": 3}
