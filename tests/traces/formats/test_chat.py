"""Rows of chat messages, in the dialects of those who publish them."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import StopReason, Trajectory, Verdict
from patchgym.traces.formats import chat
from patchgym.traces.formats.textcalls import exit_code_in, fenced_command, xml_calls
from patchgym.traces.glance import Glance
from patchgym.traces.intake import Intake
from patchgym.traces.writers import Known
from patchgym.traces.writers import chat as writer
from tests.shared_data import shared_data
from tests.traces.trajectories_for_tests import JSON, TEXT

CALL: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command": "ls"}'}}


def read(row: dict[str, Any]) -> Trajectory:
    """The trajectory of a row."""
    found = chat.trajectory_of(row, "name", "f.jsonl", Glance())
    assert found is not None
    return found


def from_file(tmp_path: Path, data: bytes) -> tuple[list[Trajectory], Intake]:
    """What a file holds."""
    path = tmp_path / "rows.jsonl"
    path.write_bytes(data)
    intake = Intake(ObjectStore(tmp_path / "objects"))
    return list(chat.read(path, intake)), intake


def asked_and_told(row: dict[str, Any]) -> list[tuple[str | None, dict[str, JsonValue], str | None]]:
    """Tool, arguments and outcome of every step."""
    return [
        (
            step.action.tool if step.action else None,
            step.action.arguments if step.action else {},
            step.observation.shown if step.observation else None,
        )
        for step in read(row).steps
    ]


def native(**more: Any) -> list[dict[str, Any]]:
    """A conversation with one native call."""
    return [
        {"role": "system", "content": "You mend."},
        {"role": "user", "content": "It fails."},
        {"role": "assistant", "content": "I look.", "tool_calls": [CALL], **more},
        {"role": "tool", "tool_call_id": "c1", "content": "a.py", "name": "bash"},
        {"role": "assistant", "content": "Done."},
    ]


LS = ("bash", {"command": "ls"}, "a.py")


def test_openhands_rows_of_nebius_have_native_calls() -> None:
    row = {
        "trajectory_id": "t-1",
        "instance_id": "owner__repo-1",
        "repo": "owner/repo",
        "trajectory": native(),
        "tools": [
            {"type": "function", "function": {"name": "bash", "description": "d", "parameters": {"type": "object"}}}
        ],
        "model_patch": "diff",
        "exit_status": "submit",
        "resolved": 1,
        "gen_tests_correct": 3,
    }
    found = read(row)
    assert asked_and_told(row) == [LS, (None, {}, None)]
    assert (found.id, found.task_id, found.final_patch, found.stop) == (
        "t-1",
        "owner__repo-1",
        "diff",
        StopReason.SUBMITTED,
    )
    assert found.report is not None
    assert (found.report.verdict, found.report.seconds, found.report.tests) == (Verdict.RESOLVED, None, {})
    assert [tool.name for tool in found.tools] == ["bash"]
    assert found.origin is not None
    assert (found.origin.repo, found.origin.left_out) == ("owner/repo", {"gen_tests_correct": 1})


def test_swe_agent_rows_of_nebius_say_ai_and_text() -> None:
    row = {
        "instance_id": "i",
        "model_name": "m",
        "target": False,
        "trajectory": [
            {"role": "system", "text": None, "system_prompt": "You mend.", "mask": False, "cutoff_date": "x"},
            {"role": "user", "text": "It fails.", "system_prompt": None, "mask": False, "cutoff_date": None},
            {"role": "ai", "text": "DISCUSSION\nI look.\n```\nls -a\n```\n", "system_prompt": None, "mask": True},
            {"role": "user", "text": "a.py\n(Open file: n/a)\nbash-$", "system_prompt": None, "mask": False},
            {"role": "ai", "text": "Done.", "system_prompt": None},
        ],
        "exit_status": "exit_context",
        "generated_patch": "diff",
        "eval_logs": "log",
    }
    found = read(row)
    first = found.steps[0]
    assert [message.content for message in first.prompt] == ["You mend.", "It fails."]
    assert first.action is not None
    assert first.action.arguments == {"command": "ls -a"}
    assert first.observation is not None
    assert first.observation.shown.startswith("a.py")
    assert (found.stop, found.policy.version, found.report and found.report.verdict) == (
        StopReason.CONTEXT_LIMIT,
        "m",
        Verdict.UNRESOLVED,
    )


def test_swe_smith_rows_hold_messages_as_json_text() -> None:
    row = {"messages": json.dumps(native()), "instance_id": "i", "resolved": True, "traj_id": "t", "patch": "diff"}
    found = read(row)
    assert asked_and_told(row)[0] == LS
    assert (found.id, found.final_patch) == ("t", "diff")


def test_calls_written_as_xml_are_actions_and_the_next_message_their_outcome() -> None:
    text = (
        "First.\n<function=str_replace_editor>\n<parameter=command>view</parameter>\n"
        "<parameter=file_text>\nline\n\n</parameter>\n</function>"
    )
    row = {
        "messages": [
            {"role": "user", "content": "It fails."},
            {"role": "assistant", "content": text},
            {"role": "user", "content": "OBSERVATION:\nout"},
        ]
    }
    assert asked_and_told(row) == [
        ("str_replace_editor", {"command": "view", "file_text": "line\n"}, "OBSERVATION:\nout")
    ]


def test_swe_gym_rows_have_every_key_on_every_message() -> None:
    keys = dict.fromkeys(("content", "role", "name", "tool_calls", "tool_call_id", "function_call"))
    row = {
        "messages": [{**keys, **message} for message in native()],
        "instance_id": "i",
        "run_id": "r",
        "resolved": None,
    }
    assert asked_and_told(row) == [LS, (None, {}, None)]
    assert read(row).report is None


def test_mini_swe_rows_tell_the_exit_code_in_words() -> None:
    row = {
        "messages": [
            {"role": "assistant", "content": "THOUGHT: x\n\n```bash\nls\n```"},
            {"role": "user", "content": "<returncode>2</returncode>\n<output>\n</output>"},
        ]
    }
    (step,) = read(row).steps
    assert step.action is not None
    assert step.observation is not None
    assert (step.action.arguments, step.observation.exit_code) == ({"command": "ls"}, 2)


def test_a_fenced_block_that_nothing_answers_is_no_action() -> None:
    row = {"messages": [{"role": "assistant", "content": "```\nls\n```"}, {"role": "user", "content": "Thanks."}]}
    assert read(row).steps[0].action is None


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [{"from": "human", "value": "It fails."}, {"from": "gpt", "value": "Done."}]},
        {
            "prompt": [{"role": "user", "content": "It fails."}],
            "completion": [{"role": "assistant", "content": "Done."}],
        },
        {
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "It fails."}]},
                {"role": "model", "text": "Done."},
            ]
        },
    ],
)
def test_other_dialects_are_read(row: dict[str, Any]) -> None:
    (step,) = read(row).steps
    assert ([message.content for message in step.prompt], step.message.content) == (["It fails."], "Done.")


def test_responses_items_are_messages() -> None:
    output = [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command": "ls"}'},
        {"type": "function_call", "call_id": "c2", "name": "bash", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c2", "output": "two"},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
        {"type": "web_search_call"},
    ]
    row = {
        "responses_create_params": {"input": "It fails.", "metadata": {"instance_id": "i"}},
        "response": {"output": output, "model": "m"},
        "reward": 0.5,
    }
    found = read(row)
    assert asked_and_told(row) == [LS, ("bash", {}, "two")]
    assert [step.continues for step in found.steps] == [False, True]
    assert (found.steps[0].message.reasoning, found.task_id, found.policy.version) == ("Hm.", "i", "m")
    assert found.reward is not None
    assert found.reward.value == 0.5
    assert found.origin is not None
    assert found.origin.left_out == {"role_web_search_call": 1}


def test_calls_without_ids_are_matched_in_their_order() -> None:
    calls = [{"function": {"name": name, "arguments": {"n": name}}} for name in ("a", "b")]
    row = {
        "messages": [
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "content": "of a"},
            {"role": "tool", "content": "of b"},
        ]
    }
    assert asked_and_told(row) == [("a", {"n": "a"}, "of a"), ("b", {"n": "b"}, "of b")]


def test_arguments_that_are_no_json_are_kept_and_named() -> None:
    broken = {"id": "c", "function": {"name": "bash", "arguments": '{"command": "ls'}}
    (step,) = read({"messages": [{"role": "assistant", "content": "", "tool_calls": [broken]}]}).steps
    assert step.action is None
    assert step.parse_error == "The arguments of bash are not JSON."
    assert step.message.tool_calls[0].arguments == '{"command": "ls'


def test_pictures_are_kept(tmp_path: Path) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    row = {"messages": [{"role": "user", "content": [picture]}, {"role": "assistant", "content": "I see."}]}
    (found,), intake = from_file(tmp_path, json.dumps(row).encode())
    (attachment,) = found.steps[0].prompt[0].attachments
    assert (attachment.media_type, attachment.size) == ("image/png", 2)
    assert attachment.blob is not None
    assert intake.objects.get(attachment.blob) == b"hi"


MESSAGES = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "role": st.sampled_from(["system", "user", "assistant", "tool", "ai", "x"]) | JSON,
            "content": JSON,
            "tool_calls": st.lists(st.just(CALL) | JSON, max_size=2) | JSON,
            "tool_call_id": st.just("c1") | JSON,
            "reasoning": JSON,
            "usage": JSON,
            "timestamp": JSON,
        },
    )
    | JSON,
    max_size=4,
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(
    MESSAGES, st.dictionaries(st.sampled_from(["tools", "resolved", "reward", "exit_status", "model", "repo"]), JSON)
)
def test_rows_of_any_kind_break_nothing(messages: list[Any], more: dict[str, JsonValue]) -> None:
    found = chat.trajectory_of({"messages": messages, **more}, "n", "f", Glance())
    assert found is None or Trajectory.from_line(found.to_line()) == found


ANSWERS = st.fixed_dictionaries(
    {"content": TEXT.filter(lambda text: "```" not in text)},
    optional={"reasoning_content": TEXT.filter(bool), "tool_calls": st.just([CALL])},
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(TEXT, ANSWERS), min_size=1, max_size=3))
def test_chat_rows_come_back_the_same(turns: list[tuple[str, dict[str, Any]]]) -> None:
    messages: list[dict[str, Any]] = []
    for number, (given_text, answer) in enumerate(turns):
        call = {**CALL, "id": f"c{number}"}
        own = {"tool_calls": [call]} if "tool_calls" in answer else {}
        messages += [{"role": "user", "content": given_text}, {"role": "assistant", **answer, **own}]
        if own:
            messages.append({"role": "tool", "content": "out", "tool_call_id": call["id"]})
    (row,) = writer.rows(read({"messages": messages, "trajectory_id": "t"}), Known())
    assert row["messages"] == messages


@pytest.mark.parametrize(
    ("data", "count", "broken"),
    [
        (b"", 0, {}),
        (b"\xef\xbb\xbf" + json.dumps({"messages": native()}).encode() + b"\r\n\r\n", 1, {}),
        (b'{"messages": []}\n[]\n7\nnull\n', 0, {"no_messages": 1, "no_object": 3}),
        (b'{"messages": [{"role": "assistant", "content": "\xff"}]}', 1, {"not_utf8": 1}),
        (b'{"messages": [{"role": "assistant", "content": "\\ud83d"}]}', 1, {"half_characters": 1}),
        (b'{"messages": [{"role": "assistant", "content": "a"}], "reward": NaN}\n{"messages"', 1, {"no_json": 1}),
        (json.dumps({"messages": native()}, indent=1).encode(), 1, {}),
        (json.dumps([{"messages": native()}, {"messages": native()}, 7], indent=1).encode(), 2, {"no_object": 1}),
        (json.dumps(native()).encode(), 1, {}),
        (b'[{"messages": [' + b'{"role": "user"},' * 3, 0, {"no_json": 1}),
    ],
)
def test_bad_input_is_counted(tmp_path: Path, data: bytes, count: int, broken: dict[str, int]) -> None:
    found, intake = from_file(tmp_path, data)
    assert (len(found), dict(intake.broken)) == (count, broken)


def test_a_line_of_megabytes_is_read(tmp_path: Path) -> None:
    text = "<function=" * 200_000 + "```" * 100_000 + "<returncode>" * 100_000
    row = {"messages": [{"role": "assistant", "content": text}, {"role": "user", "content": text}]}
    (found,), _ = from_file(tmp_path, json.dumps(row).encode())
    assert found.steps[0].message.content == text


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("<returncode>0</returncode>", 0),
        ("out\n[Command finished with exit code 3]", 3),
        ("[The command completed with exit code -1.]\n", -1),
        ("<returncode>x</returncode>", None),
        ("[Command finished with exit code 3]" + "x" * 500, None),
        ("<returncode>" + "9" * 5000, None),
    ],
)
def test_an_exit_code_is_what_the_outcome_says(text: str, code: int | None) -> None:
    assert exit_code_in(text) == code


def test_what_is_not_closed_is_no_call() -> None:
    assert xml_calls("<function=a><parameter=b>c") == []
    assert [call.arguments for call in xml_calls("<function=a><parameter=b>c</function>")] == [{}]
    assert fenced_command("```", "<returncode>0</returncode>") is None


def test_real_rows_are_read(tmp_path: Path) -> None:
    folder = shared_data("agent-logs/openai_chat")
    found = {}
    for file in sorted(folder.iterdir()):
        intake = Intake(ObjectStore(tmp_path / "objects"))
        assert chat.recognises(file, file.read_bytes()[: 1 << 16])
        rows = list(chat.read(file, intake))
        acted = sum(step.action is not None for row in rows for step in row.steps)
        found[file.name] = (len(rows), sum(len(row.steps) for row in rows), acted, dict(intake.broken))
    assert found == {
        "mini-coder_sample_raw.json": (1, 8, 8, {}),
        "nemo_gym_anyswe_claude_code_rollouts.jsonl": (5, 21, 16, {}),
        "swesmith_ft_xml_example.jsonl": (2, 81, 81, {}),
    }
