"""Tokens, words, runs and renaming: what comparison sees of a text."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.tasks.overlap.tokens import code_tokens, renamed, runs, words
from tests.tasks.overlap.made import MERGE, RENAMED

NAMES = st.from_regex(r"[a-z]{3,8}", fullmatch=True)


@settings(deadline=None)
@given(st.text())
def test_any_text_has_tokens_and_none_holds_a_line_of_whitespace(text: str) -> None:
    assert all(token.strip() for path in ("a.py", "a.js", "") for token in code_tokens(text, path))


@settings(deadline=None)
@given(st.text(alphabet=st.sampled_from("ab1 =+(),.#\"'\n\t"), max_size=60))
def test_space_at_the_ends_of_lines_changes_nothing(text: str) -> None:
    plain = [line for line in text.split("\n") if not re.search("[\"'#]", line)]
    assert code_tokens("\n".join(plain)) == code_tokens("\n".join(f"  {line} \t" for line in plain))


@pytest.mark.parametrize(
    ("path", "text"),
    [("a.py", "x = 1  # one"), ("a.js", "x = 1 // one"), ("a.c", "x = /* one */ 1"), ("", "# before\nx = 1")],
)
def test_comments_are_dropped_as_the_language_writes_them(path: str, text: str) -> None:
    assert code_tokens(text, path) == ["x", "=", "1"]


def test_a_comment_sign_of_another_language_or_in_a_string_is_no_comment() -> None:
    assert code_tokens("x // y", "a.py") == ["x", "//", "y"]
    assert code_tokens('x = "# no"', "a.py") == ["x", "=", '"# no"']


def test_the_kind_of_quotes_does_not_matter() -> None:
    assert code_tokens("f('a', '''b''')") == code_tokens('f("a", """b""")')


def test_words_are_those_of_prose_and_of_chinese_each_character() -> None:
    assert words("It's WRONG: call_me(2)!") == ["it", "s", "wrong", "call", "me", "2"]
    assert words("修复 bug") == ["修", "复", "bug"]


def test_renaming_every_name_leaves_the_same() -> None:
    other = re.sub(r"[a-z_]+", lambda match: RENAMED.get(match[0], match[0]), MERGE)
    assert other != MERGE
    assert renamed(code_tokens(other)) == renamed(code_tokens(MERGE))


def test_another_built_in_attribute_or_literal_is_another_text() -> None:
    texts = ["f(min(x))", "f(max(x))", "f(x.low)", "f(x.high)", 'f(x, "a")', 'f(x, "b")', "f(x, 1)"]
    assert len({tuple(renamed(code_tokens(text))) for text in texts}) == len(texts)


@settings(deadline=None)
@given(st.lists(NAMES, max_size=30), st.integers(1, 6))
def test_runs_are_every_stretch_of_that_length(tokens: list[str], length: int) -> None:
    found = list(runs(tokens, length))
    assert len(found) == (max(1, len(tokens) - length + 1) if tokens else 0)
    assert all("".join(run) in "".join(tokens) for run in found)
