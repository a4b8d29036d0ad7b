"""Getting a model ready for an update: a base model with a new adapter, or a checkpoint with its own."""

import warnings
from pathlib import Path

import peft
import torch
from torch import nn
from transformers import PreTrainedModel

from patchgym.errors import ConfigError
from patchgym.policy.models import load_model, read_checkpoint, resolve_model
from patchgym.train.model import AdaptedModel, untrainable
from patchgym.train.packed import PackedRows, predict
from patchgym.train.report import TrainSettings
from patchgym.train.rows import TokenRow


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
        raise untrainable("it has no linear head")
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


def _check_short_cuts(model: AdaptedModel, causal: PreTrainedModel) -> None:
    """A part of the head over chunks of a trie must give what the whole model gives. It does not where logits are
    scaled or capped after the head, for example: that would train another model than the one that samples."""
    row = tuple(at % model.vocabulary for at in range(1, 10))
    rows = [
        TokenRow(ids, (0,) * 8 + (1,), (0.0,) * 9, (-1,) * 9, "probe", "probe")
        for ids in (row, (*row[:5], *reversed(row[5:])))
    ]
    ours_N = predict(model, PackedRows(rows, 3, device=model.device)).logprobs_N
    with torch.no_grad():
        read = torch.tensor([one.ids[:-1] for one in rows], device=model.device)
        logits_NV = causal(input_ids=read, use_cache=False).logits[:, -1].float()
    wanted_N = logits_NV.log_softmax(-1)[[0, 1], [one.ids[-1] for one in rows]]
    if not torch.allclose(ours_N, wanted_N, atol=1e-4):
        raise untrainable("its logits are more than its head times its last hidden states")
