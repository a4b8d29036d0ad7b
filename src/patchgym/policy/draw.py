"""Drawing the next token from logits. ``B`` rows, ``V`` tokens of the vocabulary."""

import torch
from torch import Tensor


def draw(logits_BV: Tensor, temperature_B: Tensor, top_p_B: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """One token for each row, with the natural logarithm of the probability that it was drawn with.

    The distribution is the softmax at the row's temperature, cut to the smallest set of tokens whose probability
    reaches ``top_p`` and renormalised. A temperature of 0 takes the likeliest token and reports its log-probability
    under the plain softmax (temperature 1, nothing cut), since that of a certain draw would say nothing. ``uniform_B``
    are float64 numbers from [0, 1): the same number falls on the same token unless the probabilities move across it.

    Returns:
        ``ids_B`` (long) and ``logprobs_B`` (float32).
    """
    greedy_B = temperature_B == 0
    temperature_B = torch.where(greedy_B, 1.0, temperature_B)
    logp_BV = torch.log_softmax(logits_BV.float() / temperature_B[:, None], dim=-1)
    cut_B = (top_p_B < 1) & ~greedy_B
    if bool(cut_B.any()):
        logp_BV[cut_B] = _nucleus(logp_BV[cut_B], top_p_B[cut_B])
    cdf_BV = logp_BV.double().exp().cumsum(dim=-1)
    total_B1 = cdf_BV[:, -1:]
    # Strictly below the total, or rounding could point past the last token.
    target_B1 = torch.minimum(uniform_B[:, None] * total_B1, torch.nextafter(total_B1, torch.zeros_like(total_B1)))
    ids_B = torch.where(greedy_B, logp_BV.argmax(dim=-1), torch.searchsorted(cdf_BV, target_B1, right=True)[:, 0])
    return ids_B, logp_BV.gather(1, ids_B[:, None])[:, 0]


def _nucleus(logp_BV: Tensor, top_p_B: Tensor) -> Tensor:
    """Log-probabilities cut to the nucleus and renormalised; minus infinity outside it."""
    sorted_BV, order_BV = logp_BV.sort(dim=-1, descending=True)
    p_BV = sorted_BV.exp()
    before_BV = p_BV.cumsum(dim=-1) - p_BV
    outside_BV = torch.zeros_like(logp_BV, dtype=torch.bool).scatter(1, order_BV, before_BV >= top_p_B[:, None])
    kept_BV = logp_BV.masked_fill(outside_BV, -torch.inf)
    return kept_BV - kept_BV.logsumexp(dim=-1, keepdim=True)
