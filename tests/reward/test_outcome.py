"""The first layer decides; the second never reorders it."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.config import validated
from patchgym.errors import ConfigError
from patchgym.records import Evidence, Verdict
from patchgym.reward import RewardSettings, score, settle_group
from patchgym.reward.settings import proof_against
from tests.records_for_tests import make_report, make_trajectory
from tests.reward.attempts_for_tests import best, make_attempt, rewarded, worst

WEIGHTS = (
    "steps",
    "tokens",
    "tool_effectiveness",
    "patch_size",
    "key_files_read",
    "key_files_edited",
    "compiles",
    "lint",
    "coverage",
)
PROOF = Evidence(kind="conftest", where="conftest.py:1", quote="os._exit(0)", why="It ends the tests.", proof=True)
HINT = PROOF.model_copy(update={"proof": False})


def worth(
    verdict: Verdict, fixed: tuple[int, int] = (0, 2), kept: tuple[int, int] = (5, 5), **report: object
) -> float | None:
    made = make_report(verdict, fixed=fixed, kept=kept).model_copy(update=report)
    return score(make_attempt(made), RewardSettings()).value


def test_half_of_the_tests_fixed_is_worth_0_3_and_solved_1() -> None:
    assert worth(Verdict.UNRESOLVED, (1, 2)) == pytest.approx(0.3)
    assert worth(Verdict.RESOLVED, (2, 2)) == 1.0


def test_unsolved_is_capped_well_under_solved() -> None:
    assert worth(Verdict.UNRESOLVED, (99, 100)) == 0.5


def test_breaking_something_costs_the_partial_credit() -> None:
    assert worth(Verdict.UNRESOLVED, (1, 2), (4, 5)) == 0.0


def test_every_test_passed_and_yet_not_resolved_is_worth_as_much_as_one_test_less() -> None:
    assert worth(Verdict.UNRESOLVED, (4, 4)) == worth(Verdict.UNRESOLVED, (3, 4))
    assert worth(Verdict.UNRESOLVED, (1, 1)) == 0.0


@pytest.mark.parametrize("verdict", [Verdict.TAMPERED, Verdict.INVALID, Verdict.TIMEOUT])
def test_a_gated_verdict_is_worth_nothing_whatever_was_fixed(verdict: Verdict) -> None:
    assert worth(verdict, (1, 2)) == 0.0


@pytest.mark.parametrize("verdict", [Verdict.INFRA_ERROR, Verdict.ABSTAINED])
def test_what_says_nothing_of_the_attempt_has_no_reward_at_all(verdict: Verdict) -> None:
    assert worth(verdict, (2, 2)) is None


def test_a_time_out_of_the_machine_is_not_scored_and_one_of_the_policy_is_0() -> None:
    assert worth(Verdict.TIMEOUT, timeout_of="machine") is None
    assert worth(Verdict.TIMEOUT, timeout_of="policy") == 0.0


def test_proof_of_hacking_zeroes_a_solution() -> None:
    solved = make_attempt(make_report(Verdict.RESOLVED, fixed=(2, 2)))
    reward = score(solved, RewardSettings(), [HINT, PROOF])
    assert (reward.gate, reward.value, reward.evidence) == ("tampered", 0.0, (HINT, PROOF))


def test_what_is_no_proof_marks_and_leaves_the_value() -> None:
    reward = score(make_attempt(make_report(Verdict.RESOLVED, fixed=(2, 2))), RewardSettings(), [HINT])
    assert (reward.gate, reward.value, reward.evidence) == ("solved", 1.0, (HINT,))


def test_proof_does_not_turn_an_infrastructure_fault_into_a_0() -> None:
    assert score(make_attempt(make_report(Verdict.INFRA_ERROR)), RewardSettings(), [PROOF]).value is None


RECIPES = st.fixed_dictionaries(
    {
        "half": st.floats(0.0, 0.9),
        "cap": st.floats(0.0, 1.0),
        "second_layer": st.floats(0.0, 0.5),
        "weights": st.fixed_dictionaries({name: st.floats(0.0, 1e6) for name in WEIGHTS}),
    }
)


@settings(max_examples=60, deadline=None)
@given(total=st.integers(1, 14), recipe=RECIPES)
def test_whatever_the_recipe_no_style_reorders_two_outcomes(total: int, recipe: dict[str, object]) -> None:
    try:
        chosen = validated(RewardSettings, recipe, "drawn")
    except ConfigError:
        return  # refused, and another test looks at why
    reports = [
        make_report(Verdict.RESOLVED if fixed == total else Verdict.UNRESOLVED, fixed=(fixed, total))
        for fixed in range(total + 1)
    ]
    attempts = [how(report) for report in reports for how in (worst, best)]
    members = [
        make_trajectory(place, report=attempt.report).model_copy(update={"reward": score(attempt, chosen)})
        for place, attempt in enumerate(attempts)
    ]
    rewards = [one.reward for one in settle_group(members) if one.reward is not None]
    levels = [(reward.terms["outcome"].value, reward.value) for reward in rewards]
    for (first_a, value_a), (first_b, value_b) in itertools.product(levels, repeat=2):
        assert value_a is not None
        assert value_b is not None
        assert 0 <= value_a <= 1
        if first_a > first_b:
            assert value_a > value_b


@settings(max_examples=200)
@given(half=st.floats(0.0, 2.0), cap=st.floats(0.0, 2.0), most=st.floats(0.0, 2.0))
def test_a_recipe_is_refused_where_an_unsolved_attempt_could_reach_a_wasteful_solution(
    half: float, cap: float, most: float
) -> None:
    sound = RewardSettings()
    drawn = sound.model_copy(update={"half": half, "cap": cap, "second_layer": most})  # not validated
    assert bool(proof_against(drawn)) == (min(cap, 2 * half) >= 1 - most or half > cap)


def test_the_refusal_shows_the_two_attempts_with_their_numbers() -> None:
    with pytest.raises(ConfigError) as caught:
        validated(RewardSettings, {"second_layer": 0.6}, "mine")
    assert "A solves the task wastefully and would get 1 - 0.6 = 0.4000" in str(caught.value)
    assert "B fixes 9 of 10 failing tests, solves nothing, and would get min(0.5, 2 x 0.3 x 9/10) = 0.5000" in str(
        caught.value
    )


def test_a_negative_weight_is_refused_with_what_it_would_pay() -> None:
    with pytest.raises(ConfigError, match=r"the worst in steps, would get 1\.\d+, and B, the best in it, 1\.0000"):
        validated(RewardSettings, {"weights": {"steps": -0.1}}, "mine")


def test_a_weight_of_a_term_that_is_not_there_names_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean weights\.tool_effectiveness"):
        validated(RewardSettings, {"weights": {"tool_efectiveness": 1.0}}, "mine")


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="finite"):
        validated(RewardSettings, {"weights": {"steps": wrong}}, "mine")


def test_an_attempt_by_itself_has_the_first_layer_and_waits() -> None:
    reward = rewarded(0, Verdict.RESOLVED, fixed=(2, 2), turns=12).reward
    assert reward is not None
    assert (reward.value, reward.second_layer) == (1.0, "waits")
    assert reward.terms["steps"].value < 0
