"""Nearly equal sets among many: what is given is true, and nearly all is found."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.tasks.overlap.groups import Groups
from patchgym.tasks.overlap.minhash import (
    THRESHOLD,
    candidate_probability,
    jaccard,
    members,
    near_pairs,
    numpy_band_keys,
    plain_band_keys,
    shingles,
)

FEATURES = st.sets(st.text(max_size=3), max_size=12)


def pair_of(similarity: float, size: int, draw: random.Random) -> tuple[bytes, bytes]:
    """Two sets of made-up features with about this Jaccard similarity."""
    shared = round(similarity * size)
    features = [str(draw.random()) for _ in range(size)]
    apart = (size - shared) // 2
    return shingles(features[: shared + apart]), shingles([*features[:shared], *features[shared + apart :]])


@given(FEATURES, FEATURES)
def test_similarity_is_jaccards(first: set[str], second: set[str]) -> None:
    expected = len(first & second) / len(first | second) if first & second else 0.0
    assert jaccard(shingles(first), shingles(second)) == expected


@given(FEATURES)
def test_a_packed_set_does_not_depend_on_order_or_repetition(features: set[str]) -> None:
    twice = [*sorted(features), *sorted(features, reverse=True)]
    assert shingles(twice) == shingles(features)
    assert len(members(shingles(features))) == len(features)


@settings(deadline=None)
@given(st.lists(FEATURES, min_size=1, max_size=8), st.data())
def test_every_pair_that_is_given_is_alike_and_of_one_scope(sets: list[set[str]], data: st.DataObject) -> None:
    scopes = data.draw(st.lists(st.integers(0, 1), min_size=len(sets), max_size=len(sets)))
    packed = [shingles(features) for features in sets]
    for first, second, similarity in near_pairs(packed, scopes):
        assert first < second
        assert scopes[first] == scopes[second]
        assert similarity == jaccard(packed[first], packed[second]) >= THRESHOLD


@settings(deadline=None)
@given(st.lists(FEATURES, max_size=8))
def test_equal_sets_are_always_joined_and_empty_ones_never(sets: list[set[str]]) -> None:
    groups = Groups(len(sets))
    for first, second, _ in near_pairs([shingles(features) for features in sets]):
        groups.join(first, second)
    for one in range(len(sets)):
        for other in range(one):
            if sets[one] == sets[other]:
                assert groups.same(one, other) == bool(sets[one])


@pytest.mark.parametrize("similarity", [0.5, 0.6, 0.7])
def test_candidates_come_as_often_as_the_curve_says(similarity: float) -> None:
    draw = random.Random(1)
    trials = 400
    found = 0
    for _ in range(trials):
        keys = [plain_band_keys(packed) for packed in pair_of(similarity, 60, draw)]
        found += any(keys[0][at : at + 8] == keys[1][at : at + 8] for at in range(0, len(keys[0]), 8))
    assert found / trials == pytest.approx(candidate_probability(similarity), abs=0.08)


def test_at_the_threshold_nearly_every_pair_is_found() -> None:
    assert candidate_probability(THRESHOLD) > 0.999
    draw = random.Random(2)
    pairs = [pair_of(0.85, 60, draw) for _ in range(300)]
    found = near_pairs([packed for pair in pairs for packed in pair])
    assert {(pair.first, pair.second) for pair in found} == {(2 * at, 2 * at + 1) for at in range(300)}


def test_below_the_threshold_none_is_given() -> None:
    draw = random.Random(3)
    pairs = [pair_of(0.7, 60, draw) for _ in range(100)]
    assert near_pairs([packed for pair in pairs for packed in pair]) == []


@settings(deadline=None)
@given(st.sets(st.text(max_size=3), min_size=1, max_size=12))
def test_numpy_changes_nothing(features: set[str]) -> None:
    pytest.importorskip("numpy")
    assert numpy_band_keys()(shingles(features)) == plain_band_keys(shingles(features))


def test_many_copies_of_one_thing_are_joined_by_as_few_pairs_as_can_be() -> None:
    packed = [shingles(["a", "b", "c"])] * 3000
    assert len(near_pairs(packed)) == 2999


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12))
def test_groups_are_what_can_be_reached(joins: list[tuple[int, int]]) -> None:
    groups = Groups(10)
    for pair in joins:
        groups.join(*pair)
    found = groups.all()
    assert sorted(position for group in found for position in group) == list(range(10))
    for first, second in joins:
        assert groups.same(first, second)
    assert len(found) >= 10 - len(joins)
