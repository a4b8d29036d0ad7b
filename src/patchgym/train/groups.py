"""From graded trajectories to rows with advantages."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import torch

from patchgym.records import Trajectory
from patchgym.reward import settle_group
from patchgym.train.advantages import MIN_GROUP, group_advantages
from patchgym.train.rows import Reason, RowSet, TokenRow, rows_from_trajectory


def policy_gradient_rows(trajectories: Iterable[Trajectory], *, max_length: int, divide_by_std: bool = False) -> RowSet:
    """Rows of graded trajectories, each with its trajectory's advantage over its group.

    Rewards are first settled in their groups, which must be whole (``patchgym.reward.settle``). Only a trusted reward
    that is a number counts; no reward is not a reward of 0. The baseline is the mean over the
    members with ``in_baseline``, whether or not their rows are fit to train. Rows without an advantage to speak of
    (their gradient would be zero) are left out under ``ZERO_VARIANCE`` or ``ZERO_ADVANTAGE`` before they cost time.
    """
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    rows: list[TokenRow] = []
    left_out: Counter[Reason] = Counter()
    flat = 0
    for members in groups.values():
        scored = []
        for member in settle_group(members):
            reason = _unscored(member)
            if reason:
                left_out[reason] += 1
            else:
                scored.append(member)
        advantages = _advantages(scored, divide_by_std)
        if advantages is None:
            left_out[Reason.SMALL_GROUP] += len(scored)
            continue
        varied = any(advantages)
        flat += not varied
        for member, advantage in zip(scored, advantages, strict=True):
            if not advantage:
                left_out[Reason.ZERO_ADVANTAGE if varied else Reason.ZERO_VARIANCE] += 1
                continue
            part = rows_from_trajectory(member, max_length=max_length)
            rows += [replace(row, advantage=advantage) for row in part.rows]
            left_out.update(part.left_out)
    return RowSet(rows=tuple(rows), left_out=left_out, groups=len(groups), zero_variance_groups=flat)


def _unscored(trajectory: Trajectory) -> Reason | None:
    if not trajectory.reward_trusted:
        return Reason.NOT_TRUSTED
    return Reason.NOT_SCORED if trajectory.reward is None or trajectory.reward.value is None else None


def _advantages(scored: Sequence[Trajectory], divide_by_std: bool) -> list[float] | None:
    """One advantage a member, rounding noise as exactly 0; None where the baseline has too few members."""
    in_baseline_G = torch.tensor([member.in_baseline for member in scored], dtype=torch.bool)
    if int(in_baseline_G.sum()) < MIN_GROUP:
        return None
    values = [member.reward.value for member in scored if member.reward and member.reward.value is not None]
    rewards_G = torch.tensor(values, dtype=torch.float64)
    advantages_G = group_advantages(rewards_G, in_baseline_G, divide_by_std=divide_by_std)
    return [0.0 if abs(value) < 1e-9 else value for value in advantages_G.tolist()]
