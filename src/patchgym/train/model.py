"""A language model with a LoRA adapter, and the log-probabilities of just the ids that are trained.

The head (the largest matrix of a small model) runs only where the next id is trained, and what several rows begin
with is read once for all of them (``Prefix``); both give the numbers of the plain way. Everything is in eval mode: no
dropout anywhere, so that trainer and sampler see one policy.
"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import peft
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

from patchgym.errors import ConfigError
from patchgym.policy.chat import Tokenizer
from patchgym.policy.models import load_model, read_checkpoint, resolve_model
from patchgym.train.losses import Predictions, entropy
from patchgym.train.report import TrainSettings
from patchgym.train.rows import TokenRow


@dataclass(frozen=True)
class AdaptedModel:
    """A frozen base under a trainable float32 adapter.

    ``body`` maps ids to last hidden states, ``head`` those to logits. ``version`` is that of the weights as loaded,
    ``step`` the number of updates that led to them, ``base`` the model to load underneath, ``max_context`` the
    longest row that the model can read, ``trained_on`` the tasks in its weights (see ``CheckpointInfo``).
    """

    peft_model: peft.PeftModel
    body: nn.Module
    head: nn.Linear
    tokenizer: Tokenizer
    version: str
    step: int
    base: str
    max_context: int
    trained_on: Mapping[str, tuple[str, ...]]

    @property
    def vocabulary(self) -> int:
        """How many ids the model knows, from 0."""
        return self.head.out_features

    def read(
        self,
        ids_BT: Tensor,
        cache: DynamicCache | None = None,
        mask_B1TS: Tensor | None = None,
        positions_BT: Tensor | None = None,
    ) -> Tensor:
        """Last hidden states, shape BTD, of ids behind what ``cache`` holds already; they are added to it.
        ``mask_B1TS`` is True where an id may look, ``positions_BT`` where it stands; without them the ids follow each
        other."""
        # By position: transformers is renaming the argument of the cache.
        read = self.body(ids_BT, mask_B1TS, positions_BT, cache, use_cache=cache is not None)
        hidden_BTD: Tensor = read.last_hidden_state
        return hidden_BTD

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
    step, trained_on = 0, dict[str, tuple[str, ...]]()
    if isinstance(loaded.model, peft.PeftModel):
        adapted = loaded.model
        info = read_checkpoint(resolve_model(start, cache))
        step, trained_on = info.step, info.trained_on
        for name, parameter in adapted.named_parameters():
            parameter.requires_grad_("lora_" in name)
    else:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft still asks transformers for a name it is giving up
            torch.manual_seed(settings.seed)
            adapted = peft.get_peft_model(loaded.model, _new_adapter(_causal(loaded.model), settings))
    causal = _causal(adapted.eval())
    body, head = causal.base_model, causal.get_submodule("lm_head") if hasattr(causal, "lm_head") else None
    if not isinstance(head, nn.Linear):
        raise _untrainable("it has no linear head")
    model = AdaptedModel(
        peft_model=adapted,
        body=body,
        head=head,
        tokenizer=loaded.tokenizer,
        version=loaded.version,
        step=step,
        base=loaded.base,
        max_context=loaded.max_context,
        trained_on=trained_on,
    )
    _check_short_cuts(model, causal)
    return model


@dataclass(frozen=True)
class Batch:
    """The rows of a micro-batch, padded on the right. N counts its trained ids, row after row.

    ``ids_BT`` lacks the ids of a prefix that was read before, and each row's last id, which nothing follows. The
    hidden state of row ``rows_N`` at ``places_N`` (counted from the row's start) predicts ``targets_N``, an id of step
    ``turns_N`` that the sampler gave ``sampler_N`` nats.
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


def make_batch(rows: Sequence[TokenRow], offset: int = 0) -> Batch:
    """Lay out rows; their first ``offset`` ids are a prefix that was read before.

    Advantages of None count as 0: only imitation has them, and does not read them.

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
        ids_BT=ids_BT[:, offset:],
        rows_N=torch.tensor([index for index, _ in trained]),
        places_N=torch.tensor([at - 1 for _, at in trained]),
        targets_N=torch.tensor([rows[index].ids[at] for index, at in trained]),
        sampler_N=torch.tensor([rows[index].logprobs[at] for index, at in trained]),
        turns_N=torch.tensor([rows[index].turns[at] for index, at in trained]),
        temperature_N=torch.tensor([rows[index].temperature for index, _ in trained]),
        advantages_N=torch.tensor([_advantage(rows[index], at) for index, at in trained]),
    )


class Prefix:
    """The ids that a family of rows begins with, read once for all of them.

    The rows see its keys, values and last hidden states as leaves, where their gradients add up; ``backward`` then
    carries the sum through the prefix in one go. Loss and gradients are those of rows that were each read from the
    start.
    """

    def __init__(self, model: AdaptedModel, rows: Sequence[TokenRow]) -> None:
        """Read what ``rows`` begin with, trained ids among it or not. One row alone shares nothing."""
        self.length = _shared_length(rows)
        self._read: list[Tensor] = []
        if self.length:
            cache = DynamicCache()
            hidden_BTD = model.read(torch.tensor([rows[0].ids[: self.length]]), cache)
            self._read = [hidden_BTD, *(part for layer in cache.layers for part in contents(layer))]
        self._leaves = [part.detach().requires_grad_(part.requires_grad) for part in self._read]

    def before(self, rows: int) -> tuple[Tensor, DynamicCache]:
        """The prefix in front of ``rows`` rows: its last hidden states, shape BTD, and a new cache that holds it."""
        hidden_BTD, *contents = (part.expand(rows, *part.shape[1:]) for part in self._leaves)
        cache = DynamicCache()
        for layer, (keys, values) in enumerate(zip(contents[::2], contents[1::2], strict=True)):
            cache.update(keys, values, layer)
        return hidden_BTD, cache

    def backward(self) -> None:
        """Carry the gradients of all rows so far through the prefix to the adapter. Call it once."""
        pairs = [(part, leaf.grad) for part, leaf in zip(self._read, self._leaves, strict=True)]
        reached = [(part, gradient) for part, gradient in pairs if gradient is not None]
        if reached:
            torch.autograd.backward([part for part, _ in reached], [gradient for _, gradient in reached])


def trained_logprobs(model: AdaptedModel, batch: Batch, prefix: Prefix | None = None) -> Tensor:
    """Log-probabilities in nats of the batch's trained ids, shape N, at each row's temperature, as ``predict``."""
    return _logprobs(_trained_logits(model, batch, prefix), batch)


def predict(
    model: AdaptedModel, batch: Batch, prefix: Prefix | None = None, *, entropy_gradient: bool = False
) -> Predictions:
    """Log-probabilities of the batch's trained ids and entropies of their distributions, at each row's temperature.

    ``prefix`` is what the batch was laid out behind, if anything. Entropies have a gradient only if asked for. There
    are no values: this model has no value head.
    """
    logits_NV = _trained_logits(model, batch, prefix)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy_N = entropy(logits_NV)
    return Predictions(_logprobs(logits_NV, batch), entropy_N)


def _trained_logits(model: AdaptedModel, batch: Batch, prefix: Prefix | None) -> Tensor:
    """Logits in front of the trained ids. No attention mask is needed: padding is on the right, and a causal model
    never looks there."""
    if prefix and prefix.length:
        before_BTD, cache = prefix.before(len(batch.rows))
        hidden_BTD = torch.cat([before_BTD, model.read(batch.ids_BT, cache)], dim=1)
    else:
        hidden_BTD = model.read(batch.ids_BT)
    logits_NV: Tensor = model.head(hidden_BTD[batch.rows_N, batch.places_N]).float() / batch.temperature_N[:, None]
    return logits_NV


def _logprobs(logits_NV: Tensor, batch: Batch) -> Tensor:
    return -functional.cross_entropy(logits_NV, batch.targets_N, reduction="none")


def _advantage(row: TokenRow, at: int) -> float:
    return row.advantages[at] if row.advantages is not None else 0.0


def families(rows: Sequence[TokenRow]) -> list[list[TokenRow]]:
    """Rows that begin alike: those of each group together, and those alone in their group (which share the system
    prompt, say) as one family."""
    groups: dict[str, list[TokenRow]] = {}
    for row in rows:
        groups.setdefault(row.group_id, []).append(row)
    together = [members for members in groups.values() if len(members) > 1]
    alone = [members[0] for members in groups.values() if len(members) == 1]
    return [*together, alone] if alone else together


def micro_batches(rows: Sequence[TokenRow], tokens: int, offset: int = 0) -> list[list[TokenRow]]:
    """Cut rows into micro-batches of similar length, each at most ``tokens`` ids with its padding (or one row).
    The first ``offset`` ids of a row do not count."""
    parts: list[list[TokenRow]] = []
    for row in sorted(rows, key=lambda row: len(row.ids)):
        if parts and (len(parts[-1]) + 1) * (len(row.ids) - offset) <= tokens:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def contents(layer: object) -> tuple[Tensor, Tensor]:
    """Keys and values of one layer of a cache.

    Raises:
        ConfigError: the model keeps something else.
    """
    if not isinstance(layer, DynamicLayer) or layer.keys is None or layer.values is None:
        raise _untrainable(f"it keeps a {type(layer).__name__} where keys and values were expected")
    return layer.keys, layer.values


def _shared_length(rows: Sequence[TokenRow]) -> int:
    if len(rows) < 2:
        return 0
    first, last = min(row.ids for row in rows), max(row.ids for row in rows)  # in order, these differ the earliest
    alike = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return max(0, min(alike, *(len(row.ids) - 2 for row in rows)))  # so that each row has an id left to read


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
def _check_short_cuts(model: AdaptedModel, causal: PreTrainedModel) -> None:
    """A part of the head over a prefix read before must give what the whole model gives. It does not where logits are
    scaled or capped after the head, for example: that would train another model than the one that samples."""
    ids = tuple(at % model.vocabulary for at in range(1, 10))
    probe = TokenRow(ids, (0,) * 8 + (1,), (0.0,) * 9, (-1,) * 9, "probe", "probe")
    prefix = Prefix(model, [probe, probe])
    ours_N = trained_logprobs(model, make_batch([probe], prefix.length), prefix)
    logits_V = causal(input_ids=torch.tensor([ids[:-1]]), use_cache=False).logits[0, -1].float()
    if not torch.allclose(ours_N, logits_V.log_softmax(-1)[ids[-1]], atol=1e-4):
        raise _untrainable("its logits are more than its head times its last hidden states")


def _untrainable(why: str) -> ConfigError:
    return ConfigError(
        "This model cannot be trained here",
        why=f"{why[:1].upper()}{why[1:]}.",
        mend="Use a model of another architecture (Llama, Qwen2, Mistral, ...).",
    )
