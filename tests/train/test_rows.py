"""Rows are what was sampled, id for id; what is not fit to train is left out by name."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.records import Message, Sampling, Step, StepTokens, ToolCall, Trajectory
from patchgym.train import Reason, RowSet, demonstration_rows, imitation_rows, rows_from_trajectory
from tests.records_for_tests import make_report, make_step, make_trajectory

pytestmark = pytest.mark.train


def tokens(
    prompt: Sequence[int], sampled: Sequence[int], *, mask: Sequence[int] | None = None, restart: bool = False
) -> StepTokens:
    return StepTokens(
        prompt_ids=tuple(prompt),
        sampled_ids=tuple(sampled),
        logprobs=tuple(-0.5 - index for index in range(len(sampled))),
        mask=tuple(mask if mask is not None else [1] * len(sampled)),
        restart=restart,
    )


def trajectory(*steps: Step) -> Trajectory:
    return make_trajectory(steps=steps, report=make_report(), reward=0.0)


def path(*parts: StepTokens) -> Trajectory:
    return trajectory(*(make_step(index, tokens=part) for index, part in enumerate(parts)))


def test_a_row_is_the_concatenation_of_prompts_and_samples() -> None:
    (row,) = rows_from_trajectory(path(tokens([1, 2], [3, 4]), tokens([5], [6, 7], mask=[1, 0])), max_length=99).rows
    assert row.ids == (1, 2, 3, 4, 5, 6, 7)
    assert row.trainable == (0, 0, 1, 1, 0, 1, 0)
    assert list(row.logprobs) == [0, 0, -0.5, -1.5, 0, -0.5, -1.5]
    assert row.turns == (-1, -1, 0, 0, -1, 1, 1)
    assert row.trained == 3


def test_a_restart_begins_a_new_row() -> None:
    made = rows_from_trajectory(path(tokens([1], [2]), tokens([8, 9], [3], restart=True)), max_length=99)
    assert [row.ids for row in made.rows] == [(1, 2), (8, 9, 3)]


def test_a_restart_that_repeats_everything_before_it_goes_on_with_the_row() -> None:
    parts = tokens([1], [2]), tokens([1, 2, 3], [4], restart=True), tokens([1, 2, 3, 4], [5], restart=True)
    (row,) = rows_from_trajectory(path(*parts), max_length=99).rows
    assert (row.ids, row.trainable) == ((1, 2, 3, 4, 5), (0, 1, 0, 1, 1))
    assert row.turns == (-1, 0, -1, 1, 2)


ids = st.lists(st.integers(0, 99), max_size=5)
turn = st.tuples(ids, st.lists(st.tuples(st.integers(0, 99), st.integers(0, 1)), min_size=1, max_size=5), st.booleans())


@given(turns=st.lists(turn, min_size=1, max_size=6))
def test_any_path_splits_into_its_contexts(turns: list[tuple[list[int], list[tuple[int, int]], bool]]) -> None:
    parts = [
        tokens(prompt, [at for at, _ in pairs], mask=[bit for _, bit in pairs], restart=restart)
        for prompt, pairs, restart in turns
    ]
    made = rows_from_trajectory(path(*parts), max_length=10_000)
    contexts: list[list[tuple[int, int]]] = []
    for index, part in enumerate(parts):
        given = part.prompt_ids
        before = tuple(at for at, _ in contexts[-1]) if contexts else ()
        if part.restart and given[: len(before)] == before:
            given = given[len(before) :]
            contexts += [] if index else [[]]
        elif part.restart or not index:
            contexts.append([])
        contexts[-1] += [(at, 0) for at in given]
        contexts[-1] += zip(part.sampled_ids, part.mask, strict=True)
    wanted = [[(context[0][0], 0), *context[1:]] for context in contexts]  # the first id has no context
    trainable = [context for context in wanted if any(bit for _, bit in context)]
    assert [list(zip(row.ids, row.trainable, strict=True)) for row in made.rows] == trainable
    assert made.left_out.total() == len(wanted) - len(trainable)


def test_a_tree_trains_a_shared_step_once() -> None:
    root = make_step(0, tokens=tokens([1], [2]))
    left = make_step(1, tokens=tokens([3], [4]))
    right = make_step(2, tokens=tokens([5], [6])).model_copy(update={"parent": 0})
    made = rows_from_trajectory(trajectory(root, left, right), max_length=99)
    assert [(row.ids, row.trainable) for row in made.rows] == [
        ((1, 2, 3, 4), (0, 1, 0, 1)),
        ((1, 2, 5, 6), (0, 0, 0, 1)),
    ]


GOOD = tokens([1, 2], [3, 4])


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"logprobs": None}, Reason.NO_LOGPROBS),
        ({"logprobs": (-1.0,)}, Reason.LENGTH_MISMATCH),
        ({"logprobs": (-1.0, float("nan"))}, Reason.BAD_LOGPROBS),
        ({"logprobs": (-1.0, float("-inf"))}, Reason.BAD_LOGPROBS),
        ({"logprobs": (-1.0, 0.5)}, Reason.BAD_LOGPROBS),
        ({"mask": (1,)}, Reason.LENGTH_MISMATCH),
        ({"mask": (1, 2)}, Reason.BAD_MASK),
        ({"mask": (0, 0)}, Reason.NOTHING_TRAINABLE),
        ({"prompt_ids": tuple(range(20))}, Reason.TOO_LONG),
        ({"prompt_ids": (-1,)}, Reason.UNKNOWN_IDS),
        ({"sampled_ids": (1, 2**40)}, Reason.UNKNOWN_IDS),
    ],
)
def test_tokens_that_do_not_fit_are_left_out_by_name(changes: dict[str, object], reason: Reason) -> None:
    made = rows_from_trajectory(path(GOOD.model_copy(update=changes)), max_length=20)
    assert not made.rows
    assert made.left_out == {reason: 1}


def test_steps_that_do_not_fit_are_left_out_by_name() -> None:
    def reasons(*steps: Step) -> dict[Reason, int]:
        return dict(rows_from_trajectory(trajectory(*steps), max_length=20).left_out)

    first, second = make_step(0, tokens=GOOD), make_step(1, tokens=GOOD)
    assert reasons() == {Reason.NO_STEPS: 1}
    assert reasons(first, make_step(1)) == {Reason.NO_TOKENS: 1}
    assert reasons(first, second.model_copy(update={"parent": 7})) == {Reason.BROKEN_PATH: 1}
    for other in (Sampling(temperature=0), Sampling(temperature=0.7), Sampling(top_p=0.9)):
        assert reasons(first, second.model_copy(update={"sampling": other})) == {Reason.OTHER_DISTRIBUTION: 1}


def test_a_row_keeps_the_temperature_of_its_sampling() -> None:
    warm = make_step(0, tokens=GOOD).model_copy(update={"sampling": Sampling(temperature=0.7)})
    assert rows_from_trajectory(trajectory(warm), max_length=20).rows[0].temperature == 0.7


class Letters:
    """An encoder of one id a letter: ``^`` opens every message, ``$`` ends a turn."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        shown = (
            f"{message.content}$" if message.sampled_ids is None else "".join(map(chr, message.sampled_ids))
            for message in messages
        )
        return [ord(char) for char in "".join(f"^{text}" for text in shown) + "^"]

    def encode_answer(self, text: str) -> list[int]:
        return [ord(char) for char in f"{text}$"]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(map(chr, ids))


