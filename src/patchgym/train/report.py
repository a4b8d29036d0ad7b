"""What an update is asked to do and what it says it did. Nothing here needs torch."""

from collections.abc import Callable
from typing import Literal

from pydantic import Field

from patchgym.config import Settings
from patchgym.records import Record, VersionedRecord

OnStep = Callable[[int, int, dict[str, float]], None]
"""Progress: called after every micro-batch with the tokens done, the tokens in all, and figures of the last step."""


class TrainSettings(Settings):
    """What both kinds of update share.

    ``passes`` over the rows; ``rows_per_step`` rows share one optimizer step, and go through the model in
    micro-batches of at most ``micro_batch_tokens`` ids, padding counted (one long row at a time is the fastest on
    a CPU). ``max_row_tokens`` leaves longer rows out. ``lora_rank`` and ``lora_layers`` (the last so many layers;
    None is all) shape a new adapter; an update that starts from a checkpoint goes on with that one's shape.
    ``grad_clip`` bounds the gradient's norm. ``seconds`` ends an update before the step that would overrun it; one
    step is always made.

    Fewer adapted layers are faster, because the backward pass ends at the lowest one: 209, 289 and 346 row tokens a
    CPU second with all 30, the last 15 and the last 10 layers of a model of 135M (steps of 4 rows of 590 tokens). In
    equal CPU time all and 15 taught the same there, and 10 less.
    """

    learning_rate: float = Field(gt=0)
    passes: int = Field(default=1, ge=1)
    rows_per_step: int = Field(default=8, ge=1)
    micro_batch_tokens: int = Field(default=1024, ge=1)
    max_row_tokens: int = Field(default=2048, ge=2)
    lora_rank: int = Field(default=16, ge=1)
    lora_layers: int | None = Field(default=None, ge=1)
    grad_clip: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    seconds: float | None = Field(default=None, gt=0)
    seed: int = 0


class SftSettings(TrainSettings):
    """Supervised fine-tuning: mean cross-entropy over the trained ids of a step."""

    learning_rate: float = Field(default=1e-3, gt=0)
    rows_per_step: int = Field(default=4, ge=1)


class GrpoSettings(TrainSettings):
    """Group-relative policy gradient.

    ``clip_low`` and ``clip_high`` bound the ratio against the sampler; ``normalise`` is explained at
    ``losses.normaliser``; ``divide_by_std`` at ``advantages.group_advantages``; ``kl`` weighs the k3 divergence from
    the policy that the update started from (0: not computed).
    """

    learning_rate: float = Field(default=1e-4, gt=0)
    clip_low: float = Field(default=0.2, gt=0, le=1)
    clip_high: float = Field(default=0.28, gt=0)
    normalise: Literal["constant", "tokens"] = "constant"
    divide_by_std: bool = False
    kl: float = Field(default=0.0, ge=0)


class StepReport(Record):
    """One optimizer step. ``loss`` is what was minimised; ``gradient_norm`` is taken before clipping.

    ``mean_logprob`` is that of the trained ids under the trainer, in nats; its negative estimates the entropy where
    the ids were sampled by the policy itself. ``mean_ratio``, ``max_ratio`` and ``clip_share`` (share of trained ids
    whose gradient the clip took away) are None for imitation, ``kl`` where it is not computed.
    """

    rows: int
    trained_tokens: int
    total_tokens: int
    loss: float
    gradient_norm: float
    mean_logprob: float
    mean_ratio: float | None = None
    max_ratio: float | None = None
    clip_share: float | None = None
    kl: float | None = None
    seconds: float


class SamplerGap(Record):
    """``|trainer log p - sampler log p|`` in nats over the first step's ids, before any weight moved: 0 but for
    rounding when both are the same policy. ``by_turn`` holds means by the step's index in its trajectory."""

    mean: float
    largest: float
    by_turn: dict[int, float]


class UpdateReport(VersionedRecord):
    """One update.

    ``version`` is what was published, as the directory of that name; None where no weights changed, and the caller
    goes on with ``parent``. ``left_out`` counts by ``rows.Reason``. ``trained_tokens`` and ``total_tokens`` count what
    went through the model, again in each pass. ``gradient`` is ``zero`` when no step had one, and ``why`` then says
    which known cause it was; ``stopped_early`` names the limit that ended the update before its passes were through.
    """

    algorithm: Literal["sft", "grpo"]
    parent: str
    version: str | None
    gradient: Literal["nonzero", "zero"]
    why: str = ""
    stopped_early: str = ""
    rows_used: int
    left_out: dict[str, int]
    groups: int
    zero_variance_groups: int
    trained_tokens: int
    total_tokens: int
    trainable_parameters: int
    steps: tuple[StepReport, ...]
    sampler_gap: SamplerGap | None
    seconds: float

    @property
    def loss_first(self) -> float | None:
        """Loss of the first step, None without steps."""
        return self.steps[0].loss if self.steps else None

    @property
    def loss_last(self) -> float | None:
        """Loss of the last step, None without steps."""
        return self.steps[-1].loss if self.steps else None
