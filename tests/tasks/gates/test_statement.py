"""Every planted leak is found under its kind, clean statements stay unflagged, and scrubbing takes the leaks out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.tasks.gates.statement import Answer, scrub, statement_leaks
from patchgym.tasks.proof.instruction import write_instruction
from tests.tasks.gates.corpus import CASES, answer_of, planted

LEAKING, CLEAN = planted("leaking"), planted("clean")
EMPTY = Answer(gold_patch="", workspace={})
TRACEBACK = """\
tests/test_calc.py:8: in test_above
    assert clamp(10, 0, 9) == 9
calc.py:6: in clamp
    return low
E   assert 0 == 9
"""


def test_the_corpus_is_large_enough_to_say_something() -> None:
    assert len(LEAKING) >= 60
    assert len(CLEAN) >= 60
    assert {kind for _, kind, _ in LEAKING} == {
        *("line_number", "commit", "reference", "diff", "fix_name", "passage", "edit", "test_name", "hidden_test")
    }


@pytest.mark.parametrize(("case", "kind", "text"), LEAKING)
def test_a_planted_leak_is_found_under_its_kind(case: str, kind: str, text: str) -> None:
    found = statement_leaks(text, answer_of(case))
    assert kind in {leak.kind for leak in found}
    assert all(text[leak.start : leak.end] == leak.words for leak in found)


@pytest.mark.parametrize(("case", "text"), [(case, text) for case, _, text in CLEAN])
def test_a_clean_statement_is_not_flagged(case: str, text: str) -> None:
    assert statement_leaks(text, answer_of(case)) == ()


@pytest.mark.parametrize(("case", "text"), [(case, text) for case, _, text in CLEAN])
def test_a_clean_statement_is_not_scrubbed(case: str, text: str) -> None:
    assert scrub(text, statement_leaks(text, answer_of(case))) == text.strip()


@pytest.mark.parametrize(("case", "kind", "text"), LEAKING)
def test_a_scrubbed_statement_no_longer_leaks(case: str, kind: str, text: str) -> None:
    left = scrub(text, statement_leaks(text, answer_of(case)))
    assert statement_leaks(left, answer_of(case)) == ()


@given(st.lists(st.sampled_from([(case, text) for case, _, text in LEAKING + CLEAN if case == "clamp"]), max_size=5))
def test_scrubbing_a_mixture_leaves_nothing_that_leaks(parts: list[tuple[str, str]]) -> None:
    text = "\n\n".join(text for _, text in parts)
    left = scrub(text, statement_leaks(text, answer_of("clamp")))
    assert statement_leaks(left, answer_of("clamp")) == ()
    assert scrub(left, ()) == left


def test_what_write_instruction_makes_is_clean() -> None:
    text = write_instruction("calc", {"tests/test_calc.py::test_above": TRACEBACK}, lambda path: path == "calc.py")
    assert statement_leaks(text, answer_of("clamp")) == ()


def test_a_value_of_a_shown_test_is_no_leak_whatever_characters_stand_in_it() -> None:
    shown = "assert parse('<a>') == {'a': {'@href': 'xyz', '#text': '1$2', '?': '3'}, 'b': {'é': '4'}}\n"
    hidden = {"tests/test_hidden.py": f"def test_far():\n    {shown}"}
    told = "It should give {'a': {'@href': 'xyz', '#text': '1$2', '?': '3'}, 'b': {'é': '4'}}."
    tests = ("tests/test_hidden.py::test_far",)
    known = Answer("", {"tests/test_shown.py": f"def test_near():\n    {shown}"}, (), tests, hidden)
    unknown = Answer("", {}, (), tests, hidden)
    assert statement_leaks(told, known) == ()
    assert {leak.kind for leak in statement_leaks(told, unknown)} == {"hidden_test"}


def test_values_of_a_failure_message_that_stand_in_the_tests_are_no_leak() -> None:
    case = CASES["pages"]
    told = "assert [pages(7, 3), -(-7 // 3)] == [3, 3]"
    base = answer_of("pages")
    shown = Answer(base.gold_patch, {case.path: case.before, "tests/t.py": "x = -(-total // size)\n"})
    assert statement_leaks(told, base) == ()
    assert statement_leaks("it says -(-total // size)", shown) == ()
    assert statement_leaks("it says -(-total // size)", base) != ()


def test_a_traceback_into_a_test_is_no_leak_and_one_into_a_key_file_is() -> None:
    assert statement_leaks("tests/test_calc.py:12: in test_above", answer_of("clamp")) == ()
    found = statement_leaks("/workspace/calc.py:12: in clamp", answer_of("clamp"))
    assert [(leak.kind, leak.matches) for leak in found] == [("line_number", "/workspace/calc.py")]


def test_code_that_stands_elsewhere_too_points_at_nothing() -> None:
    base = answer_of("span")
    again = Answer(base.gold_patch, {**base.workspace, "other.py": "if start < stop and step:\n    pass\n"})
    assert statement_leaks("it has start < stop and step", base) != ()
    assert statement_leaks("it has start < stop and step", again) == ()


def test_a_shown_test_name_counts_though_the_statement_lacks_it() -> None:
    base = answer_of("titles")
    ids = ("tests/test_titles.py::TestIt::test_uses_normalised_key[1]",)
    shown = Answer(base.gold_patch, base.workspace, failing_tests=ids)
    (leak,) = statement_leaks("Names differ.", shown)
    assert (leak.kind, leak.words, leak.start, leak.end) == ("test_name", "test_uses_normalised_key", 13, 13)


@pytest.mark.parametrize(("case", "name"), [("clamp", "test_far_above"), ("span", "test_off_by_one")])
def test_a_name_counts_wherever_it_stands(case: str, name: str) -> None:
    assert len(statement_leaks(f"{name} fails.\n\nAgain: {name}", answer_of(case))) == 2


def test_the_fix_commit_counts_however_short_it_is_cut() -> None:
    sha = "1234567" + "8" * 33
    assert statement_leaks("Number 1234567 fails.", EMPTY) == ()
    known = Answer(gold_patch="", workspace={}, commits=(sha,))
    assert [leak.kind for leak in statement_leaks("Number 1234567 fails.", known)] == ["commit"]


def test_a_file_that_has_the_name_of_a_hidden_test_may_be_named() -> None:
    hidden = Answer(gold_patch="", workspace={}, hidden_tests=("tests/test_fn.py::Decorators::test_ttl",))
    assert statement_leaks("These tests fail:\n- tests/test_ttl.py::Caches::test_clear", hidden) == ()
    assert [leak.kind for leak in statement_leaks("test_ttl fails.", hidden)] == ["hidden_test"]


def test_a_value_that_a_hidden_test_holds_too_is_no_leak_and_its_code_is() -> None:
    source = "def test_deep():\n    assert regex_of('a/b') == '^(?:.+/)?[^/]+(?:(?P<d>/)|$)'\n"
    hidden = Answer("", {}, hidden_tests=("t.py::test_deep",), hidden_sources={"t.py": source})
    assert statement_leaks("I get '^(?:.+/)?[^/]+(?:(?P<d>/)|$)' for x/y", hidden) == ()
    address = Answer(
        "", {}, hidden_tests=("t.py::test_url",), hidden_sources={"t.py": "U = '1080:0:0:0:8:800:200C:417A'"}
    )
    assert statement_leaks("expected integer for port, not '0:0:0:8:800:200C:417A]'", address) == ()
    assert statement_leaks("See that regex_of('a/b') == '^(?:.+/)?[^/]+' there", hidden) != ()


def test_scrub_cuts_references_out_of_a_sentence_that_stays() -> None:
    text = "Large values come back as low (#12, see https://github.com/a/b/pull/9). Fixes #3.\n\nBroken in 4f2a91c."
    assert scrub(text, statement_leaks(text, EMPTY)) == "Large values come back as low (#12).\n\nBroken."


def test_scrub_drops_diffs_sign_offs_and_the_sentence_that_orders() -> None:
    text = (
        "clamp returns the wrong bound. Delete the try block. It is too low.\n"
        "```diff\n-a\n+b\n```\n"
        "```python\nclamp(10, 0, 9)\n```\n"
        "Signed-off-by: A B <a@b.org>\n"
    )
    left = scrub(text, statement_leaks(text, answer_of("clamp")))
    assert left == "clamp returns the wrong bound. It is too low.\n```python\nclamp(10, 0, 9)\n```"


def test_scrub_drops_what_follows_a_bare_diff() -> None:
    text = "It is wrong.\ndiff --git a/x b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert scrub(text, ()) == "It is wrong."


@given(st.text(max_size=400))
def test_any_text_is_read_and_every_span_is_where_it_says(text: str) -> None:
    for leak in statement_leaks(text, answer_of("span")):
        assert text[leak.start : leak.end] == leak.words
    scrub(text, statement_leaks(text, answer_of("span")))


@given(st.text(alphabet="把改成去掉`<=> .,\n-@#:()aL第行1 returnslowhigh", max_size=300))
def test_scrubbing_twice_is_scrubbing_once(text: str) -> None:
    once = scrub(text, statement_leaks(text, answer_of("clamp")))
    assert scrub(once, ()) == once


@pytest.mark.parametrize(
    "blob", ["a" * 50_000, " " * 20_000, "`" * 20_000, "a/" * 20_000, "line " * 4_000, "把<" * 5_000, "\n" * 20_000]
)
def test_a_hostile_text_comes_to_an_end(blob: str) -> None:
    assert len(scrub(blob, statement_leaks(blob, answer_of("span")))) <= len(blob)
