"""Figures of phases, against hand-made runs and published values."""

from pathlib import Path

import pytest

from patchgym.records import Evidence, Verdict
from patchgym.view.charts import Series, bar_chart, line_chart
from patchgym.view.figures import Spread, phases, reward_bins, spread, student, summary
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.compare import differing
from tests.records_for_tests import make_report, make_trajectory
from tests.view.making import HOSTILE, graded, loop_run, write_run


@pytest.mark.parametrize(
    ("freedom", "value"), [(2, 4.303), (3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (500, 1.965)]
)
def test_students_t_is_that_of_the_tables(freedom: int, value: float) -> None:
    assert student(freedom) == pytest.approx(value, rel=0.01)


def test_an_interval_is_over_tasks_and_needs_three_of_them() -> None:
    assert spread([]) is None
    assert spread([None]) is None
    assert spread([0.0, 1.0]) == Spread(0.5, None, None, 2)
    found = spread([0.0, 0.5, 1.0, None])
    assert found is not None
    assert (found.value, found.tasks) == (0.5, 3)
    assert found.low == pytest.approx(0.5 - 4.303 * 0.5 / 3**0.5, rel=0.05)
    assert spread([0.0, 0.5, 1.0], within=(0.0, 1.0)) == Spread(0.5, 0.0, 1.0, 3)


def test_phases_are_counted_in_their_order(tmp_path: Path) -> None:
    run = OpenedRun(loop_run(tmp_path / "run"), "run", tmp_path / "index")
    run.index.catch_up()
    with run.index.open() as connection:
        found = phases(connection)
        assert summary(connection).solved == Spread(1.0, None, None, 1)
        assert dict(reward_bins(connection))["0"] == 7
    assert [one.name for one in found] == ["round-1", "round-2", "round-3", "eval-1", "eval-2"]
    assert [one.solved.value for one in found if one.solved] == [0.25, 0.5, 0.75, 0.0, 1.0]
    assert [one.solved_heldout.value if one.solved_heldout else None for one in found] == [None, None, None, 0.0, 1.0]
    assert [one.measures for one in found] == [False, False, False, True, True]


def test_hacked_and_lost_attempts_have_their_own_shares(tmp_path: Path) -> None:
    proof = Evidence(kind="canary", proof=True)
    hacked = make_trajectory(
        0, report=make_report(Verdict.TAMPERED).model_copy(update={"evidence": (proof,)}), reward=0.0
    )
    path = write_run(tmp_path / "run", [hacked, make_trajectory(1), graded(2, solved=True)])
    run = OpenedRun(path, "run", tmp_path / "index")
    run.index.catch_up()
    with run.index.open() as connection:
        (found,) = phases(connection)
    assert (found.attempts, found.lost, found.hacked) == (3, 1, 0.5)
    assert found.hacked_over == Spread(0.5, None, None, 1)
    assert found.solved is not None
    assert found.solved.value == 0.5


def test_a_chart_of_nothing_is_none() -> None:
    assert line_chart("Reward", ["a"], [Series("x", [None])]) is None
    assert bar_chart("Rewards", [("0", 0)]) is None


def test_a_chart_comes_with_its_figures_and_words() -> None:
    chart = line_chart(
        "Reward",
        ["one", "two"],
        [Series("x", [Spread(0.25, 0.0, 0.5, 4), None]), Series("y", [None, Spread(1.0, None, None, 4)])],
    )
    assert chart is not None
    assert chart.rows == [["one", "0.25 (0 to 0.50)", "–"], ["two", "–", "1"]]
    assert 'aria-label="Reward. x: 0.25 at one; y: 1 at two"' in chart.svg
    assert [name for name, _ in chart.legend] == ["x", "y"]


def test_series_differ_by_more_than_colour() -> None:
    chart = line_chart("Reward", ["a"], [Series(str(n), [Spread(n, None, None, 1)]) for n in range(12)])
    assert chart is not None
    assert len({str(key) for _, key in chart.legend}) == 12


def test_hostile_names_stay_text_in_a_chart() -> None:
    chart = line_chart(HOSTILE, [HOSTILE], [Series(HOSTILE, [Spread(0.5, None, None, 1)])])
    assert chart is not None
    assert "<script" not in chart.svg
    assert "\u202e" not in chart.svg


def test_settings_that_are_the_same_everywhere_are_not_shown() -> None:
    rows = differing({"a": {"seed": "1", "policy": "x"}, "b": {"seed": "2", "policy": "x"}})
    assert rows == [("seed", ["1", "2"])]
    assert differing({"a": {"seed": "1"}}) == []
