"""Events become steps."""

import pytest

from patchgym.records import Fault, Message, Observation, StepTokens, ToolCall, Trajectory, Usage
from patchgym.traces.draft import Draft, Mark, action_of


def draft() -> Draft:
    """An empty one."""
    return Draft(id="d", format="f", file="f.json")


def asked(text: str) -> Message:
    """A user's message."""
    return Message(role="user", content=text)


def said(text: str, *calls: str) -> Message:
    """A model's, with calls of these ids."""
    return Message(
        role="assistant", content=text, tool_calls=tuple(ToolCall(id=one, name="x", arguments="{}") for one in calls)
    )


def prompts(trajectory: Trajectory) -> list[list[str]]:
    """What was given before each step."""
    return [[one.content for one in step.prompt] for step in trajectory.steps]


def test_each_call_of_an_answer_is_a_step_and_the_message_stands_once() -> None:
    one = draft()
    one.given(asked("Go."))
    one.answered(said("I look.", "a", "b"), usage=Usage(prompt_tokens=1, sampled_tokens=2))
    first, second = one.finished().steps
    assert (first.continues, second.continues, second.parent) == (False, True, 0)
    assert (first.message.content, second.message.content) == ("I look.", "")
    assert (first.usage is None, second.usage is None) == (False, True)


def test_an_answer_told_in_pieces_is_one_answer() -> None:
    one = draft()
    one.answered(said("I"))
    assert one.extend_answer(said("look.", "a"))
    assert one.extend_answer(said("", "b"))
    first, second = one.finished().steps
    assert first.message.content == "I\nlook."
    assert [call.id for call in first.message.tool_calls] == ["a", "b"]
    assert first.action is not None
    assert second.continues


def test_what_was_given_meanwhile_ends_an_answer_unless_that_is_allowed() -> None:
    one = draft()
    one.answered(said("I look.", "a"))
    one.observed(Observation(shown="x"), "a")
    assert not one.extend_answer(said("", "b"))
    assert one.extend_answer(said("", "b"), meanwhile=True)
    assert one.finished().steps[1].continues


def test_there_is_nothing_to_extend_where_nothing_was_answered() -> None:
    assert not draft().extend_answer(said("x"))


def test_a_result_goes_to_the_call_of_its_id_in_whatever_order() -> None:
    one = draft()
    one.answered(said("", "a", "b"))
    assert one.observed(Observation(shown="B"), "b")
    assert one.observed(Observation(shown="A"), "a")
    assert [step.observation.shown if step.observation else None for step in one.finished().steps] == ["A", "B"]


def test_a_result_of_no_call_that_waits_is_refused() -> None:
    one = draft()
    assert not one.observed(Observation(shown="x"), "a")
    one.answered(said("", "a"))
    assert one.observed(Observation(shown="x"), "a")
    assert not one.observed(Observation(shown="x"), "a")


def test_a_call_whose_arguments_cannot_be_read_has_its_result_all_the_same() -> None:
    one = draft()
    one.answered(Message(role="assistant", content="", tool_calls=(ToolCall(id="a", name="x", arguments="{"),)))
    assert one.observed(Observation(shown="Bad arguments."), "a")
    (step,) = one.finished().steps
    assert (step.action, step.parse_error) == (None, "The arguments of x are not JSON.")
    assert step.observation is not None


@pytest.mark.parametrize("arguments", ["{", "[]", "3", '{"a": ' + "[" * 200 + "]" * 200 + "}", "NaN"])
def test_arguments_that_are_no_object_are_no_action(arguments: str) -> None:
    action, why = action_of(ToolCall(id="a", name="x", arguments=arguments))
    assert action is None
    assert why is not None


def test_going_back_to_a_mark_gives_what_was_given_there() -> None:
    one = draft()
    one.given(asked("a"))
    before = one.mark()
    one.answered(said("b"))
    one.given(asked("c"))
    one.back_to(before)
    one.answered(said("b, otherwise"))
    trajectory = one.finished()
    assert prompts(trajectory) == [["a"], ["a"]]
    assert [step.parent for step in trajectory.steps] == [None, None]
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"messages_of_a_branch_without_an_answer": 1}


def test_an_answer_is_not_extended_across_a_branch() -> None:
    one = draft()
    one.answered(said("a"))
    one.back_to(Mark(None, (), False))
    assert not one.extend_answer(said("b"))


def test_a_compaction_clears_what_was_given_before() -> None:
    one = draft()
    one.given(asked("a"))
    one.answered(said("b"))
    one.given(asked("c"))
    one.compacted()
    one.given(asked("So far."))
    one.answered(said("d"))
    trajectory = one.finished()
    assert prompts(trajectory) == [["a"], ["So far."]]
    assert [step.compacted for step in trajectory.steps] == [False, True]
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"messages_before_a_compaction": 1}


def test_only_messages_that_nothing_holds_are_left_out_at_the_end() -> None:
    one = draft()
    one.answered(said("x"), [])
    one.observed(Observation(shown="seen"))
    one.given(asked("unanswered"))
    trajectory = one.finished()
    assert trajectory.origin is not None
    assert trajectory.origin.left_out == {"messages_after_the_last_answer": 1}


def test_facts_that_are_told_late_join_their_observation() -> None:
    one = draft()
    one.answered(said("", "a"))
    assert not one.more_of_observation("a", exit_code=3)
    one.observed(Observation(shown="x"), "a")
    assert one.more_of_observation("a", exit_code=3)
    seen = one.finished().steps[0].observation
    assert seen is not None
    assert (seen.shown, seen.exit_code) == ("x", 3)


def test_calls_that_a_person_stopped_are_interrupted_and_others_are_not() -> None:
    one = draft()
    one.answered(said("", "a", "b"))
    one.observed(Observation(shown="x"), "a")
    one.interrupted(["a", "b", "unknown"])
    assert [step.observation.ending if step.observation else None for step in one.finished().steps] == [
        "none",
        "interrupted",
    ]


def test_token_ids_join_the_last_answer_once() -> None:
    one, tokens = draft(), StepTokens(prompt_ids=(1,), sampled_ids=(2,), logprobs=None, mask=(1,))
    assert not one.tokens_of_answer(tokens)
    one.answered(said("a", "1", "2"))
    assert one.tokens_of_answer(tokens)
    assert not one.tokens_of_answer(tokens)
    assert [step.tokens for step in one.finished().steps] == [tokens, None]


def test_a_fault_ends_a_trajectory_as_infrastructure() -> None:
    trajectory = draft().finished(fault=Fault(kind="Timeout", where="policy", message=""))
    assert (trajectory.status, len(trajectory.faults)) == ("infra_error", 1)


def test_a_draft_is_full_beyond_64_mib_of_text() -> None:
    one = draft()
    one.given(asked("x" * (1 << 26)))
    assert not one.full
    one.answered(said("x"))
    assert one.full
