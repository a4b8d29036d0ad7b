"""Losses: pure functions on tensors of shape N, the trained positions of a batch one after the other.

Masked positions are not among the N, so nothing that happens there can reach a loss. Every function gives values
per token; the trainer divides their sum by a step's ``normaliser``, which makes a step's gradient independent of how
its rows are cut into micro-batches.
"""

from typing import Literal

import torch
from torch import Tensor

Normalise = Literal["constant", "tokens"]


def negative_log_likelihood(logprobs_N: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated ids in nats, shape N: ``-log p``."""
    return -logprobs_N


def importance_ratio(logprobs_N: Tensor, sampler_N: Tensor) -> Tensor:
    """``pi_trainer / pi_sampler`` of each id, shape N, from log-probabilities in nats.

    The denominator is what the sampler really sampled from, so that one ratio corrects both for the updates since
    and for numeric differences between sampler and trainer (the behaviour policy of PPO, Schulman et al. 2017,
    arXiv:1707.06347, section 3).
    """
    return torch.exp(logprobs_N - sampler_N)


def clipped_policy_loss(ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``, shape N.

    PPO's clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, equation 7) with the two ends apart ("clip-higher"
    of DAPO, Yu et al. 2025, arXiv:2503.14476, equation 8).
    """
    clipped_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)


def clipped_away(ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """Bools, shape N: where ``clipped_policy_loss`` has no gradient because the ratio moved far enough already."""
    too_high_N = (advantages_N > 0) & (ratio_N > 1.0 + clip_high)
    too_low_N = (advantages_N < 0) & (ratio_N < 1.0 - clip_low)
    return too_high_N | too_low_N


def k3_divergence(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Estimate of KL(trainer || reference) from ids that the trainer's policy sampled, shape N, never negative.

    ``exp(d) - d - 1`` with ``d = log p_reference - log p_trainer``: the estimator k3 of Schulman, "Approximating KL
    divergence" (2020), in GRPO as equation 4 of arXiv:2402.03300.
    """
    difference_N = reference_N - logprobs_N
    return torch.exp(difference_N) - difference_N - 1.0


def normaliser(kind: Normalise, *, rows: int, tokens: int, row_tokens: int) -> float:
    """What a step's sum over tokens is divided by.

    ``constant``: ``rows * row_tokens``, a length that is the same for every row and step, so that a token counts the
    same whatever row it stands in (Dr. GRPO, arXiv:2503.20783, section 3.2). ``tokens``: the trained tokens of the
    step (DAPO, arXiv:2503.14476, equation 8), which makes every step as loud as any other.
    """
    return float(max(1, rows * row_tokens if kind == "constant" else tokens))
