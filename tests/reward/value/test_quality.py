"""Figures of scores, against hand-computed ones and against scikit-learn's."""

import random
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.reward.value import Scored, quality
from patchgym.reward.value.plot import svg_plot, text_plot
from patchgym.reward.value.quality import ranking

POINTS = [("a", 0.9, 1.0), ("a", 0.4, 0.0), ("b", 0.6, 1.0), ("b", 0.7, 0.0)]


def test_the_auc_is_the_share_of_pairs_in_the_right_order() -> None:
    assert ranking(POINTS).auc.value == 0.75
    assert ranking(POINTS).auc_within_tasks.value == 0.5
    assert ranking([("a", 0.5, 1.0), ("a", 0.5, 0.0)]).auc.value == 0.5


def test_without_both_outcomes_there_is_no_auc() -> None:
    assert ranking([("a", 0.5, 1.0), ("b", 0.1, 1.0)]).auc.value is None


def test_the_brier_score_is_the_mean_squared_difference() -> None:
    found = ranking(POINTS)
    assert found.brier.value == pytest.approx((0.01 + 0.16 + 0.16 + 0.49) / 4)
    assert found.brier_constant == 0.25


def test_the_calibration_error_weighs_bins_by_their_counts() -> None:
    found = ranking([("a", 0.05, 0.0), ("a", 0.05, 1.0), ("b", 0.95, 1.0), ("b", 0.95, 1.0)])
    assert found.ece.value == pytest.approx(0.5 * 0.45 + 0.5 * 0.05)
    assert [one.count for one in found.bins] == [2, 0, 0, 0, 0, 0, 0, 0, 0, 2]
    assert found.bins[0].solved == 0.5
    assert found.bins[1].solved is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 1), st.sampled_from([0.0, 1.0])), min_size=1))
def test_any_scores_have_figures_within_their_range(points: list[tuple[str, float, float]]) -> None:
    found = ranking(points, resamples=5)
    assert sum(one.count for one in found.bins) == len(points)
    for figure in (found.auc, found.brier, found.ece):
        for value in (figure.value, figure.low, figure.high):
            assert value is None or -1e-9 <= value <= 1 + 1e-9


def test_the_figures_are_those_of_scikit_learn() -> None:
    metrics = pytest.importorskip("sklearn.metrics", reason="needs the value extra")
    dice = random.Random(1)
    points = [(f"t{dice.randint(0, 5)}", round(dice.random(), 1), float(dice.random() < 0.4)) for _ in range(300)]
    found = ranking(points)
    outcomes, scores = [point[2] for point in points], [point[1] for point in points]
    assert found.auc.value == pytest.approx(metrics.roc_auc_score(outcomes, scores))
    assert found.brier.value == pytest.approx(metrics.brier_score_loss(outcomes, scores))


def test_intervals_are_wider_where_attempts_of_a_task_are_alike() -> None:
    dice = random.Random(2)
    outcomes = {task: float(dice.random() < 0.5) for task in range(20)}
    alike = [
        (f"t{task}", min(1, max(0, 0.5 + dice.gauss(0, 0.2))), outcomes[task]) for task in range(20) for _ in range(9)
    ]
    apart = [(f"t{at}", score, outcome) for at, (_, score, outcome) in enumerate(alike)]
    widths = []
    for points in (alike, apart):
        brier = ranking(points).brier
        assert brier.low is not None
        assert brier.high is not None
        widths.append(brier.high - brier.low)
    assert widths[0] > widths[1]


def attempts(scores: dict[str, list[tuple[float, float]]]) -> list[Scored]:
    return [
        Scored(f"{task}{at}", task, task, (0.5, score), outcome)
        for task, found in scores.items()
        for at, (score, outcome) in enumerate(found)
    ]


def test_keeping_the_best_of_each_task_raises_the_share_solved() -> None:
    found = quality(attempts({"a": [(0.9, 1.0), (0.1, 0.0)], "b": [(0.2, 0.0), (0.8, 1.0)]})).selection
    assert found[0].solved.value == 1.0
    assert found[0].solved_of_all == 0.5


def test_equal_scores_share_the_last_place() -> None:
    found = quality(attempts({"a": [(0.9, 1.0), (0.9, 0.0)], "b": [(0.9, 0.0), (0.9, 0.0)]})).selection
    assert found[0].solved.value == 0.25


def test_no_attempts_are_refused() -> None:
    with pytest.raises(ValueError, match="no attempts"):
        quality([])


def test_the_text_plot_has_a_line_for_each_bin() -> None:
    lines = text_plot(ranking(POINTS).bins).split("\n")
    assert len(lines) == 11
    assert lines[10].startswith("0.9-1.0        1  ####")


def test_the_drawing_is_well_formed_and_its_title_is_no_markup() -> None:
    drawn = svg_plot(ranking(POINTS).bins, "<script>alert(1)</script>\x00\x1b&")
    root = ElementTree.fromstring(drawn)
    assert not root.findall(".//{http://www.w3.org/2000/svg}script")
    assert len(root.findall(".//{http://www.w3.org/2000/svg}circle")) == 4
