"""A trie holds its rows and nothing twice; its chunks hold the trie."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.train.trie import Trie, build_trie, cut, walk

ROWS = st.lists(st.lists(st.integers(0, 2), max_size=12), max_size=8)


def told(trie: Trie, row: int) -> list[int]:
    return [one for at in trie.path(trie.ends[row]) for one in trie.segments[at].ids]


def beginnings(rows: Sequence[Sequence[int]]) -> int:
    """How many different beginnings rows have, which is how many ids their trie needs."""
    return len({tuple(row[:end]) for row in rows for end in range(1, len(row) + 1)})


@given(ROWS, st.none() | st.integers(1, 5))
def test_every_row_can_be_read_off(rows: list[list[int]], longest: int | None) -> None:
    trie = build_trie(rows, longest)
    assert [told(trie, row) for row in range(len(rows))] == rows


@given(ROWS, st.none() | st.integers(1, 5))
def test_what_rows_share_stands_there_once(rows: list[list[int]], longest: int | None) -> None:
    assert build_trie(rows, longest).size == beginnings(rows)


@given(ROWS, st.none() | st.integers(1, 5))
def test_segments_follow_their_parents(rows: list[list[int]], longest: int | None) -> None:
    trie = build_trie(rows, longest)
    for at, segment in enumerate(trie.segments):
        assert 0 < len(segment.ids) <= (longest or 12)
        before = trie.segments[segment.parent].end if segment.parent is not None else 0
        assert segment.start == before
        assert segment.parent is None or segment.parent < at


@given(ROWS, st.integers(1, 20), st.booleans())
def test_chunks_hold_every_segment_once_and_no_more_than_they_may(
    rows: list[list[int]], size: int, split: bool
) -> None:
    trie = build_trie(rows, size if split else None)
    chunks = cut(trie, size)
    assert sorted(at for chunk in chunks for at in chunk.segments) == list(range(len(trie.segments)))
    for chunk in chunks:
        ids = sum(len(trie.segments[at].ids) for at in chunk.segments)
        assert ids <= size or (len(chunk.segments) == 1 and not split)


@given(ROWS, st.integers(1, 20))
def test_a_chunk_continues_one_segment_of_an_earlier_chunk(rows: list[list[int]], size: int) -> None:
    trie = build_trie(rows)
    seen: set[int | None] = {None}
    for chunk in cut(trie, size):
        assert chunk.after in seen
        inside: set[int] = set()
        for at in chunk.segments:
            assert trie.segments[at].parent == chunk.after or trie.segments[at].parent in inside
            inside.add(at)
        seen |= inside


@given(ROWS, st.integers(1, 20))
def test_a_walk_is_inside_exactly_what_a_chunk_continues(rows: list[list[int]], size: int) -> None:
    trie = build_trie(rows)
    chunks = cut(trie, size)
    home = [0] * len(trie.segments)
    for number, chunk in enumerate(chunks):
        for at in chunk.segments:
            home[at] = number
    inside: list[int] = []
    left: list[int] = []
    for at, entering in walk(chunks, home):
        if entering:
            assert set(inside) == {home[one] for one in trie.path(chunks[at].after)}
            inside.append(at)
        else:
            assert inside.pop() == at
            left.append(at)
    assert sorted(left) == list(range(len(chunks)))


def test_small_branches_share_a_chunk_and_large_ones_have_their_own() -> None:
    rows = [[0, 0, 0, 0, branch, *([branch] * length)] for branch, length in ((1, 1), (2, 1), (3, 6))]
    chunks = cut(build_trie(rows), 8)
    assert [len(chunk.segments) for chunk in chunks] == [3, 1]


def test_thousands_of_rows_that_branch_at_every_id_need_no_recursion() -> None:
    rows = [[0] * depth + [1] for depth in range(3000)]
    trie = build_trie(rows)
    assert trie.size == 2999 + 3000
    assert len(cut(trie, 100)) >= 60


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one id"):
        cut(build_trie([[1]]), 0)