class Forgetful(Letters):
    """An encoder that drops all but the last two messages."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        return super().encode(messages[-2:])


def said(index: int, prompt: str, answer: str, *, readable: bool = True) -> Step:
    message = Message(role="assistant", content=answer)
    asked = (Message(role="user", content=prompt),)
    return make_step(index, readable=readable).model_copy(update={"prompt": asked, "message": message})


def spelled(text: Sequence[int]) -> str:
    return "".join(map(chr, text))


def test_a_demonstration_trains_answers_with_their_end_of_turn() -> None:
    (row,) = demonstration_rows(trajectory(said(0, "hi", "ls"), said(1, "a.py", "ok")), Letters(), max_length=99).rows
    assert spelled(row.ids) == "^hi$^ls$^a.py$^ok$"
    assert spelled([at for at, bit in zip(row.ids, row.trainable, strict=True) if bit]) == "ls$ok$"


def test_an_unreadable_answer_is_shown_but_not_imitated() -> None:
    steps = said(0, "hi", "??", readable=False), said(1, "what", "ls")
    (row,) = demonstration_rows(trajectory(*steps), Letters(), max_length=99).rows
    assert spelled([at for at, bit in zip(row.ids, row.trainable, strict=True) if bit]) == "ls$"


def test_a_context_that_does_not_continue_begins_a_new_row() -> None:
    steps = said(0, "hi", "ls"), said(1, "a.py", "ok")
    made = demonstration_rows(trajectory(*steps), Forgetful(), max_length=99)
    assert [spelled(row.ids) for row in made.rows] == ["^hi$^ls$", "^ls$^a.py$^ok$"]
    assert [sum(row.trainable) for row in made.rows] == [3, 3]


def test_demonstrations_that_cannot_be_rebuilt_are_left_out_by_name() -> None:
    call = ToolCall(id="1", name="submit", arguments="{}")
    native = said(0, "hi", "").model_copy(update={"message": Message(role="assistant", content="", tool_calls=(call,))})
    forked = said(1, "x", "y").model_copy(update={"parent": None})
    assert demonstration_rows(trajectory(native), Letters(), max_length=9).left_out == {Reason.NATIVE_CALLS: 1}
    assert demonstration_rows(trajectory(), Letters(), max_length=9).left_out == {Reason.NO_STEPS: 1}
    assert demonstration_rows(trajectory(said(0, "hi", "ls"), forked), Letters(), max_length=99).left_out == {
        Reason.BROKEN_PATH: 1
    }
    assert demonstration_rows(trajectory(said(0, "hi", "ls")), Letters(), max_length=7).left_out == {Reason.TOO_LONG: 1}


def heard(index: int, prompt: str, given: str, sampled: str, *, restart: bool = False) -> Step:
    """A step that was sampled in the ids that ``given`` spells, after the message ``prompt``."""
    made = tokens([ord(char) for char in given], [ord(char) for char in sampled], restart=restart)
    return said(index, prompt, sampled.rstrip("$")).model_copy(update={"tokens": made})


def checked(*steps: Step) -> RowSet:
    return rows_from_trajectory(trajectory(*steps), max_length=99, encoder=Letters())


def test_prompts_that_read_as_their_messages_pass() -> None:
    whole = checked(heard(0, "hi", "^hi$^", "ls$"), heard(1, "a.py", "^a.py$^", "ok$"))
    assert [spelled(row.ids) for row in whole.rows] == ["^hi$^ls$^a.py$^ok$"]
    again = checked(heard(0, "hi", "^hi$^", "ls$"), heard(1, "a.py", "^hi$^ls$^a.py$^", "ok$", restart=True))
    assert again == whole


@pytest.mark.parametrize("restart", [False, True])
def test_a_prompt_that_reads_otherwise_is_named_with_its_turn(restart: bool) -> None:
    before = "^hi$^lx$" if restart else ""
    steps = (
        heard(0, "hi", "^hi$^", "ls$"),
        heard(1, "a.py", f"{before}^a.py$^" if restart else "^b.py$^", "ok$", restart=restart),
        heard(2, "end", f"{before}^a.py$^ok$^end$^" if restart else "^end$^", "bye$", restart=restart),
    )
    made = checked(*steps)
    (mismatch,) = made.mismatches
    assert (made.rows, made.left_out) == ((), {Reason.PROMPT_MISMATCH: 1})
    assert (mismatch.turn, mismatch.reason) == (1, Reason.PROMPT_MISMATCH)
    assert ("x$^a" if restart else "b.py") in mismatch.why


def test_a_compacted_conversation_is_held_against_what_took_its_place() -> None:
    compact = heard(1, "sum", "^sum$^", "ok$", restart=True).model_copy(update={"compacted": True})
    assert len(checked(heard(0, "hi", "^hi$^", "ls$"), compact).rows) == 2
    forgot = compact.model_copy(update={"compacted": False})
    assert checked(heard(0, "hi", "^hi$^", "ls$"), forgot).left_out == {Reason.PROMPT_MISMATCH: 1}


def test_ids_of_another_tokenizer_are_not_imitated() -> None:
    foreign = heard(0, "hi", "^ij$^", "mt$")
    made = imitation_rows([trajectory(foreign)], Letters(), max_length=99)
    assert (made.rows, made.left_out) == ((), {Reason.PROMPT_MISMATCH: 1})


def test_every_failed_check_is_named_with_its_turn() -> None:
    first, lost = make_step(0, tokens=GOOD), make_step(1)
    (mismatch,) = rows_from_trajectory(trajectory(first, lost), max_length=20).mismatches
    assert (mismatch.trajectory, mismatch.turn, mismatch.reason) == (trajectory().id, 1, Reason.NO_TOKENS)
    assert not rows_from_trajectory(trajectory(first), max_length=2).mismatches  # too long contradicts nothing


def test_imitation_takes_ids_as_sampled_and_rebuilds_the_rest() -> None:
    greedy = make_step(0, tokens=GOOD.model_copy(update={"logprobs": None})).model_copy(update={"prompt": ()})
    made = imitation_rows([trajectory(greedy), trajectory(said(0, "hi", "ls")), trajectory()], Letters(), max_length=99)
    assert [row.ids for row in made.rows] == [(1, 2, 3, 4), tuple(map(ord, "^hi$^ls$"))]
    assert made.left_out == {Reason.NO_STEPS: 1}
