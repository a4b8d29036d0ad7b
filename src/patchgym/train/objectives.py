"""What an algorithm adds to the training loop: the loss of a token, and what a step's sum is divided by."""

from collections.abc import Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from patchgym.train import losses
from patchgym.train.model import AdaptedModel, Batch, make_batch, trained_logprobs
from patchgym.train.report import GrpoSettings
from patchgym.train.rows import TokenRow


class Objective(Protocol):
    """The part of the loop that differs between algorithms."""

    algorithm: Literal["sft", "grpo"]

    def prepare(self, model: AdaptedModel, rows: Sequence[TokenRow]) -> None:
        """Called once, before the first step."""
        ...

    def token_losses(self, batch: Batch, logprobs_N: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses of the trained ids, shape N, and what there is to report of them (shape N each, no gradient)."""
        ...

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """What the sum over the ids of a step with these rows is divided by."""
        ...


class Imitation:
    """Cross-entropy, averaged over the trained ids of a step."""

    algorithm: Literal["sft", "grpo"] = "sft"

    def prepare(self, model: AdaptedModel, rows: Sequence[TokenRow]) -> None:
        """Nothing to prepare."""

    def token_losses(self, batch: Batch, logprobs_N: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """``-log p``."""
        return losses.negative_log_likelihood(logprobs_N), {}

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """The number of trained ids."""
        return float(sum(row.trained for row in rows))


class PolicyGradient:
    """GRPO: the clipped surrogate against the sampler, with ``kl`` times k3 against the starting policy if asked."""

    algorithm: Literal["sft", "grpo"] = "grpo"

    def __init__(self, settings: GrpoSettings) -> None:
        self._settings = settings
        self._start_N: dict[TokenRow, Tensor] = {}

    @torch.no_grad()
    def prepare(self, model: AdaptedModel, rows: Sequence[TokenRow]) -> None:
        """With ``kl``: keep the starting policy's log-probabilities of each row's trained ids."""
        if self._settings.kl:
            self._start_N = {row: trained_logprobs(model, make_batch([row])) for row in rows}

    def token_losses(self, batch: Batch, logprobs_N: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Reports ``ratio``, ``clipped`` and, where it is computed, ``kl``."""
        low, high = self._settings.clip_low, self._settings.clip_high
        ratio_N = losses.importance_ratio(logprobs_N, batch.sampler_N)
        losses_N = losses.clipped_policy_loss(ratio_N, batch.advantages_N, clip_low=low, clip_high=high)
        clipped_N = losses.clipped_away(ratio_N, batch.advantages_N, clip_low=low, clip_high=high)
        seen = {"ratio": ratio_N.detach(), "clipped": clipped_N.float()}
        if self._settings.kl:
            kl_N = losses.k3_divergence(logprobs_N, torch.cat([self._start_N[row] for row in batch.rows]))
            losses_N = losses_N + self._settings.kl * kl_N
            seen["kl"] = kl_N.detach()
        return losses_N, seen

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """See ``losses.normaliser``."""
        tokens = sum(row.trained for row in rows)
        length = self._settings.max_row_tokens
        return losses.normaliser(self._settings.normalise, rows=len(rows), tokens=tokens, row_tokens=length)
