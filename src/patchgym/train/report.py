"""What an update is asked to do and what it says it did. Nothing here needs torch."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, Self

from pydantic import Field, model_validator

from patchgym.config import Settings
from patchgym.errors import ConfigError
from patchgym.records import Record, VersionedRecord
from patchgym.train.algorithms import ALGORITHMS, Algorithm, Baseline, Choices, Loss, Normalise, RatioLevel
from patchgym.train.reasons import Reason

OnStep = Callable[[int, int, dict[str, float]], None]
"""Progress: called after every chunk with the trained ids that are done, those in all, and figures of the last step."""


class TrainSettings(Settings):
    """What both kinds of update share.

    ``passes`` over the rows; ``rows_per_step`` rows share one optimizer step, and go through the model as one trie
    (``packed``) in chunks of at most ``micro_batch_tokens`` ids; with ``recompute`` the activations of one chunk are
    held at a time, and what others continue is read twice. ``max_row_tokens`` leaves longer rows out. ``grad_clip``
    bounds the gradient's norm. ``seconds`` ends an update before the step that would overrun it; one step is always
    made. Where an update's state is kept (``state``), it is written every ``save_every`` steps; ``keep_states`` keeps
    all of them, so that any step can be replayed at once.

    ``adapter`` is what is trained: a ``lora``, or with ``none`` all weights. ``lora_rank`` and ``lora_layers`` (the
    last so many layers; None is all) shape a new adapter; an update that starts from a checkpoint goes on with that
    one's shape. ``dtype`` is what the model computes in: with ``bfloat16`` an adapter stays in float32 on a base in
    bfloat16, and weights that are all trained keep float32 masters, which the optimizer moves and a checkpoint holds.
    ``device`` is where: ``auto`` takes a CUDA device where there is one.

    Fewer adapted layers are faster, because the backward pass ends at the lowest one: 209, 289 and 346 row tokens a
    CPU second with all 30, the last 15 and the last 10 layers of a model of 135M (steps of 4 rows of 590 tokens). In
    equal CPU time all and 15 taught the same there, and 10 less.
    """

    learning_rate: float = Field(gt=0)
    passes: int = Field(default=1, ge=1)
    rows_per_step: int = Field(default=8, ge=1)
    micro_batch_tokens: int = Field(default=1024, ge=1)
    recompute: bool = False
    max_row_tokens: int = Field(default=2048, ge=2)
    adapter: Literal["lora", "none"] = "lora"
    lora_rank: int = Field(default=16, ge=1)
    lora_layers: int | None = Field(default=None, ge=1)
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    grad_clip: float = Field(default=1.0, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    seconds: float | None = Field(default=None, gt=0)
    seed: int = 0
    save_every: int = Field(default=1, ge=1)
    keep_states: bool = False

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.adapter == "none" and self.lora_layers is not None:
            raise ConfigError(
                "lora_layers has no adapter to shape",
                why="adapter is none: all weights are trained.",
                mend="Remove lora_layers, or set adapter to lora.",
            )
        return self


class SftSettings(TrainSettings):
    """Supervised fine-tuning: mean cross-entropy over the trained ids of a step."""

    learning_rate: float = Field(default=1e-3, gt=0)
    rows_per_step: int = Field(default=4, ge=1)


_STYLE = 0.05


class ValueSettings(Settings):
    """Of the ``value`` baseline (PPO): ``weight`` and ``clip`` (in rewards) of the value loss
    (``losses.clipped_value_loss``); ``discount`` and ``decay`` of ``advantages.generalised_advantages``; ``into_body``
    lets the value loss move the model under the value head as well."""

    weight: float = Field(default=0.5, ge=0)
    clip: float = Field(default=0.2, gt=0)
    discount: float = Field(default=1.0, gt=0, le=1)
    decay: float = Field(default=0.95, ge=0, le=1)
    into_body: bool = True


class PolicyGradientSettings(TrainSettings):
    """Policy gradients. ``algorithm`` chooses ``loss``, ``ratio``, ``normalise``, ``baseline``, ``divide_by_std``,
    ``clip_low`` and ``clip_high`` (``algorithms.Choices`` explains them); each that is given here wins.

    *Correction.* Without ``tis_cap`` the ratio's denominator is what the sampler sampled from. With it, the denominator
    is the policy that the update started from, and each token's loss is weighed by ``losses.truncated_weight``.

    *Extras.* ``kl`` weighs the k3 divergence from ``reference`` (the ``base`` without its adapter, or the policy that
    the update ``start``s from; 0: not computed), times each token's ratio with ``kl_unbiased``, because k3's own
    gradient is not that of the divergence (DeepSeek-V3.2, arXiv:2512.02556); ``entropy`` weighs a bonus on the entropy
    of each trained token's distribution; ``step_credit`` lets process credits move a step's advantage by at most this
    share of half the distance between outcomes (``advantages.credit_shifts``).

    *Who is trained.* Groups need ``min_group`` members in the baseline, and rewards that differ by more than
    ``min_spread``: with ``divide_by_std`` that is 0.05 unless given, which is what style alone can make two attempts
    differ by (``RewardSettings.second_layer``) and would then count as much as a solution. ``mask_overlong`` leaves out
    rows of attempts that a limit of turns, tokens, time or context cut off (they stay in the baseline);
    ``max_staleness`` those with a turn of a version more than so many updates behind the one that trains.
    ``check_prompts`` holds the ids of every prompt against its messages; ``max_sampler_gap`` is the largest mean
    difference, in nats over a turn, between the log-probabilities of trainer and sampler before the first step (None:
    not checked).

    Raises:
        ConfigError: two choices contradict each other.
    """

    algorithm: Algorithm = "dr_grpo"
    loss: Loss | None = None
    ratio: RatioLevel | None = None
    normalise: Normalise | None = None
    baseline: Baseline | None = None
    divide_by_std: bool | None = None
    clip_low: float | None = Field(default=None, gt=0, le=1)
    clip_high: float | None = Field(default=None, gt=0)
    min_spread: float | None = Field(default=None, ge=0)
    learning_rate: float = Field(default=1e-4, gt=0)
    tis_cap: float | None = Field(default=None, gt=0)
    kl: float = Field(default=0.0, ge=0)
    kl_unbiased: bool = True
    reference: Literal["base", "start"] = "base"
    entropy: float = Field(default=0.0, ge=0)
    step_credit: float = Field(default=0.0, ge=0, lt=1)
    min_group: int = Field(default=2, ge=2)
    mask_overlong: bool = False
    max_staleness: int | None = Field(default=None, ge=0)
    check_prompts: bool = True
    max_sampler_gap: float | None = Field(default=None, gt=0)
    value: ValueSettings = ValueSettings()

    @property
    def choices(self) -> Choices:
        """What the algorithm and these settings come to."""
        usual = ALGORITHMS[self.algorithm]
        named = {name: getattr(self, name) for name in Choices.__dataclass_fields__}
        made = replace(usual, **{name: value for name, value in named.items() if value is not None})
        return made if self.divide_by_std or made.baseline == "group" else replace(made, divide_by_std=False)

    @property
    def least_spread(self) -> float:
        """``min_spread`` as given, or what stands in for it."""
        if self.min_spread is not None:
            return self.min_spread
        return _STYLE if self.choices.divide_by_std else 0.0

    @model_validator(mode="after")
    def _agree(self) -> Self:
        contradiction = self._contradiction()
        if contradiction:
            what, why, mend = contradiction
            raise ConfigError(f"{self.algorithm}: {what}", why=why, mend=mend)
        return self

    def _contradiction(self) -> tuple[str, str, str] | None:
        chosen = self.choices
        by_baseline = f"the baseline is {chosen.baseline}"
        if chosen.loss == "reinforce" and (self.clip_low or self.clip_high or self.ratio):
            why = "The loss is reinforce, which has no ratio to the old policy."
            return "a clip range or a ratio has nothing to act on", why, "Remove it, or set loss to clip or cispo."
        if chosen.loss == "reinforce" and self.passes > 1:
            what = f"{self.passes} passes would train on another policy's rows"
            why = "The loss is reinforce, which does not correct for the updates since its rows were sampled."
            return what, why, "Set passes to 1, or loss to clip."
        if chosen.divide_by_std and chosen.baseline != "group":
            why = f"It is the deviation of a group's rewards, and {by_baseline}."
            return "divide_by_std has nothing to divide by", why, "Remove divide_by_std, or set baseline to group."
        if self.step_credit and chosen.baseline not in ("group", "leave_one_out"):
            why = f"Credits move a trajectory's advantage over its group, and {by_baseline}."
            return "step_credit has no advantage to move", why, "Set step_credit to 0, or baseline to group."
        if chosen.baseline == "value" and self.min_spread is not None:
            why = "Groups do not matter to it, because the baseline is value."
            return "min_spread leaves nothing out", why, "Remove min_spread, or set baseline to group."
        if chosen.baseline != "value" and self.value != ValueSettings():
            why = f"There are no values, because {by_baseline}."
            return "settings of a value loss are given", why, "Remove the table value, or set baseline to value."
        return None


class Mismatch(Record):
    """A place where a record contradicts itself or the model; what is trained there would not be what was sampled."""

    trajectory: str
    """The id of the trajectory."""
    turn: int | None
    """The index of the step; None where the whole trajectory is meant."""
    reason: Reason
    """What is wrong."""
    why: str
    """What was found, with the figures."""


class StepReport(Record):
    """One optimizer step. All figures of tokens are of the trained ids of the step, under the trainer before the
    weights moved; those without a ratio (imitation, REINFORCE) have none that are of a ratio."""

    rows: int
    """Rows that shared the step."""
    trained_tokens: int
    """Ids that were trained."""
    total_tokens: int
    """Ids of the rows, prompts and observations with them."""
    read_tokens: int
    """Ids that the model read for them: what rows share counts once."""
    loss: float
    """What was minimised."""
    gradient_norm: float
    """Norm of the gradient before it was clipped."""
    mean_logprob: float
    """Mean log-probability in nats; its negative estimates the entropy where the policy sampled the ids itself."""
    entropy: float | None = None
    """Mean entropy in nats of the distributions; None where the model did not say."""
    mean_ratio: float | None = None
    """Mean of the ratio."""
    max_ratio: float | None = None
    """The largest ratio."""
    ratio_quantiles: tuple[float, float, float] | None = None
    """The ratio's 1%, 50% and 99% quantiles."""
    clip_share: float | None = None
    """Share whose gradient the clip took away; of CISPO, whose weight it changed."""
    clip_share_low: float | None = None
    """The part of it below the range."""
    clip_share_high: float | None = None
    """The part of it above the range."""
    kl: float | None = None
    """Mean k3 divergence from the reference in nats; None where it is not computed."""
    sampler_gap: float | None = None
    """Mean of ``|trainer log p - sampler log p|`` in nats; None for imitation. It grows with every step of an update,
    because the weights move."""
    tis_capped_share: float | None = None
    """Share whose truncated weight is at its cap; None without ``tis_cap``."""
    value_loss: float | None = None
    """Mean value loss, before its weight; None without values."""
    seconds: float
    """Wall time."""


