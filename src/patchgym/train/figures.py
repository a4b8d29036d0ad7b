"""What an optimizer step is reported as, from what was seen of its trained ids."""

from collections.abc import Mapping
from typing import TypedDict

import torch
from torch import Tensor

_QUANTILES = (0.01, 0.5, 0.99)


class StepFigures(TypedDict):
    """The fields of ``report.StepReport`` that are of the trained ids."""

    trained_tokens: int
    mean_logprob: float
    entropy: float | None
    mean_ratio: float | None
    max_ratio: float | None
    ratio_quantiles: tuple[float, float, float] | None
    clip_share: float | None
    clip_share_low: float | None
    clip_share_high: float | None
    kl: float | None
    sampler_gap: float | None
    tis_capped_share: float | None
    value_loss: float | None


def step_figures(seen: Mapping[str, Tensor]) -> StepFigures:
    """Figures of a step from values of its trained ids, shape N each: ``logprob``, and where they were computed
    ``entropy``, ``ratio``, ``clipped_low``, ``clipped_high``, ``kl``, ``gap``, ``tis_capped``, ``value_loss``."""

    def mean(name: str) -> float | None:
        return seen[name].double().mean().item() if name in seen else None

    low, high = mean("clipped_low"), mean("clipped_high")
    ratio_N = seen.get("ratio")
    return StepFigures(
        trained_tokens=len(seen["logprob"]),
        mean_logprob=seen["logprob"].double().mean().item(),
        entropy=mean("entropy"),
        mean_ratio=mean("ratio"),
        max_ratio=None if ratio_N is None else ratio_N.max().item(),
        ratio_quantiles=None if ratio_N is None else _quantiles(ratio_N),
        clip_share=None if low is None or high is None else low + high,
        clip_share_low=low,
        clip_share_high=high,
        kl=mean("kl"),
        sampler_gap=mean("gap"),
        tis_capped_share=mean("tis_capped"),
        value_loss=mean("value_loss"),
    )


def _quantiles(values_N: Tensor) -> tuple[float, float, float]:
    """Linear interpolation between order statistics. Sorted here: ``torch.quantile`` refuses more than 16 million."""
    sorted_N = values_N.double().sort().values
    places = [share * (len(sorted_N) - 1) for share in _QUANTILES]
    low, middle, high = (
        torch.lerp(sorted_N[int(at)], sorted_N[min(int(at) + 1, len(sorted_N) - 1)], at - int(at)).item()
        for at in places
    )
    return low, middle, high
