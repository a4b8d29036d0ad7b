"""Advantages: how much better a trajectory did than its group. Pure functions on tensors of shape G (group members).

A reward of None never gets here as 0: who has no reward is no member (``rows.policy_gradient_rows``).
"""

import torch
from torch import Tensor

MIN_GROUP = 2
"""The fewest members that make a baseline; one member alone would always have advantage 0."""


def group_advantages(rewards_G: Tensor, in_baseline_G: Tensor, *, divide_by_std: bool = False) -> Tensor:
    """Group-relative advantages, shape G: reward minus the mean reward of the members that may enter the baseline.

    ``rewards_G`` are floats, ``in_baseline_G`` bools. A member outside the baseline gets an advantage and shifts
    nobody else's. The mean baseline without a deviation is Dr. GRPO's (Liu et al. 2025, arXiv:2503.20783, section
    3.2); ``divide_by_std`` adds the division by the baseline members' standard deviation (Bessel-corrected, plus
    1e-6) of GRPO (Shao et al. 2024, arXiv:2402.03300, equation 3's advantage), which blows up small differences in
    groups of nearly equal rewards.

    Raises:
        ValueError: fewer than ``MIN_GROUP`` members are in the baseline, or a reward is not finite.
    """
    if not bool(torch.isfinite(rewards_G).all()):
        raise ValueError("a reward is not finite")
    baseline_M = rewards_G[in_baseline_G]
    if len(baseline_M) < MIN_GROUP:
        raise ValueError(f"a baseline needs {MIN_GROUP} members, and the group has {len(baseline_M)}")
    advantages_G = rewards_G - baseline_M.mean()
    return advantages_G / (baseline_M.std() + 1e-6) if divide_by_std else advantages_G
