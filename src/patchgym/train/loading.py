"""Getting a model ready for an update: a base model with a new adapter or whole, or a checkpoint to go on with."""

import math
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import peft
import safetensors.torch
import torch
from torch import nn
from transformers import PreTrainedModel

from patchgym.errors import ConfigError, DataError, PrerequisiteError
from patchgym.policy.models import (
    VALUE_HEAD,
    CheckpointInfo,
    LoadedModel,
    load_base,
    load_model,
    read_checkpoint,
    resolve_model,
)
from patchgym.train.masters import Masters
from patchgym.train.model import AdaptedModel, untrainable
from patchgym.train.packed import PackedRows, predict
from patchgym.train.report import PolicyGradientSettings, TrainSettings
from patchgym.train.rows import TokenRow


def load_adapted(start: str, settings: TrainSettings, cache: Path | None = None) -> AdaptedModel:
    """Load a base model or a checkpoint to train: with its adapter or a new one on its linear layers, or whole
    (``settings.adapter``; a checkpoint's adapter is then merged first).

    A new adapter changes nothing at first; its random half is drawn from ``settings.seed``; alpha is twice the rank. A
    new value head says 0 everywhere.

    Raises:
        UsageError, PrerequisiteError, DataError: as ``policy.models.load_model``; DataError also where a value head is
            damaged or of another model, PrerequisiteError where there is no CUDA device.
        ConfigError: ``lora_layers`` is more than the model has, its logits are more than head times body, or an adapter
            is asked for on a checkpoint whose weights were all trained.
    """
    whole = settings.adapter == "none"
    place = resolve_model(start, cache)
    info = read_checkpoint(place) if (place / "checkpoint.json").is_file() else None
    if info is not None and info.weights == "full" and not whole:
        raise ConfigError(
            f"{info.version} cannot go on with an adapter",
            why="All its weights were trained, and a checkpoint of an adapter names the base that it belongs on.",
            mend='Set adapter to "none", or start from another checkpoint.',
        )
    dtype = "float32" if whole else settings.dtype  # masters are made of float32 weights
    model = adapt(load_model(start, merge_adapter=whole, dtype=dtype, cache=cache), settings, info)
    if model.value_head is not None and (place / VALUE_HEAD).is_file():
        _fill(model.value_head, place / VALUE_HEAD)

    def reference() -> AdaptedModel:
        base = load_base(model.base, dtype=settings.dtype, cache=cache)
        network = _causal(base.model.to(model.device))
        return replace(model, network=network, body=network.base_model, head=_head_of(network), value_head=None)

    return replace(model, load_reference=reference) if whole else model


def adapt(loaded: LoadedModel, settings: TrainSettings, info: CheckpointInfo | None = None) -> AdaptedModel:
    """Make a model in memory ready to be trained, and check that it can be. ``info`` is that of its checkpoint.

    Raises:
        ConfigError, PrerequisiteError: as ``load_adapted``.
    """
    device = _device(settings)
    masters = None
    network: PreTrainedModel | peft.PeftModel
    if settings.adapter == "none":
        network = _causal(loaded.model.to(device))
        network.requires_grad_(True)
        masters = Masters(network) if settings.dtype == "bfloat16" else None
    elif isinstance(loaded.model, peft.PeftModel):
        network = loaded.model.to(device)
        for name, parameter in network.named_parameters():
            parameter.requires_grad_("lora_" in name)
    else:
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft still asks transformers for a name it is giving up
            torch.manual_seed(settings.seed)
            causal = _causal(loaded.model)
            network = peft.get_peft_model(causal, _new_adapter(causal, settings)).to(device)
    whole: nn.Module = network  # transformers gives its own ``eval`` no types
    causal = _causal(whole.eval())
    head = _head_of(causal)
    learned = isinstance(settings, PolicyGradientSettings) and settings.choices.baseline == "value"
    model = AdaptedModel(
        network=network,
        body=causal.base_model,
        head=head,
        tokenizer=loaded.tokenizer,
        version=loaded.version,
        step=info.step if info else 0,
        base=loaded.base,
        max_context=loaded.max_context,
        trained_on=info.trained_on if info else {},
        value_head=_value_head(head.in_features, device) if learned else None,
        values_into_body=not isinstance(settings, PolicyGradientSettings) or settings.value.into_body,
        masters=masters,
    )
    _check_short_cuts(model, causal)
    return model


def _device(settings: TrainSettings) -> torch.device:
    there = torch.cuda.is_available()
    if settings.device == "cuda" and not there:
        raise PrerequisiteError(
            "There is no CUDA device", why="torch finds none.", mend='Set device to "auto" or "cpu", or install CUDA.'
        )
    if not there or settings.device == "cpu":
        return torch.device("cpu")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))  # of several processes, each has its own


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


def _head_of(causal: PreTrainedModel) -> nn.Linear:
    head = causal.get_submodule("lm_head") if hasattr(causal, "lm_head") else None
    if not isinstance(head, nn.Linear):
        raise untrainable("it has no linear head")
    return head


def _value_head(width: int, device: torch.device) -> nn.Linear:
    head = nn.Linear(width, 1, device=device, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def _fill(head: nn.Linear, file: Path) -> None:
    try:
        stored: Mapping[str, torch.Tensor] = safetensors.torch.load_file(file)
        head.load_state_dict(stored)
    except (OSError, RuntimeError, safetensors.SafetensorError) as error:
        raise DataError(
            f"Cannot load the value head {file}",
            why=f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}",
            mend="Remove that file to begin with values of 0, or take another checkpoint.",
        ) from error


def _check_short_cuts(model: AdaptedModel, causal: PreTrainedModel) -> None:
    """A part of the head over chunks of a trie must give what the whole model gives. It does not where logits are
    scaled or capped after the head, for example: that would train another model than the one that samples.

    The two differ by rounding: by less than 1e-4 in float32 on a CPU, and by up to a few units of bfloat16's 1/256 of
    a log-probability of about 10."""
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
    exact = model.head.weight.dtype == torch.float32
    allowed = (1e-4 if model.device.type == "cpu" else 1e-3) if exact else 0.25
    if not torch.allclose(ours_N, wanted_N, atol=allowed) or not math.isfinite(ours_N.sum().item()):
        raise untrainable("its logits are more than its head times its last hidden states")
