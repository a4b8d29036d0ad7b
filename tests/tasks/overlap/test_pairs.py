"""What counts as a duplicate, what as a version of one function, and what as neither."""

import random
import re

import pytest

from patchgym.tasks.overlap.material import Material
from patchgym.tasks.overlap.pairs import Why, find_overlap
from tests.tasks.overlap.made import CHUNKS, COUNT, MERGE, RENAMED, bug, prints, record

TIE = bug("tie", MERGE, "<=", "<")
ISSUE = (
    "Merging drops the tail of the longer list when both lists end in the same value and a key function is given, "
    "which we saw with the nightly export of customer records after the upgrade to the last release."
)


def reasons(*materials: Material) -> tuple[list[Why], list[Why]]:
    """Why some are duplicates, and why versions."""
    overlap = find_overlap(prints(*materials))
    return [pair.why for pair in overlap.duplicates], [pair.why for pair in overlap.versions]


def test_two_bugs_in_one_function_are_versions_and_no_duplicates() -> None:
    other = bug("other", MERGE, "merged.extend(second[right:])", "merged.extend(second[left:])")
    assert reasons(TIE, other) == ([], [Why.FUNCTION])


def test_two_bugs_in_one_line_are_no_duplicates() -> None:
    other = bug("other", MERGE, "key(first[left])", "key(first[right])")
    assert reasons(TIE, other)[0] == []


def test_one_bug_planted_in_another_release_of_the_function_is_a_duplicate() -> None:
    later = bug("later", MERGE.replace("    merged = []\n", "    merged = list()\n"), "<=", "<")
    assert Why.CHANGE in reasons(TIE, later)[0] or Why.PATCH in reasons(TIE, later)[0]


def test_a_copied_patch_is_a_duplicate_wherever_it_lies() -> None:
    moved = record("moved", "X = 1\n\n\n" + MERGE.replace("<=", "<"), "X = 1\n\n\n" + MERGE, path="src/deep/util.py")
    assert reasons(TIE, moved)[0] == [Why.PATCH]


def test_the_same_small_change_in_another_function_is_no_duplicate() -> None:
    guard = CHUNKS[CHUNKS.index('    """') : CHUNKS.index("    found")]
    other = COUNT.replace("    counts = {}\n", guard + "    counts = {}\n")
    first, second = bug("first", CHUNKS, "size < 1", "size <= 1"), bug("second", other, "size < 1", "size <= 1")
    one, two = prints(first, second)
    assert one.change == two.change
    assert reasons(first, second) == ([], [])


def test_a_long_change_is_a_duplicate_in_any_surroundings() -> None:
    first = record("first", "def a():\n    return 1\n", "def a():\n    return 1\n\n\n" + MERGE)
    second = record("second", COUNT, COUNT + "\n\n" + MERGE.replace("merged = []", "merged = list()"))
    assert Why.CHANGE in reasons(first, second)[0]


def test_functions_with_other_names_in_them_are_versions() -> None:
    other = re.sub(r"[a-z_]+", lambda match: RENAMED.get(match[0], match[0]), MERGE)
    assert reasons(TIE, bug("renamed", other, "i += 1", "i += 2"))[1] == [Why.RENAMED]


def test_functions_of_one_name_in_one_repository_are_versions_and_of_two_are_not() -> None:
    rewritten = "def merge_sorted(*lists):\n    return sorted(value for one in lists for value in one)\n"
    here = [bug(name, text, *how, repo="pkg") for name, text, how in _two(rewritten)]
    assert reasons(*here)[1] == [Why.NAME]
    apart = [bug(name, text, *how, repo=name) for name, text, how in _two(rewritten)]
    assert reasons(*apart)[1] == []


def _two(rewritten: str) -> list[tuple[str, str, tuple[str, str]]]:
    return [("one", MERGE, ("<=", "<")), ("two", rewritten, ("return sorted", "return list"))]


def test_the_same_issue_on_one_function_is_a_duplicate() -> None:
    first = bug("first", MERGE, "<=", "<", told=ISSUE)
    second = bug("second", MERGE, "left += 1", "left += 2", told=ISSUE.replace("nightly", "daily"))
    assert reasons(first, second)[0] == [Why.STATEMENT]


def test_the_same_issue_on_two_functions_is_none() -> None:
    first, second = (
        bug("first", MERGE, "<=", "<", told=ISSUE),
        bug("second", CHUNKS, "size < 1", "size < 2", told=ISSUE),
    )
    assert reasons(first, second) == ([], [])


def test_the_words_of_a_template_make_no_duplicates() -> None:
    """Tasks on many functions are told in one way; on one of them, two tasks fail other tests."""
    told = (
        "pkg has a bug that a user told of. Please look into it, find out what is wrong with it and mend the source, "
        "not the tests; all of the other tests must go on to pass as they do now. This test fails: {}"
    )
    many = [
        record(f"t{at}", f"def f{at}():\n    return {at}\n", f"def f{at}():\n    return -{at}\n", told=told.format(at))
        for at in range(8)
    ]
    two = [
        bug("first", MERGE, "<=", "<", told=told.format("test_tie")),
        bug("second", MERGE, "left += 1", "left += 2", told=told.format("test_long")),
    ]
    assert reasons(*many, *two)[0] == []


def test_one_commit_is_one_change_and_one_base_keeps_changes_together() -> None:
    fix, base = "a" * 40, "b" * 40
    first = record("first", MERGE, MERGE.replace("<=", "<"), fix=fix, base=base, repo="o/n")
    assert reasons(first, record("same", COUNT, COUNT + "\n", fix=fix))[0] == [Why.COMMIT]
    assert reasons(first, record("base", COUNT, COUNT + "X = 1\n", base=base, repo="o/n")) == ([], [Why.BASE])


def test_what_has_nothing_in_common_is_told_apart() -> None:
    assert reasons(TIE, bug("chunks", CHUNKS, "size < 1", "size < 2"), bug("count", COUNT, ", 0)", ", 1)")) == ([], [])


@pytest.mark.parametrize("seed", range(5))
def test_the_order_of_the_tasks_does_not_matter(seed: int) -> None:
    materials = [
        TIE,
        bug("other", MERGE, "left += 1", "left += 2"),
        bug("again", MERGE, "<=", "<"),
        bug("chunks", CHUNKS, "size < 1", "size < 2"),
    ]
    mixed = random.Random(seed).sample(materials, len(materials))
    parts = find_overlap(prints(*mixed)).components(len(mixed))
    assert {frozenset(mixed[at].id for at in part) for part in parts} == {
        frozenset({"tie", "other", "again"}),
        frozenset({"chunks"}),
    }
