"""One batch, our loss of it, and TRL's: the same numbers through two programs.

The batch has several rows a group, several turns a row with observations between them, and rows of different lengths.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from patchgym.train import PolicyGradientSettings, TokenRow
from patchgym.train.batch import Batch, make_batch
from patchgym.train.losses import Predictions
from patchgym.train.objectives import PolicyGradient
from tests.train.tiny import VOCABULARY

TEMPERATURE = 0.8
LENGTH = 40
KL, CAP = 0.1, 1.1


@dataclass(frozen=True)
class Case:
    """One loss: our settings, TRL's arguments, and whether the old policy is another one than the sampler."""

    ours: Mapping[str, object]
    theirs: Mapping[str, object]
    corrected: bool = False


CASES = {
    "grpo": Case({"algorithm": "grpo"}, {"loss_type": "grpo", "epsilon": 0.2}),
    "dr_grpo": Case({"algorithm": "dr_grpo"}, {"loss_type": "dr_grpo", "epsilon": 0.2, "epsilon_high": 0.28}),
    "dapo": Case({"algorithm": "dapo"}, {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}),
    "bnpo": Case({"algorithm": "grpo", "normalise": "tokens"}, {"loss_type": "bnpo", "epsilon": 0.2}),
    "cispo": Case({"algorithm": "cispo", "clip_high": 0.1}, {"loss_type": "cispo", "epsilon_high": 1.1}),
    "gspo": Case(
        {"algorithm": "gspo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "epsilon": 3e-4, "epsilon_high": 4e-4},
    ),
    "grpo with kl": Case({"algorithm": "grpo", "kl": KL}, {"loss_type": "grpo", "epsilon": 0.2, "beta": KL}),
    "dapo, corrected": Case(
        {"algorithm": "dapo", "tis_cap": CAP}, {"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28}, True
    ),
    "gspo, corrected, with kl": Case(
        {"algorithm": "gspo", "tis_cap": CAP, "kl": KL, "kl_unbiased": False},
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
            "beta": KL,
            "use_bias_correction_kl": False,
        },
        True,
    ),
}


@dataclass(frozen=True)
class Sampled:
    """Rows, and the log-probabilities that three policies give their ids; those of the sampler stand in the row."""

    rows: tuple[TokenRow, ...]
    trainer: tuple[tuple[float, ...], ...]
    old: tuple[tuple[float, ...], ...]
    reference: tuple[tuple[float, ...], ...]


def sample(seed: int = 0) -> Sampled:
    """Two groups of three rows. The ratios between the policies are far enough from 1 that every clip is at work."""
    draw = random.Random(seed)
    rows, others = [], []
    for at, advantage in enumerate((0.7, -0.5, -0.2, 1.1, -1.3, 0.2)):
        bits = [0] * draw.randint(2, 6)
        for _ in range(draw.randint(1, 3)):
            bits += [1] * draw.randint(1, 5) + [0] * draw.randint(0, 4)
        trainer = [-draw.uniform(0.1, 3.0) for _ in bits]
        others.append([trainer, *([value + draw.gauss(0, 0.25) for value in trainer] for _ in range(2))])
        row = TokenRow(
            ids=tuple(draw.randrange(VOCABULARY) for _ in bits),
            trainable=tuple(bits),
            logprobs=tuple(value + draw.gauss(0, 0.25) for value in trainer),
            turns=tuple(0 if bit else -1 for bit in bits),
            trajectory_id=f"t{at}",
            group_id=f"g{at // 3}",
            temperature=TEMPERATURE,
            advantages=tuple(advantage * bit for bit in bits),
        )
        rows.append(row)
    trainer_R, old_R, reference_R = (tuple(tuple(one[kind]) for one in others) for kind in range(3))
    return Sampled(tuple(rows), trainer_R, old_R, reference_R)


def settings_of(case: Case) -> PolicyGradientSettings:
    """Ours of a case."""
    return PolicyGradientSettings.model_validate({**case.ours, "max_row_tokens": LENGTH, "reference": "start"})


def our_loss(case: Case, batch: Batch, predictions: Predictions, given: Sampled) -> Tensor:
    """The loss of one step with these rows, by the objective that trains."""
    settings = settings_of(case)
    started = given.old if case.corrected else given.reference
    said_N = torch.cat([of_trained(row, values) for row, values in zip(given.rows, started, strict=True)])
    objective = PolicyGradient(settings)
    objective.prepare(batch.rows, lambda rows, of: Predictions(said_N))
    losses_N, _ = objective.token_losses(batch, predictions)
    return losses_N.sum() / objective.normaliser(batch.rows)


def of_trained(row: TokenRow, values: Sequence[float]) -> Tensor:
    """The values of a row's trained ids, shape N."""
    return torch.tensor([value for value, bit in zip(values, row.trainable, strict=True) if bit])


def our_results(case: Case, given: Sampled) -> tuple[float, list[list[float]]]:
    """Loss and its gradient by each id's log-probability, row by row."""
    batch = make_batch(given.rows)
    trained = [of_trained(row, values) for row, values in zip(given.rows, given.trainer, strict=True)]
    logprobs_N = torch.cat(trained).requires_grad_()
    loss = our_loss(case, batch, Predictions(logprobs_N), given)
    (gradient_N,) = torch.autograd.grad(loss, logprobs_N)
    values = iter(gradient_N.tolist())
    return loss.item(), [[next(values) if bit else 0.0 for bit in row.trainable] for row in given.rows]


class Given(nn.Module):
    """A model, as TRL calls it, whose log-probabilities of the rows' ids are its parameters."""

    def __init__(self, logprobs_BT: Tensor) -> None:
        super().__init__()
        self.logprobs_BT = nn.Parameter(logprobs_BT)

    def forward(self, input_ids: Tensor, **_: object) -> Any:
        from trl.trainer.utils import FusedCausalLMOutput

        before_BP = self.logprobs_BT.new_zeros(len(input_ids), input_ids.shape[1] - self.logprobs_BT.shape[1])
        both_BT = torch.cat([before_BP, self.logprobs_BT], dim=1)
        return FusedCausalLMOutput(log_probs=both_BT, entropy=torch.zeros_like(both_BT))


def their_trainer(case: Case, model: Any, tokenizer: Any, folder: Path) -> Any:
    """A GRPOTrainer of TRL around a model."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    arguments = {name: value for name, value in case.theirs.items() if name != "beta"}
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=6,
        num_generations=3,
        max_completion_length=LENGTH,
        temperature=TEMPERATURE,
        report_to="none",
        use_cpu=True,
        bf16=False,
        **arguments,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=tokenizer,
    )
    trainer.beta = case.theirs.get("beta", 0.0)  # the reference's log-probabilities are given: no second model is made
    trainer.use_vllm = case.corrected  # only then does it correct for the sampler
    trainer.vllm_importance_sampling_correction = case.corrected
    return trainer


def their_inputs(case: Case, given: Sampled) -> dict[str, Tensor]:
    """The rows as TRL wants them: prompts padded on the left, the rest on the right, observations masked."""
    starts = [row.trainable.index(1) for row in given.rows]
    widest = max(starts)

    def left(values: Sequence[int], start: int) -> list[int]:
        return [0] * (widest - start) + [*values[:start]]

    ids = [row.ids for row in given.rows]
    completion_BT = _right(ids, starts)
    sampler_BT = _right([row.logprobs for row in given.rows], starts)
    old_BT = _right(given.old, starts)
    tool_mask_BT = _right([row.trainable for row in given.rows], starts)
    inputs = {
        "prompt_ids": torch.tensor([left(row, start) for row, start in zip(ids, starts, strict=True)]),
        "prompt_mask": torch.tensor([left([1] * start, start) for start in starts]),
        "completion_ids": completion_BT.long(),
        "completion_mask": _right([[1] * len(row) for row in ids], starts).long(),
        "tool_mask": tool_mask_BT.long(),
        "advantages": torch.tensor(
            [row.advantages[start] for row, start in zip(given.rows, starts, strict=True) if row.advantages]
        ),
        "old_per_token_logps": old_BT if case.corrected else sampler_BT,
        "ref_per_token_logps": old_BT if case.corrected else _right(given.reference, starts),
        "num_items_in_batch": tool_mask_BT.sum(),
    }
    if case.corrected:
        inputs["importance_sampling_ratio"] = torch.exp(old_BT - sampler_BT).clamp(max=CAP)
    return inputs


def their_results(case: Case, given: Sampled, trainer: Any) -> tuple[float, list[list[float]]]:
    """As ``our_results``, by TRL."""
    starts = [row.trainable.index(1) for row in given.rows]
    model = Given(_right(given.trainer, starts))
    loss = trainer._compute_loss(model, their_inputs(case, given))
    (gradient_BT,) = torch.autograd.grad(loss, model.logprobs_BT)
    rows = zip(given.rows, starts, gradient_BT.tolist(), strict=True)
    return loss.item(), [[0.0] * start + line[: len(row.ids) - start] for row, start, line in rows]


def _right(values: Sequence[Sequence[float]], starts: Sequence[int]) -> Tensor:
    parts = [torch.tensor(row[start:], dtype=torch.float32) for row, start in zip(values, starts, strict=True)]
    return nn.utils.rnn.pad_sequence(parts, batch_first=True)
