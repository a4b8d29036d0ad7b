"""A language model with a LoRA adapter, and the log-probabilities of just the ids that are trained.

The transformer's body runs over whole rows, but its head (the largest matrix of a small model) runs only where the
next id is trained. Everything is in eval mode: no dropout anywhere, so that trainer and sampler see one policy.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import peft
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from patchgym.errors import ConfigError
from patchgym.policy.chat import Tokenizer
from patchgym.policy.models import load_model, read_checkpoint, resolve_model
from patchgym.train.report import TrainSettings
from patchgym.train.rows import TokenRow


@dataclass(frozen=True)
class AdaptedModel:
    """A frozen base under a trainable float32 adapter.

    ``body`` maps ids to last hidden states, ``head`` those to logits. ``version`` is that of the weights as loaded,
    ``step`` the number of updates that led to them, ``base`` the model to load underneath, ``max_context`` the
    longest row that the model can read.
    """

    peft_model: peft.PeftModel
    body: nn.Module
    head: nn.Linear
    tokenizer: Tokenizer
    version: str
    step: int
    base: str
    max_context: int

    @property
    def vocabulary(self) -> int:
        """How many ids the model knows, from 0."""
        return self.head.out_features

    def parameters(self) -> list[nn.Parameter]:
        """The trainable parameters, all of the adapter, in a fixed order."""
        return [parameter for parameter in self.peft_model.parameters() if parameter.requires_grad]


def load_adapted(start: str, settings: TrainSettings, cache: Path | None = None) -> AdaptedModel:
    """Load a base model with a new adapter on its linear layers, or a checkpoint with its own adapter to go on with.

    A new adapter changes nothing at first; its random half is drawn from ``settings.seed``; alpha is twice the rank.

    Raises:
        UsageError, PrerequisiteError, DataError: as ``policy.models.load_model``.
        ConfigError: ``lora_layers`` is more than the model has, or its logits are more than head times body.
    """
    loaded = load_model(start, merge_adapter=False, cache=cache)
    step = 0
    if isinstance(loaded.model, peft.PeftModel):
        adapted = loaded.model
        step = read_checkpoint(resolve_model(start, cache)).step
        for name, parameter in adapted.named_parameters():
            parameter.requires_grad_("lora_" in name)
    else:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft still asks transformers for a name it is giving up
            torch.manual_seed(settings.seed)
            adapted = peft.get_peft_model(loaded.model, _new_adapter(_causal(loaded.model), settings))
    causal = _causal(adapted.eval())
    body, head = causal.base_model, causal.get_submodule("lm_head") if hasattr(causal, "lm_head") else None
    if not isinstance(head, nn.Linear) or not _is_plain(causal, body, head):
        raise ConfigError(
            "This model cannot be trained here",
            why=f"{type(causal).__name__} does more to its logits than multiply by its head.",
            mend="Use a model of another architecture (Llama, Qwen2, Mistral, ...).",
        )
    return AdaptedModel(adapted, body, head, loaded.tokenizer, loaded.version, step, loaded.base, loaded.max_context)


@dataclass(frozen=True)
class Batch:
    """Rows of a micro-batch, padded on the right. N counts its trained ids, row after row.

    ``ids_BT`` lacks each row's last id, which nothing follows. The hidden state at ``(rows_N, places_N)`` predicts
    ``targets_N``, an id of step ``turns_N`` that the sampler gave ``sampler_N`` nats.
    """

    rows: tuple[TokenRow, ...]
    ids_BT: Tensor
    rows_N: Tensor
    places_N: Tensor
    targets_N: Tensor
    sampler_N: Tensor
    turns_N: Tensor
    temperature_N: Tensor
    advantages_N: Tensor

    @property
    def tokens(self) -> int:
        """Ids in the rows, padding not counted."""
        return sum(len(row.ids) for row in self.rows)


def make_batch(rows: Sequence[TokenRow]) -> Batch:
    """Lay rows out as tensors; an advantage of None counts as 0, which only imitation has and does not read.

    Raises:
        ValueError: there are no rows.
    """
    width = max(len(row.ids) for row in rows) - 1
    ids_BT = torch.zeros((len(rows), width), dtype=torch.long)
    for index, row in enumerate(rows):
        ids_BT[index, : len(row.ids) - 1] = torch.tensor(row.ids[:-1])
    trained = [(index, at) for index, row in enumerate(rows) for at, bit in enumerate(row.trainable) if bit]
    return Batch(
        rows=tuple(rows),
        ids_BT=ids_BT,
        rows_N=torch.tensor([index for index, _ in trained]),
        places_N=torch.tensor([at - 1 for _, at in trained]),
        targets_N=torch.tensor([rows[index].ids[at] for index, at in trained]),
        sampler_N=torch.tensor([rows[index].logprobs[at] for index, at in trained]),
        turns_N=torch.tensor([rows[index].turns[at] for index, at in trained]),
        temperature_N=torch.tensor([rows[index].temperature for index, _ in trained]),
        advantages_N=torch.tensor([rows[index].advantage or 0.0 for index, _ in trained]),
    )


def trained_logprobs(model: AdaptedModel, batch: Batch) -> Tensor:
    """Log-probabilities in nats of the batch's trained ids, shape N, at each row's temperature.

    No attention mask is needed: padding is on the right, and a causal model never looks there.
    """
    hidden_BTD = model.body(input_ids=batch.ids_BT, use_cache=False).last_hidden_state
    logits_NV = model.head(hidden_BTD[batch.rows_N, batch.places_N]).float() / batch.temperature_N[:, None]
    return -functional.cross_entropy(logits_NV, batch.targets_N, reduction="none")


def micro_batches(rows: Sequence[TokenRow], tokens: int) -> list[list[TokenRow]]:
    """Cut rows into micro-batches of similar length, each at most ``tokens`` ids with its padding (or one row)."""
    parts: list[list[TokenRow]] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if parts and (len(parts[-1]) + 1) * len(row.ids) <= tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _new_adapter(model: PreTrainedModel, settings: TrainSettings) -> peft.LoraConfig:
    total = int(model.config.num_hidden_layers)
    wanted = settings.lora_layers or total
    if wanted > total:
        raise ConfigError(f"lora_layers is {wanted}, and the model has {total} layers", mend=f"Give at most {total}.")
    linear = {name.rpartition(".")[2] for name, part in model.base_model.named_modules() if isinstance(part, nn.Linear)}
    return peft.LoraConfig(
        task_type=peft.TaskType.CAUSAL_LM,
        r=settings.lora_rank,
        lora_alpha=2 * settings.lora_rank,
        lora_dropout=0.0,
        target_modules=sorted(linear),
        # The backward pass ends at the lowest adapted layer: fewer layers are that much faster.
        layers_to_transform=list(range(total - wanted, total)),
    )


def _causal(model: nn.Module) -> PreTrainedModel:
    """The transformers model, out of its adapter's wrapping if it has one."""
    inner = model.get_base_model() if isinstance(model, peft.PeftModel) else model
    if not isinstance(inner, PreTrainedModel):
        raise ConfigError(f"{type(inner).__name__} is no language model of transformers")
    return inner


@torch.no_grad()
def _is_plain(causal: PreTrainedModel, body: nn.Module, head: nn.Linear) -> bool:
    """Whether logits are head times body. Where they are scaled or capped afterwards, applying the head alone would
    train another model than the one that samples."""
    ids_BT = torch.arange(1, 9)[None] % head.out_features
    whole_BTV = causal(input_ids=ids_BT, use_cache=False).logits
    ours_BTV = head(body(input_ids=ids_BT, use_cache=False).last_hidden_state)
    return torch.allclose(ours_BTV, whole_BTV, atol=1e-4)
