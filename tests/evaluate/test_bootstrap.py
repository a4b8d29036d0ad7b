"""Intervals by resampling tasks: their coverage, their edges, their quantiles."""

from math import sqrt

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from patchgym.evaluate.bootstrap import Estimate, mean_estimate, percentiles, ratio_estimates
from patchgym.evaluate.quantiles import normal_quantile, t_quantile

SHARE = (0.0, 1.0)


@pytest.mark.parametrize("p", [0.6, 0.9, 0.975, 0.995])
@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 9, 30, 299, 300, 5000])
def test_quantiles_of_students_distribution_are_scipys(p: float, freedom: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    assert t_quantile(p, freedom) == pytest.approx(stats.t.ppf(p, freedom), rel=1e-6)
    assert t_quantile(1 - p, freedom) == pytest.approx(-t_quantile(p, freedom))


def test_the_interval_of_a_mean_is_that_of_students_distribution_where_a_mean_is_normal() -> None:
    values = numpy.random.default_rng(3).normal(0.5, 0.1, 400)
    found = mean_estimate(list(values), SHARE)
    half = t_quantile(0.975, 399) * values.std(ddof=1) / sqrt(400)
    assert found.value == pytest.approx(values.mean())
    assert found.high - found.low == pytest.approx(2 * half, rel=0.04)


def test_the_percentiles_are_those_of_scipys_bootstrap() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    values = numpy.random.default_rng(4).binomial(4, 0.3, 500) / 4
    peer = stats.bootstrap((values,), numpy.mean, method="percentile", n_resamples=10_000, rng=1).confidence_interval
    found = mean_estimate(list(values), SHARE)
    width = found.high - found.low
    assert [found.low, found.high] == pytest.approx([peer.low, peer.high], abs=width / 20)


@pytest.mark.parametrize("tasks", [2, 5, 10, 100, 1000])
def test_few_tasks_are_taken_further_out_than_their_draws_vary(tasks: int) -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    share = stats.norm.cdf(-((tasks / (tasks - 1)) ** 0.5) * stats.t.ppf(0.975, tasks - 1))
    assert percentiles(tasks) == pytest.approx((share, 1 - share))


def test_an_interval_is_cut_at_these_percentiles() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    values = numpy.random.default_rng(6).random(10)
    low, high = percentiles(10)
    peer = stats.bootstrap(
        (values,), numpy.mean, confidence_level=high - low, method="percentile", n_resamples=10_000, rng=1
    ).confidence_interval
    found = mean_estimate(list(values), SHARE)
    assert [found.low, found.high] == pytest.approx([peer.low, peer.high], abs=(found.high - found.low) / 30)


@pytest.mark.parametrize("kind", ["one sample", "four samples", "rarely solved", "differences"])
def test_95_of_100_intervals_of_100_tasks_hold_the_truth(kind: str) -> None:
    random = numpy.random.default_rng(5)
    tasks, runs = 100, 400
    within = SHARE
    if kind == "one sample":
        table, truth = (random.random((runs, tasks)) < 0.3).astype(float), 0.3
    elif kind == "four samples":
        table, truth = random.binomial(4, random.beta(0.5, 0.9, (runs, tasks))) / 4, 0.5 / 1.4
    elif kind == "rarely solved":
        table, truth = random.binomial(8, random.beta(0.2, 1.8, (runs, tasks))) / 8, 0.1
    else:
        drawn = random.random((runs, tasks))
        table, truth, within = numpy.where(drawn < 0.25, 1.0, numpy.where(drawn < 0.4, -1.0, 0.0)), 0.1, (-1.0, 1.0)
    found = [mean_estimate(list(row), within, seed=seed) for seed, row in enumerate(table)]
    share = sum(one.low <= truth <= one.high for one in found) / runs
    assert 0.92 <= share <= 0.98
    below, above = sum(one.high < truth for one in found), sum(one.low > truth for one in found)
    assert max(below, above) <= 0.06 * runs


def test_samples_of_one_task_do_not_count_as_tasks() -> None:
    # Twenty tasks that are wholly solved or not at all: a hundred samples each make the interval no narrower.
    one = ratio_estimates([[float(task % 2)] for task in range(20)], [[1.0]] * 20, SHARE)[0]
    many = ratio_estimates([[100.0 * (task % 2)] for task in range(20)], [[100.0]] * 20, SHARE)[0]
    assert one is not None
    assert many is not None
    assert one.low == pytest.approx(many.low, abs=0.051)
    assert one.high == pytest.approx(many.high, abs=0.051)
    assert one.high - one.low > 0.35


def test_tasks_that_all_came_out_alike_give_the_interval_of_what_would_go_unseen() -> None:
    stats = pytest.importorskip("scipy.stats", reason="scipy comes with the value extra")
    exact = stats.binomtest(0, 20).proportion_ci(0.95, method="exact")
    none, every = mean_estimate([0.0] * 20, SHARE), mean_estimate([1.0] * 20, SHARE)
    assert [none.low, none.high] == pytest.approx([0.0, exact.high])
    assert [every.low, every.high] == pytest.approx([1 - exact.high, 1.0])


def test_no_difference_on_any_task_is_not_taken_for_certainty() -> None:
    found = mean_estimate([0.0] * 5, (-1.0, 1.0))
    assert found.low == -found.high < -0.5


def test_a_single_task_says_next_to_nothing() -> None:
    found = mean_estimate([0.5], SHARE)
    assert found.low < 0.02
    assert found.high > 0.98


def test_a_single_task_tells_no_interval_of_what_has_no_bounds() -> None:
    assert ratio_estimates([[7.0]], [[1.0]], None) == [None]


def test_the_mean_of_no_task_is_refused() -> None:
    with pytest.raises(ValueError, match="no task"):
        mean_estimate([], SHARE)


def test_a_column_without_tasks_has_no_estimate() -> None:
    found = ratio_estimates([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]], SHARE)
    assert found[0] is not None
    assert found[1] is None


def test_the_same_seed_gives_the_same_interval() -> None:
    values = [0.0, 0.25, 0.5, 1.0, 1.0, 0.75] * 5
    assert mean_estimate(values, SHARE, seed=7) == mean_estimate(values, SHARE, seed=7)


def test_many_kinds_of_tasks_are_drawn_as_few_are() -> None:
    # Two ways of drawing: by kinds of tasks, and task by task where there are many kinds. A tiny jitter makes many.
    values = [0.0, 1.0, 1.0] * 50
    apart = [value + task * 1e-9 for task, value in enumerate(values)]
    few, many = mean_estimate(values, (0.0, 2.0)), mean_estimate(apart, (0.0, 2.0))
    assert [few.low, few.high] == pytest.approx([many.low, many.high], abs=0.01)


@settings(deadline=None)
@given(some.lists(some.floats(-1, 1), min_size=1, max_size=30))
def test_an_interval_of_differences_holds_their_mean(values: list[float]) -> None:
    found = mean_estimate(values, (-1.0, 1.0))
    assert -1 - 1e-9 <= found.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.high <= 1 + 1e-9


def test_an_estimate_reads_itself_back() -> None:
    found = mean_estimate([0.0, 1.0], SHARE)
    assert Estimate.model_validate_json(found.model_dump_json()) == found


def test_the_normal_quantile_is_the_known_one() -> None:
    assert normal_quantile(0.975) == pytest.approx(1.959964, abs=1e-6)
