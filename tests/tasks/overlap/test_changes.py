"""Patches as they are compared: hunks from anywhere, and what they change token by token."""

from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.tasks.overlap.changes import changed_lines, hunks_of, marked_tokens, reversed_patch
from patchgym.tasks.overlap.fingerprints import solution_tokens
from tests.tasks.overlap.made import CHUNKS, MERGE, unified

LINES = st.lists(st.sampled_from(["a = 1", "b = f(a)", "", "-- x", "++ y", "@@ z", "if a:", "    c"]), max_size=12)


def sides(patch: str) -> tuple[list[str], list[str]]:
    """The old and the new lines of all hunks."""
    hunks = hunks_of(patch)
    return [line for hunk in hunks for line in hunk.old], [line for hunk in hunks for line in hunk.new]


@settings(deadline=None)
@given(LINES, LINES)
def test_the_hunks_hold_what_differs(old: list[str], new: list[str]) -> None:
    """With context all around, applying the hunks to the old lines gives the new ones."""
    before, after = ["head", *old], ["head", *new]
    patch = unified("".join(f"{line}\n" for line in before), "".join(f"{line}\n" for line in after))
    lines = list(before)
    for hunk in reversed(hunks_of(patch)):
        assert tuple(lines[hunk.start : hunk.start + len(hunk.old)]) == hunk.old
        lines[hunk.start : hunk.start + len(hunk.old)] = hunk.new
    assert lines == after


@settings(deadline=None)
@given(st.text())
def test_what_is_no_patch_has_no_hunks_and_does_no_harm(text: str) -> None:
    assert "@@" in text or hunks_of(text) == []


def test_a_patch_that_is_cut_counts_as_far_as_it_goes() -> None:
    patch = unified(MERGE, MERGE.replace("<=", "<"))
    whole = hunks_of(patch)[0]
    cut = hunks_of("\n".join(patch.split("\n")[:-4]))[0]
    assert cut.new == whole.new[: len(cut.new)]
    assert 0 < len(cut.new) < len(whole.new)


@settings(deadline=None)
@given(LINES, LINES)
def test_turned_round_twice_it_changes_the_same(old: list[str], new: list[str]) -> None:
    patch = unified("".join(f"{line}\n" for line in old), "".join(f"{line}\n" for line in new))
    before, after = sides(patch)
    assert sides(reversed_patch(patch)) == (after, before)
    assert sides(reversed_patch(reversed_patch(patch))) == (before, after)


def test_only_what_differs_is_marked() -> None:
    marked = marked_tokens(hunks_of(unified(MERGE, MERGE.replace("<=", "<")))[0])
    assert [token for token in marked if token[0] != " "] == ["-<=", "+<"]


def test_comments_layout_and_line_numbers_change_nothing() -> None:
    plain = unified(MERGE, MERGE.replace("<=", "<"))
    commented = MERGE.replace("    merged = []\n", "    merged  =  []  # empty\n")
    moved = "\n\n\n# A file.\n\n\n\n" + commented
    assert solution_tokens(unified(moved, moved.replace("<=", "<"), "src/other.py")) == solution_tokens(plain)


def test_a_change_of_comments_alone_is_no_change() -> None:
    assert solution_tokens(unified(CHUNKS, CHUNKS.replace("def chunks", "# Cut.\ndef chunks"))) == []


def test_a_person_sees_the_changed_lines() -> None:
    assert changed_lines(unified("a\nb\n", "a\nc\n")) == "-b\n+c"
