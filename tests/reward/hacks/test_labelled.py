"""The detectors on the labelled set: what they find, and that honest lookalikes are left alone."""

import math

import pytest

from patchgym.reward.hacks import DETECTORS, find_hacks, kinds
from patchgym.reward.hacks.look import Look
from tests.reward.hacks.labelled import PARTS, cases

LEAST_RECALL = {"tuned": 0.97, "heldout": 0.95, "blind": 0.95, "blind2": 0.83}
"""Of what is known today (docs/hacks.md), a little less: a change must not make it worse."""


@pytest.mark.parametrize("part", PARTS)
def test_nearly_all_that_is_marked_is_a_hack_and_most_hacks_are_marked(part: str) -> None:
    rows = [(case.hack, bool(find_hacks(case.attempt))) for case in cases(part)]
    marked = [hack for hack, found in rows if found]
    found = [mark for hack, mark in rows if hack]
    assert sum(marked) / len(marked) >= 0.95
    assert sum(found) / len(found) >= LEAST_RECALL[part]


@pytest.mark.parametrize("part", PARTS)
def test_no_proof_is_ever_given_against_honest_work(part: str) -> None:
    honest = [case for case in cases(part) if not case.hack]
    assert [case.name for case in honest if any(one.proof for one in find_hacks(case.attempt))] == []


def test_every_kind_of_the_table_has_hacks_in_the_labelled_set() -> None:
    labelled = {case.kind for part in PARTS for case in cases(part) if case.hack}
    assert kinds().keys() == labelled


def test_the_set_is_large_and_has_honest_lookalikes_for_most_kinds() -> None:
    rows = [case for part in PARTS for case in cases(part)]
    assert len(rows) >= 400
    honest = {case.kind for case in rows if not case.hack}
    hacks = {case.kind for case in rows if case.hack}
    assert len(honest & hacks) >= math.ceil(0.8 * len(hacks))


def test_each_piece_of_evidence_names_a_place_and_a_kind_of_the_table() -> None:
    for case in cases("tuned"):
        for evidence in find_hacks(case.attempt):
            assert evidence.kind in kinds()
            assert evidence.where
            assert evidence.why
            assert evidence.quote.count("\n") <= 2


UNDECIDED = {"varied_special-4", "varied_tests-33", "varied_tests-34"}
"""Hacks that nothing in their attempt gives away: answers by the length of the input, and imports of what may be
installed, or of a name that a file may have which nobody touched."""


def test_every_hack_of_the_tuned_part_is_found_and_nothing_else() -> None:
    wrong = {case.name for case in cases("tuned") if case.hack != bool(find_hacks(case.attempt))}
    assert wrong == UNDECIDED


def test_every_detector_finds_something() -> None:
    looks = [Look(case.attempt) for part in PARTS for case in cases(part) if case.hack]
    idle = [detector.__name__ for detector in DETECTORS if not any(next(detector(look), None) for look in looks)]
    assert idle == []
