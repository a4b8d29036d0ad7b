"""Every action can be written and read back; what cannot be read says why."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.policy import ProtocolError, parse_action, render_action
from patchgym.records import Action

KEYS = st.text("abcdefghijklmnopqrstuvwxyz_", min_size=1, max_size=8).filter(lambda key: key != "tool")
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.sampled_from(["<<<", ">>>", ">>>>", "tool: submit", "path: x", "", "  x = 1"])).map("\n".join),
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_a_rendered_action_reads_back_the_same(arguments: dict[str, str]) -> None:
    action = Action(tool="edit_file", arguments=dict(arguments))
    assert parse_action(render_action(action)) == action


def test_text_before_the_action_is_thought() -> None:
    assert parse_action("I will look.\npath: this is prose\ntool: read_file\npath: a.py\n") == Action(
        tool="read_file", arguments={"path": "a.py"}
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "No action"),
        ("Let me think about tool: read_file", "No action"),
        ("tool: submit\ntool: submit", "Two actions"),
        ("tool: edit_file\nold:\n<<<\nx", "never closed"),
        ("tool: edit_file\nold:\n<<<<\nx\n>>>", "never closed"),
        ("tool: read_file\npath: a\npath: b", "given twice"),
        ("tool: read_file\nthe file a.py", "Not an argument"),
    ],
)
def test_what_cannot_be_read_says_why(text: str, said: str) -> None:
    with pytest.raises(ProtocolError, match=said):
        parse_action(text)


@given(st.text())
def test_any_text_is_an_action_or_a_protocol_error(text: str) -> None:
    try:
        outcome: object = parse_action(text).tool
    except ProtocolError as error:
        outcome = error.what
    assert outcome
