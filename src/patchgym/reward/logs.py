"""What each term did to the rewards of a round: logged apart, so that a person sees what the policy is paid for.

With ``v(t, i)`` what term ``t`` adds to attempt ``i``, ``R(i)`` its reward, ``F(i)`` its first layer and means over its
group:

- share of within-group variance: ``sum (v(t, i) - mean v(t)) (R(i) - mean R) / sum (R(i) - mean R)^2``, both sums over
  all attempts of all groups. The shares of all terms add up to 1; one is negative where a term works against the rest.
- advantage by shaping alone: ``|(R(i) - mean R) - (F(i) - mean F)|``, its mean over a group's attempts, of which the
  mean over groups and the largest are kept.
- phantom groups: no outcome differs, not all solved the task, and yet rewards differ. The gate of ``settle`` allows
  none.
"""

import math
from collections.abc import Iterable, Sequence

from patchgym.records import Record, Reward, Trajectory
from patchgym.reward.settle import SHAPING, counts, first_layer, settle

_TINY = 1e-12


class TermLog(Record):
    """One term over many attempts."""

    attempts: int
    """Attempts that have it."""
    raw: float
    """The mean of what was measured."""
    weighted: float
    """The mean of what it added to the reward."""
    variance_share: float | None
    """Its share of the variance within groups; None where there is none."""


class RewardLog(Record):
    """The rewards of a round."""

    scored: int
    """Attempts with a reward that may be used."""
    not_scored: int
    """The others, by whatever cause."""
    groups: int
    """Groups with at least two scored attempts in the baseline; all that follows is over these."""
    zero_variance: int
    """Groups whose rewards do not differ."""
    applied: int
    """Groups that the second layer was applied in."""
    phantom: int
    """Groups whose rewards differ by shaping alone though not all solved the task."""
    mean: float | None
    """The mean reward of the scored; None without any."""
    within_variance: float | None
    """The variance of rewards within groups: the mean square of what an attempt is off its group's mean."""
    shaping_advantage: float | None
    """The mean advantage that shaping alone creates."""
    shaping_advantage_max: float | None
    """The largest mean of a group."""
    outcome_advantage: float | None
    """The mean absolute advantage by the first layer alone, to compare with."""
    terms: dict[str, TermLog]
    """By the term's name."""


def log_of(trajectories: Iterable[Trajectory]) -> RewardLog:
    """The log of a round whose groups are whole; rewards are settled first."""
    settled = settle(trajectories)
    scored = [one for one in settled if counts(one)]
    groups: dict[str, list[Reward]] = {}
    for one in scored:
        if one.in_baseline and one.reward is not None:
            groups.setdefault(one.group_id, []).append(one.reward)
    whole = [group for group in groups.values() if len(group) > 1]
    members = [reward for group in whole for reward in group]
    shaping = [_mean([abs(a - b) for a, b in zip(_off(group), _off_first(group), strict=True)]) for group in whole]
    outcome = [_mean([abs(each) for each in _off_first(group)]) for group in whole]
    total = sum(off * off for group in whole for off in _off(group))
    return RewardLog(
        scored=len(scored),
        not_scored=len(settled) - len(scored),
        groups=len(whole),
        zero_variance=sum(not _varies(_values(group)) for group in whole),
        applied=sum(any(reward.second_layer == "applied" for reward in group) for group in whole),
        phantom=sum(_is_phantom(group) for group in whole),
        mean=_mean([value for value in (one.reward.value for one in scored if one.reward) if value is not None])
        if scored
        else None,
        within_variance=total / len(members) if members else None,
        shaping_advantage=_mean(shaping) if whole else None,
        shaping_advantage_max=max(shaping) if whole else None,
        outcome_advantage=_mean(outcome) if whole else None,
        terms={name: _term_log(name, whole, total) for name in _names(members)},
    )


def added(reward: Reward, name: str) -> float:
    """What a term added to a settled reward; 0 where it has none, or its layer was withheld."""
    term = reward.terms.get(name)
    if term is None or (term.layer in SHAPING and reward.second_layer in ("waits", "withheld")):
        return 0.0
    return term.value


def _term_log(name: str, groups: Sequence[Sequence[Reward]], total: float) -> TermLog:
    have = [reward for group in groups for reward in group if name in reward.terms]
    covariance = 0.0
    for group in groups:
        values = [added(reward, name) for reward in group]
        mean = _mean(values)
        covariance += sum((value - mean) * off for value, off in zip(values, _off(group), strict=True))
    return TermLog(
        attempts=len(have),
        raw=_mean([reward.terms[name].raw for reward in have]),
        weighted=_mean([added(reward, name) for reward in have]),
        variance_share=covariance / total if total > _TINY else None,
    )


def _names(rewards: Iterable[Reward]) -> list[str]:
    return list(dict.fromkeys(name for reward in rewards for name in reward.terms))


def _values(group: Sequence[Reward]) -> list[float]:
    return [reward.value for reward in group if reward.value is not None]


def _off(group: Sequence[Reward]) -> list[float]:
    values = _values(group)
    return [value - _mean(values) for value in values]


def _off_first(group: Sequence[Reward]) -> list[float]:
    firsts = [first_layer(reward) or 0.0 for reward in group]
    return [first - _mean(firsts) for first in firsts]


def _varies(values: Sequence[float]) -> bool:
    return max(values) - min(values) > 1e-9


def _is_phantom(group: Sequence[Reward]) -> bool:
    firsts = [first_layer(reward) or 0.0 for reward in group]
    return not _varies(firsts) and _varies(_values(group)) and not all(reward.gate == "solved" for reward in group)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
