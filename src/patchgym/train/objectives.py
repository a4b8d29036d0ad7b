"""What an algorithm adds to the training loop: the loss of a token, and what a step's sum is divided by.

There are two classes and no zoo: ``Imitation``, and ``PolicyGradient``, whose settings choose among the functions of
``losses`` and ``advantages``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

import torch
from torch import Tensor

from patchgym.errors import ConfigError
from patchgym.train import losses
from patchgym.train.advantages import generalised_advantages
from patchgym.train.algorithms import Algorithm
from patchgym.train.batch import Batch, make_batch
from patchgym.train.integrity import sampler_mismatches
from patchgym.train.losses import Predictions
from patchgym.train.report import Mismatch, PolicyGradientSettings
from patchgym.train.rows import TokenRow

Say = Callable[[Sequence[TokenRow], Literal["start", "base"]], Predictions]
"""What the policy that an update starts from, or the base under its adapter, says of all trained ids of rows."""


class Objective(Protocol):
    """The part of the loop that differs between algorithms."""

    algorithm: Literal["sft"] | Algorithm
    entropy_gradient: bool
    """Whether the entropies of the predictions need a gradient."""
    whole_rows: bool
    """Whether all trained ids of a row meet in its loss, which is then no sum over ids."""

    def prepare(self, rows: Sequence[TokenRow], say: Say) -> Mapping[TokenRow, Mismatch]:
        """Called once, before the first step, with the rows that could be trained. Returns those that must not be, and
        why; the others are trained."""
        ...

    def token_losses(self, batch: Batch, predictions: Predictions) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses of the trained ids, shape N, and what there is to report of them (shape N each, no gradient; see
        ``figures.step_figures``)."""
        ...

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """What the sum over the ids of a step with these rows is divided by."""
        ...


class Imitation:
    """Cross-entropy, averaged over the trained ids of a step."""

    algorithm: Literal["sft"] | Algorithm = "sft"
    entropy_gradient = False
    whole_rows = False

    def prepare(self, rows: Sequence[TokenRow], say: Say) -> Mapping[TokenRow, Mismatch]:
        """Nothing to prepare."""
        return {}

    def token_losses(self, batch: Batch, predictions: Predictions) -> tuple[Tensor, dict[str, Tensor]]:
        """``-log p``."""
        return losses.negative_log_likelihood(predictions.logprobs_N), _told(predictions)

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """The number of trained ids."""
        return float(sum(row.trained for row in rows))


