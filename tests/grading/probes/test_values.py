"""The two encodings of values: what can be made again, and what is told."""

import datetime
import decimal
import enum
import io
import json
import random
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.grading.probes.inside.telling import Teller, TooLarge, text_of
from patchgym.grading.probes.inside.values import Decoder, Encoder, Places, Unsayable

ELSEWHERE = Places("/nowhere", [])
HERE = Places(str(Path(__file__).resolve().parents[1]), [])  # its own files count as the tests of a workspace
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.complex_numbers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=4)
        | st.frozensets(st.integers() | st.text(max_size=4), max_size=4)
    ),
    max_leaves=12,
)


def encoded(value: object) -> Any:
    return Encoder(ELSEWHERE, lambda _: None).encode(value)


def told(value: object) -> Any:
    return Teller(ELSEWHERE).tell(value)


@given(PLAIN)
def test_a_plain_value_is_made_again_as_it_was(value: object) -> None:
    again = Decoder([]).decode(json.loads(json.dumps(encoded(value))))
    assert told(again) == told(value)
    assert type(again) is type(value)


@pytest.mark.parametrize(
    "value",
    [
        datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC),
        decimal.Decimal("1.10"),
        OrderedDict(b=1, a=2),
        range(3, 9, 2),
        io.StringIO("text"),
        int,
        json.dumps,
        [bytearray(b"x"), Ellipsis],
        Path("a/b"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_standard_library_can_copy_is_made_again(value: object) -> None:
    again = Decoder([]).decode(json.loads(json.dumps(encoded(value))))
    assert text_of(told(again)) == text_of(told(value))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (lambda: 1, "lambda"),
        ((one for one in "ab"), "generator"),
        (open(__file__, encoding="utf-8"), "object that cannot be made again: TextIOWrapper"),  # noqa: SIM115
        ("x" * 100_000, "too large an argument"),
        ([[[random]]], None),
    ],
    ids=["lambda", "generator", "file", "large", "module"],
)
def test_what_cannot_be_made_again_is_left_out_by_name(value: object, reason: str | None) -> None:
    if reason is None:
        assert encoded(value)
        return
    with pytest.raises(Unsayable, match=reason):
        encoded(value)


def test_an_argument_that_holds_itself_is_left_out_by_name() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(Unsayable, match="holds itself"):
        encoded(value)


class Held:
    def __init__(self) -> None:
        self.shown, self._hidden = 1, 2
        self.me = self


def test_an_object_of_the_tests_is_left_out_by_name() -> None:
    with pytest.raises(Unsayable, match="class of the tests"):
        Encoder(HERE, lambda _: None).encode(Held())


def test_an_object_is_told_by_its_public_state_with_its_cycles() -> None:
    kind, name, state, value = Teller(HERE).tell(Held())
    assert (kind, state, value) == ("o", {"me": ["^", 1], "shown": ["i", "1"]}, None)
    assert name.endswith("Held")


@given(st.lists(st.text(max_size=3) | st.integers(), unique=True), st.randoms())
def test_sets_and_dicts_have_one_order(items: list[object], rng: random.Random) -> None:
    other = list(items)
    rng.shuffle(other)
    assert told(set(items)) == told(set(other))
    assert told(dict.fromkeys(items)) == told(dict.fromkeys(other))


@pytest.mark.parametrize(("one", "other"), [(1, True), (1, 1.0), ("1", b"1"), ([1], (1,)), (0.0, -0.0), ({}, set())])
def test_values_that_compare_equal_or_look_alike_are_told_apart(one: object, other: object) -> None:
    assert told(one) != told(other)


def test_an_object_that_equals_everything_is_told_as_what_it_is() -> None:
    class Equal(int):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = int.__hash__

    assert told(Equal(3))[0] == "o"
    assert told(Equal(3))[3] == ["i", "3"]


def test_an_address_is_not_told() -> None:
    assert told(repr(object())) == ["s", "<object object at 0x>"]


def test_a_generator_is_told_by_its_first_items_and_its_end() -> None:
    def broken() -> Any:
        yield 1
        raise KeyError

    assert told(broken()) == ["y", [["i", "1"]], "builtins.KeyError"]
    endless = iter(int, 1)
    assert told(endless)[2] == "more"


def test_an_enum_is_told_by_name_and_value() -> None:
    class Colour(enum.Enum):
        RED = 1

    assert told(Colour.RED)[2] == {"name": ["s", "RED"], "value": ["i", "1"]}


def test_more_than_anybody_compares_is_refused() -> None:
    with pytest.raises(TooLarge):
        told(list(range(100_000)))
    with pytest.raises(TooLarge):
        told("x" * 1_000_000)
