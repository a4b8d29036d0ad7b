"""The second layer is applied by what the whole group came to."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.records import Quality, Reward, Trajectory, Verdict
from patchgym.reward import RewardSettings, settle, settle_group
from tests.records_for_tests import make_trajectory
from tests.reward.attempts_for_tests import CARELESS, CLEAN, rewarded

SOLVED, HALF, FAILED = (2, 2), (1, 2), (0, 2)


def made(sample: int, fixed: tuple[int, int], turns: int = 1, quality: Quality | None = None) -> Trajectory:
    verdict = Verdict.RESOLVED if fixed == SOLVED else Verdict.UNRESOLVED
    return rewarded(sample, verdict, fixed=fixed, turns=turns, quality=quality)


def values(found: list[Trajectory]) -> list[float | None]:
    return [one.reward.value if one.reward else None for one in found]


def layers(found: list[Trajectory]) -> set[str | None]:
    return {one.reward.second_layer for one in found if one.reward}


def test_where_outcomes_differ_it_is_applied() -> None:
    settled = settle_group([made(0, SOLVED, turns=12), made(1, SOLVED, turns=1), made(2, FAILED)])
    long, short, failed = values(settled)
    assert layers(settled) == {"applied"}
    assert long is not None
    assert short is not None
    assert failed == 0.0 < long < short < 1.0


def test_where_all_solved_it_is_applied() -> None:
    settled = settle_group([made(0, SOLVED, turns=12), made(1, SOLVED, turns=1)])
    long, short = values(settled)
    assert long is not None
    assert short is not None
    assert long < short


@pytest.mark.parametrize("fixed", [FAILED, HALF])
def test_where_all_came_to_the_same_short_of_a_solution_it_is_withheld(fixed: tuple[int, int]) -> None:
    settled = settle_group([made(0, fixed, turns=12), made(1, fixed, turns=1)])
    assert layers(settled) == {"withheld"}
    assert len(set(values(settled))) == 1


def test_who_has_no_reward_that_may_be_used_opens_no_gate() -> None:
    lost = made(2, SOLVED).model_copy(update={"reward_trusted": False})
    settled = settle_group([made(0, HALF, turns=12), made(1, HALF), lost, make_trajectory(3)])
    assert layers(settled[:2]) == {"withheld"}
    assert settled[2:] == [lost, make_trajectory(3)]


def test_a_term_that_not_everybody_above_0_has_counts_for_nobody() -> None:
    known, unknown = made(0, SOLVED, quality=CARELESS), made(1, SOLVED, quality=None)
    first, second = settle_group([known, unknown])
    assert first.reward is not None
    assert first.reward.terms["lint"].value == 0.0
    assert values([first]) == values([second])


def test_a_term_that_only_failures_lack_counts() -> None:
    settled = settle_group([made(0, SOLVED, quality=CARELESS), made(1, SOLVED, quality=CLEAN), made(2, FAILED)])
    careless, clean, _ = values(settled)
    assert careless is not None
    assert clean is not None
    assert careless < clean


def test_an_empty_test_earns_nothing() -> None:
    idle = CLEAN.model_copy(update={"tests_added": 9, "mutants_killed_added": 0})
    none = CLEAN.model_copy(update={"tests_added": 0, "mutants_killed_added": 0})
    first, second = values(settle_group([made(0, SOLVED, quality=idle), made(1, SOLVED, quality=none)]))
    assert first == second


def test_the_terms_of_an_applied_layer_add_up_to_the_value() -> None:
    for one in settle_group([made(0, SOLVED, turns=6, quality=CARELESS), made(1, HALF, turns=2, quality=CLEAN)]):
        assert one.reward is not None
        assert one.reward.value == pytest.approx(sum(term.value for term in one.reward.terms.values()))
        assert all(term.why for term in one.reward.terms.values())


def test_a_reward_from_elsewhere_is_left_alone() -> None:
    imported = make_trajectory(0, report=made(0, SOLVED).report).model_copy(
        update={"reward": Reward(value=0.7, gate="imported", terms={})}
    )
    settled = settle_group([imported, made(1, FAILED)])
    assert settled[0] == imported


GROUPS = st.lists(
    st.builds(
        made, st.just(0), st.sampled_from([SOLVED, HALF, FAILED]), st.integers(1, 12), st.just(CLEAN) | st.none()
    ),
    min_size=1,
    max_size=6,
)


@settings(deadline=None)
@given(groups=st.lists(GROUPS, max_size=4))
def test_settling_again_changes_nothing_and_keeps_the_order(groups: list[list[Trajectory]]) -> None:
    found = [
        one.model_copy(update={"id": f"{number}.{sample}", "group_id": str(number)})
        for number, group in enumerate(groups)
        for sample, one in enumerate(group)
    ]
    settled = settle(found)
    assert [one.id for one in settled] == [one.id for one in found]
    assert settle(settled) == settled


def test_no_second_layer_is_what_it_was_with_a_bound_of_0() -> None:
    settings = RewardSettings(second_layer=0.0)
    group = [rewarded(place, Verdict.RESOLVED, fixed=SOLVED, turns=place, settings=settings) for place in (1, 9)]
    assert values(settle_group(group)) == [1.0, 1.0]
