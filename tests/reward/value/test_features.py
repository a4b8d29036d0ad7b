"""Features come from the record alone, and what it does not say is None."""

from hypothesis import HealthCheck, given, settings

from patchgym.records import Limits, Step, Trajectory
from patchgym.reward.value import FEATURES, step_features
from tests.records_for_tests import make_step
from tests.reward.value.made import edited, ran_tests, step
from tests.traces.trajectories_for_tests import trajectories


def after(steps: list[Step], limits: Limits | None = None) -> dict[str, float | None]:
    return dict(zip(FEATURES, step_features(steps, limits)[-1], strict=True))


def test_every_feature_is_documented_and_measured() -> None:
    assert all(FEATURES.values())
    assert len(step_features([make_step()])[0]) == len(FEATURES)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(trajectories())
def test_any_trajectory_has_features_and_the_past_alone_decides_them(trajectory: Trajectory) -> None:
    rows = step_features(trajectory.steps)
    assert len(rows) == len(trajectory.steps)
    for size in range(1, len(rows)):
        assert step_features(trajectory.steps[:size]) == rows[:size]


def test_the_last_test_run_is_counted() -> None:
    found = after([ran_tests(0, passing=1, failing=3), edited(1, "a", "s0", "s1")])
    assert (found["passing"], found["failing"], found["failing_share"]) == (1, 3, 0.75)
    assert (found["steps_since_tests"], found["changes_since_tests"]) == (1, 1)


def test_without_a_test_run_nothing_is_known_of_tests() -> None:
    assert after([step(0)])["failing"] is None


def test_limits_are_those_of_the_task() -> None:
    assert after([step(0), step(1)], Limits(turns=4))["turn_share"] == 0.5


def test_going_back_to_an_earlier_state_shows() -> None:
    there = [edited(0, "a", "s0", "s1"), edited(1, "a", "s1", "s0")]
    assert after(there)["state_seen_before"] == 1
    assert after(there)["unchanged"] == 1
    assert after(there[:1])["state_seen_before"] == 0


def test_what_is_not_recorded_is_none() -> None:
    bare = make_step().model_copy(
        update={"state_before": None, "state_after": None, "usage": None, "sampling_seconds": None, "observation": None}
    )
    found = after([bare])
    unknown = ("token_share", "seconds_share", "new_states", "unchanged", "shown_size", "exit_code")
    assert [found[name] for name in unknown] == [None] * 6


def test_wasted_calls_are_counted_by_their_kind() -> None:
    found = after([step(0), step(1), step(2, ok=False), make_step(3, readable=False)])
    assert (found["repeated"], found["refused"], found["unreadable"]) == (1, 1, 1)
