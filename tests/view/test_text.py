"""Text that is shown does nothing and hides nothing."""

import html
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.view.text import cut, diff_lines, figure, is_binary, one_line, shown, size, visible

_ACTING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ufeff\ud800-\udfff]")
_TAGS = re.compile(r"<[^>]*>")


@given(st.text(st.characters()))
def test_nothing_that_acts_is_left_in_shown_text(text: str) -> None:
    assert not _ACTING.search(visible(text))
    assert not _ACTING.search(shown(text))


@given(st.text(st.characters()))
def test_shown_text_is_markup_of_nothing_but_what_was_written_out(text: str) -> None:
    found = str(shown(text))
    assert set(_TAGS.findall(found)) <= {'<span class="esc">', "</span>"}
    assert html.unescape(_TAGS.sub("", found)) == visible(text)


@given(st.text())
def test_visible_text_can_be_made_visible_again_without_a_change(text: str) -> None:
    assert visible(visible(text)) == visible(text)


def test_plain_text_stays_as_it_is() -> None:
    text = "def f():\n\treturn 'Grüße, 你好'\n"
    assert visible(text) == str(shown(text)).replace("&#39;", "'") == text


def test_marks_and_escapes_are_written_out() -> None:
    assert visible("a\u202eb\x1b[31m\x00") == "a\\u202eb\\x1b[31m\\x00"


@given(st.text(), st.integers(8, 80))
def test_what_is_cut_and_what_is_left_out_are_all_of_it(text: str, most: int) -> None:
    found = cut(text, most)
    assert text.startswith(found.text)
    assert len(found.text) + found.left_out == len(text)
    assert len(found.text) <= most


@given(st.text(), st.integers(2, 90))
def test_a_line_has_no_line_ends_and_its_length(text: str, most: int) -> None:
    found = one_line(text, most)
    assert len(found) <= most
    assert "\n" not in found


def test_lines_of_a_difference_are_told_apart() -> None:
    diff = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n"
    assert [line.kind for line in diff_lines(diff)] == ["file", "file", "file", "hunk", "del", "add", ""]


@pytest.mark.parametrize(
    ("count", "told"), [(0, "0 bytes"), (900, "900 bytes"), (1536, "1.5 KB"), (20 << 20, "20.0 MB")]
)
def test_sizes_are_told_in_words(count: int, told: str) -> None:
    assert size(count) == told


def test_what_is_not_measured_is_no_zero_and_a_small_loss_is_no_minus_zero() -> None:
    assert figure(None) == "–"
    assert figure(-0.0001) == "0.00"
    assert figure(-0.2) == "-0.20"


def test_bytes_with_a_nul_are_no_text() -> None:
    assert is_binary(b"a\0b")
    assert not is_binary("Grüße".encode())
