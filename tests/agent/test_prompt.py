"""How an assistant's message becomes an action."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.agent.prompt import opening, read_action
from patchgym.policy import ProtocolError
from patchgym.records import Environment, Limits, Message, Service, TaskView, ToolCall

ARGUMENTS = st.dictionaries(st.text(), st.text() | st.integers() | st.lists(st.text()))


def said(content: str, *calls: ToolCall) -> Message:
    return Message(role="assistant", content=content, tool_calls=calls)


@given(ARGUMENTS)
def test_a_native_call_gives_its_name_and_arguments(arguments: dict[str, object]) -> None:
    call = ToolCall(id="1", name="edit_file", arguments=json.dumps(arguments))
    action = read_action(said("I do it.", call), native=True)
    assert (action.tool, action.arguments) == ("edit_file", arguments)


AROUND = [
    "{}",
    "```json\n{}\n```",
    "I run them.\n```\n{}\n```\n",
    "<tool_call>\n{}\n</tool_call>",
    '<tools>{"type": "function", "function": {"name": "run_tests"}}</tools> {{}',
]


@given(ARGUMENTS, st.sampled_from(AROUND))
def test_a_call_that_the_server_left_in_the_text_is_read(arguments: dict[str, object], around: str) -> None:
    written = json.dumps({"name": "run_tests", "arguments": arguments})
    action = read_action(said(around.replace("{}", written, 1)), native=True)
    assert (action.tool, action.arguments) == ("run_tests", arguments)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 5_000, '{"name": "submit", "arguments": ' * 5_000])
def test_text_without_end_is_no_call_and_no_crash(deep: str) -> None:
    with pytest.raises(ProtocolError):
        read_action(said(deep), native=True)
    with pytest.raises(ProtocolError, match="not JSON"):
        read_action(said("", ToolCall(id="1", name="submit", arguments=deep)), native=True)


@pytest.mark.parametrize("content", ["", "I am done.", '{"name": "submit"}', "```json\n{]\n```", "[1]", '"submit"'])
def test_a_native_model_is_told_to_call_a_tool(content: str) -> None:
    with pytest.raises(ProtocolError, match="call one of the tools"):
        read_action(said(content), native=True)


def test_a_text_model_is_told_of_the_text_protocol() -> None:
    with pytest.raises(ProtocolError, match="tool: NAME"):
        read_action(said('{"name": "submit", "arguments": {}}'), native=False)


def test_the_agent_is_told_of_the_services_that_run_for_it() -> None:
    redis = Service(
        name="redis", command=("serve",), health=("ask",), variables={"REDIS_URL": "redis://127.0.0.1:6379"}
    )
    silent = Service(name="files", command=("serve",), health=("ask",))
    view = TaskView(
        id="t",
        instruction="It fails.",
        workspace="",
        environment=Environment(services=(redis, silent)),
        failing_tests=(),
        test_files=(),
        test_timeout_s=1,
        limits=Limits(),
    )
    _, told = opening(view, native=True)
    assert told.content.splitlines() == [
        "It fails.",
        "redis is running for you and the tests: REDIS_URL=redis://127.0.0.1:6379.",
        "files is running for you and the tests.",
    ]