class SamplerGap(Record):
    """``|trainer log p - sampler log p|`` in nats over the first step's ids, before any weight moved: 0 but for
    rounding when both are the same policy. ``by_turn`` holds means by the step's index in its trajectory."""

    mean: float
    largest: float
    by_turn: dict[int, float]


OnReport = Callable[[int, StepReport], None]
"""Called after every optimizer step with its number, from 1, and its report."""


class UpdateReport(VersionedRecord):
    """One update.

    ``version`` is what was published, as the directory of that name; None where no weights changed, and the caller
    goes on with ``parent``. ``left_out`` counts by ``reasons.Reason``, and ``mismatches`` names what failed the
    integrity check. ``trained_tokens`` and ``total_tokens`` count what went through the model, again in each pass.
    ``gradient`` is ``zero`` when no step had one, and ``why`` then says which known cause it was; ``stopped_early``
    names the limit that ended the update before its passes were through. ``flat_groups`` are the ids of groups whose
    rewards do not differ enough to learn from, so that others can be sampled in their place.
    """

    algorithm: Literal["sft"] | Algorithm
    parent: str
    version: str | None
    gradient: Literal["nonzero", "zero"]
    why: str = ""
    stopped_early: str = ""
    rows_used: int
    left_out: dict[str, int]
    mismatches: tuple[Mismatch, ...] = ()
    groups: int
    zero_variance_groups: int
    flat_groups: tuple[str, ...] = ()
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
