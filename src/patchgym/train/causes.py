"""Why an update has no gradient, or one that is not finite: which of the known causes it is."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from patchgym.errors import DivergenceError
from patchgym.train.batch import Batch
from patchgym.train.model import AdaptedModel
from patchgym.train.reasons import Reason
from patchgym.train.report import PolicyGradientSettings, StepReport, TrainSettings
from patchgym.train.rows import RowSet, TokenRow

_FAR = 80.0  # nats; exp of more than 88 is infinite in float32
_NAMED = 8


def why_zero(rows: RowSet, left_out: Counter[Reason], steps: Sequence[StepReport], settings: TrainSettings) -> str:
    """Which of the known causes of a zero gradient it was."""
    if steps and all(step.clip_share == 1.0 for step in steps):
        if isinstance(settings, PolicyGradientSettings) and settings.choices.loss == "cispo":
            if all((step.max_ratio or 0.0) == 0.0 for step in steps):
                return "every ratio to the sampler underflows to 0, and with it the weight of every trained id"
        else:
            return "every trained id was clipped: its ratio to the sampler is past the clip range already"
    if steps:
        return "rows were trained and their gradients cancel out or underflow to zero"
    if rows.groups and rows.zero_variance_groups == rows.groups:
        return f"no group has variance: in each of the {rows.groups} all rewards are equal"
    if not left_out:
        return "there were no trajectories"
    causes = [f"{count} x {reason.value} ({reason.meaning})" for reason, count in left_out.most_common()]
    return f"there was no row to train on: {', '.join(causes)}"


def diverged_loss(
    value: float, batch: Batch, logprobs_N: Tensor, losses_N: Tensor, model: AdaptedModel
) -> DivergenceError:
    """The error of a loss that is not finite: the first id that shows it, and why it does."""
    wrong = [at for at, fine in enumerate(torch.isfinite(losses_N.detach()).tolist()) if not fine]
    if not wrong:  # each is finite, and their sum is not
        return _error("loss", value, batch.trajectories, "Single losses are finite and their sum overflows.")
    trajectories = sorted({batch.rows[batch.rows_N[at]].trajectory_id for at in wrong})
    at = wrong[0]
    row, turn = batch.rows[batch.rows_N[at]], int(batch.turns_N[at])
    ours, theirs = logprobs_N[at].item(), batch.sampler_N[at].item()
    where = f"turn {turn} of {row.trajectory_id}"
    broken = first_not_finite(model)
    if broken is not None:
        cause = f"The weight {broken} is not finite already."
    elif not torch.isfinite(logprobs_N[at]):
        cause = f"The model gives an id in {where} a log-probability of {ours}."
    elif abs(ours - theirs) > _FAR:
        cause = f"The ratio overflows in {where}: {ours:.4g} nats by the trainer, {theirs:.4g} by the sampler."
    else:
        cause = f"It shows first in {where}, and none of the known causes is it."
    return _error("loss", value, trajectories, cause)


def diverged_gradient(
    value: float,
    rows: Sequence[TokenRow],
    model: AdaptedModel,
    gradient_of: Callable[[TokenRow], None],
) -> DivergenceError:
    """The error of a gradient that is not finite: the first parameter that has one, and the rows that make it, each
    tried alone (``gradient_of`` adds the gradient of one row)."""
    named = model.trainable().items()
    first = next((name for name, part in named if part.grad is not None and not _finite(part.grad)), None)
    guilty = []
    for row in rows:
        for _, part in named:
            part.grad = None
        gradient_of(row)
        if any(part.grad is not None and not _finite(part.grad) for _, part in named):
            guilty.append(row.trajectory_id)
    for _, part in named:
        part.grad = None
    broken = first_not_finite(model)
    if broken is not None:
        cause = f"The weight {broken} is not finite already."
    elif first is None:
        cause = "Every part of it is finite and its norm overflows."
    else:
        cause = f"The first parameter that has it is {first}." + ("" if guilty else " No row alone does it.")
    return _error("gradient", value, guilty or sorted({row.trajectory_id for row in rows}), cause)


def first_not_finite(model: AdaptedModel) -> str | None:
    """The name of the first weight of a model, trained or not, that is not finite."""
    return next((name for name, part in model.network.named_parameters() if not _finite(part.detach())), None)


def _finite(values: Tensor) -> bool:
    return bool(torch.isfinite(values).all())


def _error(what: str, value: float, names: Sequence[str], cause: str) -> DivergenceError:
    more = " ..." if len(names) > _NAMED else ""
    return DivergenceError(
        f"The {what} is {value}",
        why=f"It came up in rows of {', '.join(names[:_NAMED])}{more}. {cause}",
        mend="Nothing was published. Lower the learning rate, or look at those trajectories' log-probabilities.",
    )
