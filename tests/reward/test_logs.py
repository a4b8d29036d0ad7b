"""What terms did to rewards, by hand-computed figures."""

import pytest

from patchgym.records import Reward, Term, Trajectory, Verdict
from patchgym.reward import log_of
from tests.records_for_tests import make_trajectory
from tests.reward.attempts_for_tests import rewarded


def planted(sample: int, first: float, style: float, *, gate: str = "partial", task_id: str = "demo-1") -> Trajectory:
    """A trajectory whose reward, from elsewhere, is ``first`` and a term ``style``."""
    terms = {
        "outcome": Term(raw=first, weight=1.0, value=first, why="outcome", layer="outcome"),
        "style": Term(raw=style, weight=1.0, value=style, why="style", layer="quality"),
    }
    reward = Reward(value=first + style, gate=gate, terms=terms)
    base = rewarded(sample, Verdict.UNRESOLVED, task_id=task_id)
    return base.model_copy(update={"reward": reward})


def test_shares_of_the_variance_add_up_to_1() -> None:
    log = log_of([planted(0, 1.0, -0.1), planted(1, 0.0, 0.1)])
    # R = 0.9, 0.1; off the mean +-0.4; outcome +-0.5, style -+0.1
    assert log.terms["outcome"].variance_share == pytest.approx(0.5 / 0.4)
    assert log.terms["style"].variance_share == pytest.approx(-0.1 / 0.4)
    assert log.within_variance == pytest.approx(0.16)


def test_the_advantage_by_shaping_alone_is_what_the_rest_of_the_terms_adds() -> None:
    log = log_of(
        [
            planted(0, 1.0, -0.1),
            planted(1, 0.0, 0.1),
            planted(0, 0.5, 0.0, task_id="b"),
            planted(1, 0.5, 0.0, task_id="b"),
        ]
    )
    assert log.shaping_advantage == pytest.approx((0.1 + 0.0) / 2)
    assert log.shaping_advantage_max == pytest.approx(0.1)
    assert log.outcome_advantage == pytest.approx(0.25)
    assert (log.groups, log.zero_variance) == (2, 1)


def test_advantages_out_of_style_alone_are_phantoms_where_not_all_solved() -> None:
    failed = [planted(0, 0.0, 0.1), planted(1, 0.0, 0.0)]
    solved = [planted(0, 1.0, -0.1, gate="solved", task_id="b"), planted(1, 1.0, 0.0, gate="solved", task_id="b")]
    assert log_of([*failed, *solved]).phantom == 1


def test_settled_groups_hold_no_phantoms() -> None:
    group = [rewarded(place, Verdict.UNRESOLVED, fixed=(1, 2), turns=1 + 5 * place) for place in range(2)]
    log = log_of(group)
    assert (log.phantom, log.zero_variance, log.shaping_advantage) == (0, 1, 0.0)
    assert log.terms["steps"].weighted == 0.0
    assert log.terms["steps"].raw == 3.5


def test_nothing_scored_is_not_measured_rather_than_0() -> None:
    log = log_of([make_trajectory(0)])
    assert (log.scored, log.not_scored, log.mean, log.shaping_advantage, log.terms) == (0, 1, None, None, {})


def test_a_single_attempt_is_no_group() -> None:
    log = log_of([rewarded(0, Verdict.RESOLVED, fixed=(2, 2))])
    assert (log.groups, log.within_variance) == (0, None)
