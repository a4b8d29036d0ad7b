"""Losses: pure functions on tensors of shape N, the trained positions of a batch one after the other.

Masked positions are not among the N, so nothing that happens there can reach a loss. Every function gives values
per token; the trainer divides their sum by a step's ``normaliser``, which makes a step's gradient independent of how
its rows are cut into micro-batches. Where a whole row counts, ``rows_N`` says which row of the batch a token is of;
rows are never cut, so that a row's sums are whole.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from patchgym.train.algorithms import Normalise

_AT_ONCE = 8  # on a CPU, where the logits of so many stay in its cache


@dataclass(frozen=True)
class Predictions:
    """What a model says of the trained ids of a batch, each of shape N: their log-probabilities in nats; the entropy of
    the distribution that each was drawn from, in nats; and the value of the state before each, in rewards. The last
    two are None where the model does not give them."""

    logprobs_N: Tensor
    entropy_N: Tensor | None = None
    values_N: Tensor | None = None


def negative_log_likelihood(logprobs_N: Tensor) -> Tensor:
    """Cross-entropy of the demonstrated ids in nats, shape N: ``-log p``."""
    return -logprobs_N


def importance_ratio(logprobs_N: Tensor, old_N: Tensor) -> Tensor:
    """``pi / pi_old`` of each id, shape N, from log-probabilities in nats.

    ``old_N`` is the behaviour policy of PPO (Schulman et al. 2017, arXiv:1707.06347, section 3). Where it is what the
    sampler really sampled from, one ratio corrects both for the updates since and for numeric differences between
    sampler and trainer.
    """
    return torch.exp(logprobs_N - old_N)


def sequence_ratio(logprobs_N: Tensor, old_N: Tensor, rows_N: Tensor) -> Tensor:
    """The geometric mean of the ratios of a row's trained ids, at each of them, shape N: ``exp(mean(log pi - log
    pi_old))`` (GSPO: Zheng et al. 2025, arXiv:2507.18071, equation 7)."""
    return torch.exp(_row_means(logprobs_N - old_N, rows_N)[rows_N])


def truncated_weight(old_N: Tensor, sampler_N: Tensor, cap: float) -> Tensor:
    """``min(pi_old / pi_sampler, cap)``, shape N, without a gradient: what a token's loss is multiplied by where the
    trainer's own ``pi_old`` stands in the ratio (truncated importance sampling: Yao et al. 2025, "Your Efficient RL
    Framework Secretly Brings You Off-Policy RL Training")."""
    return torch.exp(old_N - sampler_N).clamp(max=cap).detach()


def clipped_policy_loss(ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float) -> Tensor:
    """``-min(r A, clip(r, 1 - clip_low, 1 + clip_high) A)``, shape N.

    PPO's clipped surrogate (Schulman et al. 2017, arXiv:1707.06347, equation 7) with the two ends apart ("clip-higher"
    of DAPO, Yu et al. 2025, arXiv:2503.14476, equation 8).
    """
    clipped_N = ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -torch.minimum(ratio_N * advantages_N, clipped_N * advantages_N)


def clipped_weight_loss(
    ratio_N: Tensor, advantages_N: Tensor, logprobs_N: Tensor, *, clip_low: float, clip_high: float
) -> Tensor:
    """``-w A log pi`` with the weight ``w = clip(r, 1 - clip_low, 1 + clip_high)`` without a gradient, shape N.

    Every token keeps a gradient, of bounded weight (CISPO: MiniMax 2025, arXiv:2506.13585, equations 4 and 5).
    """
    return -ratio_N.clamp(1.0 - clip_low, 1.0 + clip_high).detach() * advantages_N * logprobs_N


def reinforce_loss(logprobs_N: Tensor, advantages_N: Tensor) -> Tensor:
    """``-A log pi``, shape N: the plain policy gradient (Williams 1992), without a correction for who sampled."""
    return -advantages_N * logprobs_N


