"""Which groups can teach something: their rewards must differ. Nothing here needs torch."""

from collections.abc import Iterable, Sequence

from patchgym.records import Trajectory
from patchgym.reward import settle_group
from patchgym.train.reasons import Reason
from patchgym.train.report import PolicyGradientSettings

NOISE = 1e-9
"""Differences below it are none."""


def unscored(trajectory: Trajectory) -> Reason | None:
    """Why the reward of a trajectory does not count, if so."""
    if not trajectory.reward_trusted:
        return Reason.NOT_TRUSTED
    return Reason.NOT_SCORED if trajectory.reward is None or trajectory.reward.value is None else None


def value_of(scored: Trajectory) -> float:
    """The reward of a trajectory that has one."""
    assert scored.reward is not None
    assert scored.reward.value is not None
    return scored.reward.value


def useless(scored: Sequence[Trajectory], settings: PolicyGradientSettings) -> Reason | None:
    """Why a group with these scored members can teach nothing, if so. With a learned baseline there is no such
    group."""
    if settings.choices.baseline == "value":
        return None
    if sum(member.in_baseline for member in scored) < settings.min_group:
        return Reason.SMALL_GROUP
    values = [value_of(member) for member in scored]
    spread = max(values) - min(values)
    if spread <= NOISE:
        return Reason.ZERO_VARIANCE
    return Reason.SMALL_SPREAD if spread <= settings.least_spread + NOISE else None


def flat_groups(trajectories: Iterable[Trajectory], settings: PolicyGradientSettings) -> set[str]:
    """The ids of the groups whose rewards do not differ enough to learn from, so that more can be sampled of them.
    Groups must be whole."""
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    flat = set()
    for name, members in groups.items():
        scored = [member for member in settle_group(members) if unscored(member) is None]
        if scored and useless(scored, settings) in (Reason.ZERO_VARIANCE, Reason.SMALL_SPREAD):
            flat.add(name)
    return flat
