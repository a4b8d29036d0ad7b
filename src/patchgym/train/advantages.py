"""Advantages: how much better a trajectory, a step or a token did than could be expected. Pure functions on tensors.

G counts the members of a group, S the steps of all of them, N the trained tokens of one row. A reward of None never
gets here as 0: who has no reward is no member (``groups.policy_gradient_rows``).
"""

import torch
from torch import Tensor

MIN_GROUP = 2
"""The fewest members that make a baseline; one member alone would always have advantage 0."""


def group_advantages(rewards_G: Tensor, in_baseline_G: Tensor, *, divide_by_std: bool = False) -> Tensor:
    """Group-relative advantages, shape G: reward minus the mean reward of the members that may enter the baseline.

    ``rewards_G`` are floats, ``in_baseline_G`` bools. A member outside the baseline gets an advantage and shifts
    nobody else's. The mean baseline without a deviation is Dr. GRPO's (Liu et al. 2025, arXiv:2503.20783, section
    3.2); ``divide_by_std`` divides by ``deviation`` as GRPO does (Shao et al. 2024, arXiv:2402.03300, equation 3's
    advantage), which blows up small differences in groups of nearly equal rewards.

    Raises:
        ValueError: fewer than ``MIN_GROUP`` members are in the baseline, or a reward is not finite.
    """
    baseline_M = _baseline(rewards_G, in_baseline_G)
    advantages_G = rewards_G - baseline_M.mean()
    return advantages_G / deviation(rewards_G, in_baseline_G) if divide_by_std else advantages_G


def deviation(rewards_G: Tensor, in_baseline_G: Tensor) -> Tensor:
    """Standard deviation of the rewards in the baseline, a scalar: Bessel-corrected, plus 1e-6.

    Raises:
        ValueError: as ``group_advantages``.
    """
    return _baseline(rewards_G, in_baseline_G).std() + 1e-6


def leave_one_out_advantages(rewards_G: Tensor, in_baseline_G: Tensor) -> Tensor:
    """Reward minus the mean reward of the *others* in the baseline, shape G (RLOO: Kool et al. 2019; Ahmadian et al.
    2024, arXiv:2402.14740, section 3.3). A member outside the baseline is compared with all who are in it.

    The baseline of a member does not depend on its own reward, so that the gradient stays unbiased; in a group of n
    it is n / (n - 1) times ``group_advantages``.

    Raises:
        ValueError: as ``group_advantages``.
    """
    baseline_M = _baseline(rewards_G, in_baseline_G)
    own_G = torch.where(in_baseline_G, rewards_G, torch.zeros_like(rewards_G))
    others_G = len(baseline_M) - in_baseline_G.to(rewards_G.dtype)
    return rewards_G - (baseline_M.sum() - own_G) / others_G


def credit_shifts(
    credits_S: Tensor,
    members_S: Tensor,
    rewards_G: Tensor,
    outcomes_G: Tensor,
    in_baseline_G: Tensor,
    *,
    share: float,
) -> Tensor:
    """What process credits add to the reward of each step, shape S, so that they never reorder outcomes.

    ``credits_S`` are the credits of the steps of member ``members_S`` (an index into G). ``rewards_G`` are final
    rewards, ``outcomes_G`` what the outcome alone is worth (the first layer). Credits are centred on their mean over
    the steps of members in the baseline. Then all are scaled down by one factor, where one of them would exceed
    ``share / 2`` of the smallest distance between the rewards of two members of different outcome. With ``share``
    below 1, a step of the better outcome stays above every step of the worse, whatever the credits.

    Where all outcomes are equal there is no such distance and nothing is added: differences in manner alone would make
    advantages out of nothing.

    Raises:
        ValueError: ``share`` is not in [0, 1), or as ``group_advantages``.
    """
    if not 0 <= share < 1:
        raise ValueError(f"the share must be at least 0 and below 1, and is {share}")
    _baseline(rewards_G, in_baseline_G)
    differ_GG = outcomes_G[:, None] != outcomes_G[None, :]
    if not len(credits_S) or not bool(differ_GG.any()):
        return torch.zeros_like(credits_S)
    centred_S = credits_S - _mean_or_0(credits_S[in_baseline_G[members_S]])
    limit = share / 2 * (rewards_G[:, None] - rewards_G[None, :]).abs()[differ_GG].min()
    largest = centred_S.abs().max()
    return centred_S * (limit / largest).clamp(max=1.0) if largest > 0 else centred_S


def generalised_advantages(
    rewards_N: Tensor, values_N: Tensor, *, discount: float, decay: float
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimates and the returns to fit values to, both of shape N, of the trained ids of one row
    in order.

    ``A_t = sum_k (discount * decay)^k d_(t+k)`` with ``d_t = r_t + discount * V_(t+1) - V_t`` and no value after the
    last id (Schulman et al. 2016, arXiv:1506.02438, equation 16); returns are ``A + V``. Ids that were not sampled
    are no time steps: an observation takes none.
    """
    after_N = torch.cat([values_N[1:], values_N.new_zeros(1)])
    errors_N = rewards_N + discount * after_N - values_N
    advantages_N = torch.zeros_like(errors_N)
    running = errors_N.new_zeros(())
    for at in reversed(range(len(errors_N))):
        running = errors_N[at] + discount * decay * running
        advantages_N[at] = running
    return advantages_N, advantages_N + values_N


def _baseline(rewards_G: Tensor, in_baseline_G: Tensor) -> Tensor:
    if not bool(torch.isfinite(rewards_G).all()):
        raise ValueError("a reward is not finite")
    baseline_M = rewards_G[in_baseline_G]
    if len(baseline_M) < MIN_GROUP:
        raise ValueError(f"a baseline needs {MIN_GROUP} members, and the group has {len(baseline_M)}")
    return baseline_M


def _mean_or_0(values: Tensor) -> Tensor:
    return values.mean() if len(values) else values.new_zeros(())
