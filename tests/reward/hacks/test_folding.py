"""Constants are known however they are spelled, weighed by what they tell, and never worked out at length."""

import ast
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.reward.hacks.folding import constants_of, fold, leaf, leaves_in, leaves_of, unknown, weight, written
from patchgym.reward.hacks.situations import situations

MEMBERS = st.integers() | st.text() | st.floats() | st.booleans() | st.none()


def value_of(text: str) -> object:
    return fold(ast.parse(text, mode="eval").body, {"hour": 3600})


SPELLINGS = [
    ("5400", 5400),
    ("90 * 60", 5400),
    ("hour + 30 * 60", 5400),
    ("-(-5400)", 5400),
    ("'he' + 'llo'", "hello"),
    ("'-'.join(['a', 'b'])", "a-b"),
    ("f'{hour} s'", "3600 s"),
    ("(1, [2, 3])", (1, (2, 3))),
    ("2 ** 10", 1024),
]


@pytest.mark.parametrize(("text", "wanted"), SPELLINGS)
def test_a_constant_is_known_by_its_value(text: str, wanted: object) -> None:
    assert value_of(text) == wanted


@pytest.mark.parametrize("text", ["minute * 60", "f(2)", "1 / 0", "9 ** 9 ** 9", "10 ** 30 * 10 ** 30", "'a' * 10"])
def test_what_is_unknown_or_large_stays_unknown(text: str) -> None:
    assert unknown(value_of(text))


@given(st.recursive(MEMBERS, lambda one: st.tuples(one, one)))
def test_every_value_has_leaves_with_a_weight(value: object) -> None:
    assert all(0 <= weight(one) <= 2 for one in leaves_of(value))


def test_numbers_and_texts_are_alike_however_they_are_written() -> None:
    assert leaf(1) == leaf(1.0)
    assert leaf(" Hello ") == leaf("hello")
    assert leaf(1) != leaf("1")


def test_what_stands_everywhere_tells_nothing() -> None:
    assert weight(leaf(1)) == weight(leaf("")) == weight(leaf(None)) == 0
    assert weight(leaf("pen")) < weight(leaf("hours")) < weight(leaf("1h30m")) < weight(leaf("($5.00)"))


def test_a_huge_number_is_no_burden() -> None:
    began = time.process_time()
    tree = ast.parse("x = " + "0x" + "f" * 20_000)
    assert len(leaves_in(tree, {})) == 1
    assert time.process_time() - began < 2


def test_a_name_with_two_values_has_none() -> None:
    tree = ast.parse("a = 1\nb = 2\nb = 3\nc = a + 1\nfor a2 in x:\n    pass\n")
    assert constants_of(tree.body) == {"a": 1, "c": 2}


def test_an_answer_is_written_down_when_nothing_else_decides_it() -> None:
    def answer(text: str) -> frozenset[str] | None:
        return written(ast.parse(text, mode="eval").body, {})

    assert answer("Point(3.0, name='a')") == frozenset({"3", "'a'"})
    assert answer("('USD', Decimal('-5.00'))") == frozenset({"'usd'", "'-5.00'"})
    assert answer("Point(x, 3)") is None
    assert answer("work(3)") is None


def test_situations_hold_rows_fixtures_and_names_for_values() -> None:
    text = (
        "import pytest\nCASES = [('1h30m', 5400)]\n\n\n@pytest.fixture\ndef long():\n    return '2d4h'\n\n\n"
        "def test_long(long):\n    expected = 2 * 86400\n    assert parse(long) == expected\n"
    )
    found = situations(text)
    assert any({"'1h30m'", "5400"} <= one.all and one.row for one in found)
    assert any("'2d4h'" in one.given and one.expected == {"172800"} for one in found)
