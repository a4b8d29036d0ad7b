"""A training set that overlaps a held-out one is refused: by fingerprints, and by what a checkpoint keeps."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import DataError
from patchgym.tasks.overlap.fingerprints import Fingerprint
from patchgym.tasks.overlap.refuse import overlap_between, overlap_keys, refuse_overlap, refuse_trained
from tests.tasks.overlap.made import CHUNKS, COUNT, MERGE, bug, prints

MADE = prints(
    bug("merge-1", MERGE, "<=", "<", repo="pkg"),
    bug("merge-2", MERGE, "left += 1", "left += 2", repo="pkg"),
    bug("chunks-1", CHUNKS, "size < 1", "size < 2", repo="pkg"),
    bug("count-1", COUNT, ", 0)", ", 1)", repo="pkg"),
)
SOME = st.lists(st.sampled_from(MADE), max_size=4, unique_by=lambda each: each.id)


def functions(these: list[Fingerprint]) -> set[str]:
    """The names of what tasks touch."""
    return {name for each in these for name in each.named}


@settings(deadline=None)
@given(SOME, SOME)
def test_it_is_refused_if_and_only_if_a_function_is_on_both_sides(
    train: list[Fingerprint], heldout: list[Fingerprint]
) -> None:
    if functions(train) & functions(heldout):
        with pytest.raises(DataError):
            refuse_overlap(train, heldout)
        with pytest.raises(DataError):
            refuse_trained({each.id: overlap_keys(each) for each in train}, heldout)
    else:
        refuse_overlap(train, heldout)
        refuse_trained({each.id: overlap_keys(each) for each in train}, heldout)


def test_the_pair_is_named_with_what_it_has_in_common() -> None:
    with pytest.raises(DataError) as raised:
        refuse_overlap(MADE[:1], MADE[1:])
    assert "merge-1 and merge-2 (function name)" in raised.value.why
    assert "tasks split" in raised.value.mend
    with pytest.raises(DataError, match="merge-1 and merge-2"):
        refuse_trained({MADE[0].id: overlap_keys(MADE[0])}, MADE[1:])


def test_positions_are_those_in_either_list() -> None:
    (pair,) = overlap_between(MADE[2:], [MADE[0], MADE[2]])
    assert (pair.first, pair.second) == (0, 1)


def test_a_copy_with_other_names_is_known_by_its_keys() -> None:
    other = prints(bug("copy", MERGE.replace("merged", "result").replace("merge_sorted", "join"), "<=", "<"))
    with pytest.raises(DataError, match="merge-1 and copy"):
        refuse_trained({"merge-1": overlap_keys(MADE[0])}, other)


def test_keys_are_few_and_short_and_tell_no_text() -> None:
    for each in MADE:
        keys = overlap_keys(each)
        assert 0 < len(keys) <= 5
        assert all(len(key) == 13 and int(key[1:], 16) >= 0 for key in keys)