class PolicyGradient:
    """Any algorithm of ``algorithms.ALGORITHMS``, with the corrections and extras that its settings ask for."""

    def __init__(self, settings: PolicyGradientSettings) -> None:
        self._settings = settings
        self._choices = settings.choices
        self._old: dict[TokenRow, Tensor] = {}
        self._reference: dict[TokenRow, Tensor] = {}
        self._values: dict[TokenRow, Tensor] = {}
        self._returns: dict[TokenRow, Tensor] = {}
        self._advantages: dict[TokenRow, Tensor] = {}
        self.algorithm: Literal["sft"] | Algorithm = settings.algorithm
        self.entropy_gradient = settings.entropy > 0
        self.whole_rows = self._choices.loss != "reinforce" and self._choices.ratio == "sequence"

    def prepare(self, rows: Sequence[TokenRow], say: Say) -> Mapping[TokenRow, Mismatch]:
        """Keep what is needed of the policy that the update starts from, row by row, and of the reference.

        Raises:
            ConfigError: the baseline is ``value``, and the model gives no values.
        """
        settings, refused = self._settings, dict[TokenRow, Mismatch]()
        started = settings.tis_cap is not None or (settings.kl > 0 and settings.reference == "start")
        if started or settings.max_sampler_gap is not None or self._choices.baseline == "value":
            refused = self._start(rows, say(rows, "start"))
        if settings.kl and settings.reference == "base":
            self._reference = _by_row(rows, say(rows, "base").logprobs_N)
        elif settings.kl:
            self._reference = self._old
        return refused

    def token_losses(self, batch: Batch, predictions: Predictions) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss that the settings chose, with its corrections and extras.

        Raises:
            ConfigError: a part of the predictions is missing that the settings need.
        """
        settings, chosen = self._settings, self._choices
        logprobs_N = predictions.logprobs_N
        seen = {**_told(predictions), "gap": (logprobs_N.detach() - batch.sampler_N).abs()}
        losses_N = self._policy_losses(batch, logprobs_N, seen)
        if settings.tis_cap is not None:
            weights_N = losses.truncated_weight(_of(self._old, batch), batch.sampler_N, settings.tis_cap)
            losses_N = losses_N * weights_N
            seen["tis_capped"] = (weights_N >= settings.tis_cap).float()
        if settings.kl:
            kl_N = losses.k3_divergence(logprobs_N, _of(self._reference, batch))
            seen["kl"] = kl_N.detach()
            if settings.kl_unbiased:
                kl_N = kl_N * losses.importance_ratio(logprobs_N, self._denominator(batch))
            losses_N = losses_N + settings.kl * kl_N
        if settings.entropy:
            if predictions.entropy_N is None:
                raise _missing("entropy", "entropies", "Set entropy to 0.")
            losses_N = losses_N - settings.entropy * predictions.entropy_N
        if chosen.baseline == "value":
            losses_N = losses_N + self._value_losses(batch, predictions, seen)
        trained_R = torch.tensor([row.trained for row in batch.rows], device=logprobs_N.device)
        return losses_N * losses.token_weights(chosen.normalise, batch.rows_N, trained_R), seen

    def normaliser(self, rows: Sequence[TokenRow]) -> float:
        """See ``losses.normaliser``."""
        tokens = sum(row.trained for row in rows)
        length = self._settings.max_row_tokens
        return losses.normaliser(self._choices.normalise, rows=len(rows), tokens=tokens, row_tokens=length)

    def _policy_losses(self, batch: Batch, logprobs_N: Tensor, seen: dict[str, Tensor]) -> Tensor:
        chosen = self._choices
        learned = chosen.baseline == "value"
        advantages_N = _of(self._advantages, batch) if learned else batch.advantages_N
        if chosen.loss == "reinforce":
            return losses.reinforce_loss(logprobs_N, advantages_N)
        old_N = self._denominator(batch)
        if chosen.ratio == "sequence":
            ratio_N = losses.sequence_ratio(logprobs_N, old_N, batch.rows_N)
        else:
            ratio_N = losses.importance_ratio(logprobs_N, old_N)
        seen["ratio"] = still_N = ratio_N.detach()
        low, high = chosen.clip_low, chosen.clip_high
        if chosen.loss == "cispo":
            sides = losses.outside(still_N, clip_low=low, clip_high=high)
            losses_N = losses.clipped_weight_loss(ratio_N, advantages_N, logprobs_N, clip_low=low, clip_high=high)
        else:
            sides = losses.clipped_away(still_N, advantages_N, clip_low=low, clip_high=high)
            losses_N = losses.clipped_policy_loss(ratio_N, advantages_N, clip_low=low, clip_high=high)
        seen["clipped_low"], seen["clipped_high"] = (side_N.float() for side_N in sides)
        return losses_N

    def _denominator(self, batch: Batch) -> Tensor:
        """The log-probabilities that a ratio is against."""
        return batch.sampler_N if self._settings.tis_cap is None else _of(self._old, batch)

    def _value_losses(self, batch: Batch, predictions: Predictions, seen: dict[str, Tensor]) -> Tensor:
        if predictions.values_N is None:
            raise _no_values()
        old_N, returns_N = _of(self._values, batch), _of(self._returns, batch)
        settings = self._settings.value
        losses_N = losses.clipped_value_loss(predictions.values_N, old_N, returns_N, clip=settings.clip)
        seen["value_loss"] = losses_N.detach()
        return settings.weight * losses_N

    def _start(self, rows: Sequence[TokenRow], said: Predictions) -> dict[TokenRow, Mismatch]:
        """Keep what the starting policy says of the rows. Returns those of which the sampler said otherwise."""
        settings, batch = self._settings, make_batch(rows, said.logprobs_N.device)
        self._old = _by_row(rows, said.logprobs_N)
        if self._choices.baseline == "value":
            if said.values_N is None:
                raise _no_values()
            self._values = _by_row(rows, said.values_N)
            for row, values_N in self._values.items():
                self._estimate(row, values_N)
        if settings.max_sampler_gap is None:
            return {}
        return sampler_mismatches(
            batch.rows, said.logprobs_N, batch.sampler_N, batch.rows_N, batch.turns_N, max_gap=settings.max_sampler_gap
        )

    def _estimate(self, row: TokenRow, values_N: Tensor) -> None:
        """Advantages and returns of a row by the values that the starting policy gives its ids. The trajectory's reward
        comes with the row's last trained id."""
        assert row.reward is not None
        rewards_N = torch.zeros_like(values_N)
        rewards_N[-1] = row.reward
        settings = self._settings.value
        self._advantages[row], self._returns[row] = generalised_advantages(
            rewards_N, values_N, discount=settings.discount, decay=settings.decay
        )


def _of(kept: Mapping[TokenRow, Tensor], batch: Batch) -> Tensor:
    return torch.cat([kept[row] for row in batch.rows])[batch.numbers_N]


def _by_row(rows: Sequence[TokenRow], values_N: Tensor) -> dict[TokenRow, Tensor]:
    """What was said of the trained ids of all rows, by row."""
    parts = torch.split(values_N, [row.trained for row in rows])
    return dict(zip(rows, parts, strict=True))


def _told(predictions: Predictions) -> dict[str, Tensor]:
    told = {"logprob": predictions.logprobs_N.detach()}
    return told if predictions.entropy_N is None else {**told, "entropy": predictions.entropy_N.detach()}


def _no_values() -> ConfigError:
    return _missing("The baseline value", "values", "Choose another algorithm, such as dr_grpo.")


def _missing(setting: str, part: str, mend: str) -> ConfigError:
    return ConfigError(f"{setting} needs {part} of each token", why="The model gives none.", mend=mend)
