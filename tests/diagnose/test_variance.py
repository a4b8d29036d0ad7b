"""Variance components, by hand-computed figures and properties."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.diagnose import Grading, split_variance
from patchgym.diagnose.variance import unstable


def graded(task: str, patch: str, *values: float) -> list[Grading]:
    return [
        Grading(task_id=task, trajectory=f"{task}.{patch}", patch=patch, gate=str(value), value=value, tests={})
        for value in values
    ]


def test_what_differs_between_patches_is_the_policys() -> None:
    split = split_variance([*graded("t", "a", 1.0, 1.0), *graded("t", "b", 0.0, 0.0)])
    # MS between = 2 (0.5^2 + 0.5^2) / 1 = 1, MS within = 0, n0 = (4 - 8 / 4) / 1 = 2
    assert (split.policy, split.grading, split.grading_share) == (0.5, 0.0, 0.0)


def test_what_differs_between_gradings_of_a_patch_is_gradings() -> None:
    split = split_variance([*graded("t", "a", 1.0, 0.0), *graded("t", "b", 1.0, 0.0)])
    # MS within = 4 x 0.5^2 / 2 = 0.5, MS between = 0: the estimate below 0 is 0
    assert (split.policy, split.grading, split.grading_share) == (0.0, 0.5, 1.0)


def test_unequal_numbers_are_weighed_as_the_formula_says() -> None:
    split = split_variance([*graded("t", "a", 1.0, 1.0, 0.4), *graded("t", "b", 0.0)])
    # means 0.8, 0 and 0.6; within = (0.04 + 0.04 + 0.16) / 2; between = 3 x 0.04 + 0.36; n0 = 4 - (9 + 1) / 4
    assert split.grading == pytest.approx(0.12)
    assert split.policy == pytest.approx((0.48 - 0.12) / 1.5)


def test_tasks_of_different_difficulty_are_neither() -> None:
    easy, hard = graded("easy", "a", 1.0, 1.0), graded("hard", "a", 0.0, 0.0)
    extra = [*graded("easy", "b", 1.0), *graded("hard", "b", 0.0)]
    split = split_variance([*easy, *hard, *extra])
    assert (split.policy, split.grading) == (0.0, 0.0)


def test_what_was_not_repeated_is_not_known() -> None:
    split = split_variance([*graded("t", "a", 1.0), *graded("t", "b", 0.0)])
    assert (split.repeats, split.grading, split.grading_share) == (0, None, None)
    assert split_variance(graded("t", "a", 1.0, 1.0)).policy is None
    assert split_variance([]).gradings == 0


GRADINGS = st.lists(
    st.builds(
        lambda task, patch, value: graded(task, patch, value)[0],
        st.sampled_from("xyz"),
        st.sampled_from("abc"),
        st.floats(0, 1),
    ),
    max_size=30,
)


@given(found=GRADINGS)
def test_components_are_never_negative_and_the_share_is_one(found: list[Grading]) -> None:
    split = split_variance(found)
    assert (split.policy or 0.0) >= 0
    assert (split.grading or 0.0) >= 0
    assert 0 <= (split.grading_share or 0.0) <= 1


@given(found=GRADINGS)
def test_the_order_of_gradings_does_not_matter(found: list[Grading]) -> None:
    there, back = split_variance(found), split_variance(found[::-1])
    assert there.policy == pytest.approx(back.policy)
    assert there.grading == pytest.approx(back.grading)


def test_patches_that_are_furthest_apart_come_first() -> None:
    small, large = graded("t", "a", 0.3, 0.0), graded("t", "b", 1.0, 0.0)
    assert unstable([*small, *large, *graded("t", "c", 1.0, 1.0)]) == [large, small]
