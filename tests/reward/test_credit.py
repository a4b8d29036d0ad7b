"""Rules credit steps for what they did, once each, within bounds."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchgym.records import Outcome, Step, Trajectory
from patchgym.reward.credit import CreditSettings, StepCredit, step_credits
from tests.records_for_tests import make_step
from tests.reward.value.made import edited, ran_tests, step
from tests.traces.trajectories_for_tests import trajectories

KEYS = ("src/a.py", "src/b.py")


def names(credits: list[StepCredit]) -> list[list[str]]:
    return [[rule.name for rule in credit.rules] for credit in credits]


def test_a_key_file_is_located_once_and_edited_once() -> None:
    steps = [
        step(0, "read_file", path="src/a.py"),
        step(1, "read_file", path="src/a.py", start="40"),
        edited(2, "src/a.py", "s0", "s1"),
        edited(3, "src/a.py", "s1", "s2"),
    ]
    assert names(step_credits(steps, KEYS)) == [["located"], [], ["edited"], []]


def test_a_search_that_finds_something_in_a_key_file_locates_it() -> None:
    found = step(0, "search", pattern="def ", shown="src/b.py:12:def b():\nother.py:1:def o():")
    assert names(step_credits([found], KEYS)) == [["located"]]


def test_a_list_of_names_locates_nothing() -> None:
    steps = [
        step(0, "list_files", path="src/a.py", shown="src/a.py\nsrc/b.py"),
        step(1, "run_command", command="ls src/a.py", shown="src/a.py"),
    ]
    assert names(step_credits(steps, KEYS)) == [[], []]


def test_a_command_that_prints_a_key_file_locates_it() -> None:
    steps = [step(0, "bash", command="cat /work/repo/src/a.py"), step(1, "bash", command="cat src/a.pyx")]
    assert names(step_credits(steps, KEYS)) == [["located"], []]


def test_without_key_files_nothing_is_located() -> None:
    steps = [step(0, "read_file", path="src/a.py"), edited(1, "src/a.py", "s0", "s1")]
    assert names(step_credits(steps)) == [[], []]


def test_fixing_a_failing_test_pays_once_and_breaking_it_costs_each_time() -> None:
    steps = [
        ran_tests(0, passing=0, failing=2),
        edited(1, "x.py", "s0", "s1"),
        ran_tests(2, passing=1, failing=1, state="s1"),
        ran_tests(3, passing=0, failing=2, state="s2"),
        ran_tests(4, passing=1, failing=1, state="s3"),
        ran_tests(5, passing=0, failing=2, state="s4"),
    ]
    assert names(step_credits(steps)) == [[], [], ["fixed"], ["broken"], [], ["broken"]]


def test_a_cycle_of_breaking_and_mending_is_never_worth_anything() -> None:
    cycle = [ran_tests(0, passing=0, failing=1), ran_tests(1, passing=1, failing=0, state="s1")]
    for turn in range(2, 20, 2):
        cycle += [
            ran_tests(turn, passing=0, failing=1, state=f"s{turn}"),
            ran_tests(turn + 1, passing=1, failing=0, state=f"s{turn + 1}"),
        ]
    credits = step_credits(cycle)
    assert sum(credit.value for credit in credits[2:]) < 0


def test_a_test_run_after_a_change_that_breaks_nothing_pays_once() -> None:
    steps = [
        ran_tests(0, passing=2, failing=0),
        edited(1, "x.py", "s0", "s1"),
        ran_tests(2, passing=2, failing=0, state="s1"),
        edited(3, "x.py", "s1", "s2"),
        ran_tests(4, passing=2, failing=0, state="s2"),
    ]
    assert names(step_credits(steps)) == [[], [], ["kept"], [], []]


def test_the_same_action_in_the_same_state_is_a_wasted_call() -> None:
    steps = [step(0, "read_file", path="x.py"), step(1), step(2, "read_file", path="x.py")]
    assert names(step_credits(steps)) == [[], [], ["wasted"]]


def test_the_same_action_in_another_state_is_none() -> None:
    again = step(2, "read_file", path="x.py", before="s1", after="s1")
    assert names(step_credits([step(0, "read_file", path="x.py"), edited(1, "x.py", "s0", "s1"), again]))[2] == []


def test_refused_and_unreadable_actions_are_wasted_calls() -> None:
    assert names(step_credits([step(0, ok=False), make_step(1, readable=False)])) == [["wasted"], ["wasted"]]


def test_an_answer_without_a_call_in_an_imported_log_is_no_waste() -> None:
    said = make_step(0).model_copy(update={"action": None, "observation": None})
    assert names(step_credits([said])) == [[]]


def test_without_states_only_the_step_right_before_counts_as_the_same() -> None:
    steps = [step(at, "bash", before=None, after=None, changed=None, command="date", shown="1") for at in range(2)]
    assert names(step_credits(steps)) == [[], ["wasted"]]


def test_an_imported_edit_names_its_file_by_its_arguments() -> None:
    edit = step(0, "Edit", before=None, after=None, changed=None, ok=None, file_path="src/a.py", new_string="x")
    assert "edited" in names(step_credits([edit], KEYS))[0]


def test_submitting_with_tests_known_to_fail_costs() -> None:
    failing, passing = ran_tests(0, passing=0, failing=1), ran_tests(0, passing=1, failing=0)
    assert names(step_credits([failing, step(1, "submit")]))[1] == ["submitted_failing"]
    assert names(step_credits([passing, step(1, "submit")]))[1] == []
    assert names(step_credits([step(0, "submit")]))[0] == []


def test_every_rule_says_why() -> None:
    steps = [step(0, "read_file", path="src/a.py"), ran_tests(1, passing=0, failing=1), step(2, "submit")]
    rules = [rule for credit in step_credits(steps, KEYS) for rule in credit.rules]
    assert rules
    assert all(rule.why for rule in rules)


STEPS = st.lists(
    st.builds(
        lambda passing, failing, state, tool, path, ok: (
            ran_tests(0, passing=passing, failing=failing, state=state)
            if tool == "run_tests"
            else step(0, tool, before=state, after=state, changed=(path,), ok=ok, path=path)
        ),
        st.integers(0, 3),
        st.integers(0, 3),
        st.sampled_from(["s0", "s1"]),
        st.sampled_from(["run_tests", "read_file", "edit_file", "submit"]),
        st.sampled_from(["src/a.py", "src/b.py", "x.py"]),
        st.booleans(),
    ),
    max_size=60,
)
WEIGHTS = st.fixed_dictionaries(
    {name: st.floats(0, 5) for name in CreditSettings.model_fields if name != "bound"} | {"bound": st.floats(0, 1)}
)


@given(STEPS, WEIGHTS)
def test_the_credits_add_up_to_within_the_bounds_whatever_the_steps_and_weights(
    steps: list[Step], weights: dict[str, float]
) -> None:
    chosen = CreditSettings(**weights)
    values = [credit.value for credit in step_credits(steps * 3, KEYS, chosen)]
    for total in (sum(values), sum(reversed(values)), math.fsum(values)):
        assert -chosen.bound <= total <= chosen.bound


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trajectories())
def test_any_trajectory_has_a_credit_for_each_step(trajectory: Trajectory) -> None:
    credits = step_credits(trajectory.steps, ("a",))
    assert [credit.index for credit in credits] == [one.index for one in trajectory.steps]


def test_a_path_is_never_a_pattern() -> None:
    assert names(step_credits([step(0, "read_file", path="srcXa.py")], ("src.a.py", "(")))[0] == []


@pytest.mark.parametrize("outcome", [Outcome.SKIPPED, Outcome.TIMED_OUT])
def test_a_test_that_shows_nothing_is_neither_fixed_nor_broken(outcome: Outcome) -> None:
    steps = [step(0, "run_tests", tests={"t": Outcome.PASSED}), step(1, "run_tests", after="s1", tests={"t": outcome})]
    assert "broken" not in names(step_credits(steps))[1]