def clipped_away(ratio_N: Tensor, advantages_N: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Bools, shape N each: where ``clipped_policy_loss`` has no gradient because the ratio is below the range while
    the advantage pushes it further down, and likewise above."""
    too_low_N = (advantages_N < 0) & (ratio_N < 1.0 - clip_low)
    too_high_N = (advantages_N > 0) & (ratio_N > 1.0 + clip_high)
    return too_low_N, too_high_N


def outside(ratio_N: Tensor, *, clip_low: float, clip_high: float) -> tuple[Tensor, Tensor]:
    """Bools, shape N each: where ``clipped_weight_loss`` raises or cuts a weight."""
    return ratio_N < 1.0 - clip_low, ratio_N > 1.0 + clip_high


def k3_divergence(logprobs_N: Tensor, reference_N: Tensor) -> Tensor:
    """Estimate of KL(trainer || reference) from ids that the trainer's policy sampled, shape N, never negative.

    ``exp(d) - d - 1`` with ``d = log p_reference - log p_trainer``: the estimator k3 of Schulman, "Approximating KL
    divergence" (2020), in GRPO as equation 4 of arXiv:2402.03300.
    """
    difference_N = reference_N - logprobs_N
    return torch.exp(difference_N) - difference_N - 1.0


def clipped_value_loss(values_N: Tensor, old_N: Tensor, returns_N: Tensor, *, clip: float) -> Tensor:
    """``max((V - R)^2, (clip(V, V_old - c, V_old + c) - R)^2) / 2``, shape N, in squared rewards: the value loss of
    PPO's reference implementation (Dhariwal et al. 2017, OpenAI Baselines)."""
    bounded_N = torch.maximum(torch.minimum(values_N, old_N + clip), old_N - clip)
    return torch.maximum((values_N - returns_N) ** 2, (bounded_N - returns_N) ** 2) / 2


def entropy(logits_NV: Tensor) -> Tensor:
    """Entropy in nats of the distributions with these logits, shape N. On a CPU a few at a time, so that they stay in
    its cache and little memory is needed where no gradient is."""
    if not len(logits_NV):
        return logits_NV.sum(-1)
    at_once = _AT_ONCE if logits_NV.device.type == "cpu" else len(logits_NV)
    return torch.cat([_entropy(part) for part in torch.split(logits_NV, at_once)])


def token_weights(kind: Normalise, rows_N: Tensor, trained_R: Tensor) -> Tensor:
    """What each token's loss is multiplied by before the sum, shape N: 1, but for ``rows`` one over the number of
    trained ids ``trained_R`` of its row."""
    return 1.0 / trained_R[rows_N].float() if kind == "rows" else torch.ones(len(rows_N), device=rows_N.device)


def normaliser(kind: Normalise, *, rows: int, tokens: int, row_tokens: int) -> float:
    """What a step's sum over tokens, each with its ``token_weights``, is divided by.

    - ``rows``: the rows of the step, so that the loss is the mean over a row's trained ids and then over rows: a token
      of a short row counts more (GRPO, arXiv:2402.03300, equation 3).
    - ``constant``: ``rows * row_tokens``, a length that is the same for every row and step, so that a token counts the
      same whatever row it stands in (Dr. GRPO, arXiv:2503.20783, section 3.2).
    - ``tokens``: the trained tokens of the step (DAPO, arXiv:2503.14476, equation 8), which makes every step as loud
      as any other.
    """
    return float(max(1, {"rows": rows, "constant": rows * row_tokens, "tokens": tokens}[kind]))


def _row_means(values_N: Tensor, rows_N: Tensor) -> Tensor:
    """Means by row, shape R; 0 of a row without trained ids."""
    count = int(rows_N.max()) + 1 if len(rows_N) else 0
    sums_R = values_N.new_zeros(count).index_add(0, rows_N, values_N)
    sizes_R = torch.bincount(rows_N, minlength=count).clamp(min=1)
    return sums_R / sizes_R


def _entropy(logits_NV: Tensor) -> Tensor:
    """``log sum exp(l) - sum p l``, where the first is ``l - log p`` of the likeliest id: a softmax is several times
    faster on a CPU than exponentials and logarithms apart."""
    p_NV = logits_NV.softmax(-1)
    likeliest_N1 = p_NV.argmax(-1, keepdim=True)
    total_N = (logits_NV.gather(1, likeliest_N1) - p_NV.gather(1, likeliest_N1).log())[:, 0]
    # A logit of minus infinity has probability 0, and counts 0 times something.
    finite_NV = logits_NV.clamp(min=torch.finfo(logits_NV.dtype).min)
    mean_N: Tensor = torch.linalg.vecdot(p_NV, finite_NV)
    return total_N - mean_N
