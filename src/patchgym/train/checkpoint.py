"""Publishing a policy version: all at once, named by its content."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import peft
import safetensors.torch
from torch import Tensor

from patchgym.content import publish_directory
from patchgym.policy.models import ADAPTER, MODEL, VALUE_HEAD, CheckpointInfo, quiet
from patchgym.train.model import AdaptedModel


def publish_checkpoint(
    model: AdaptedModel,
    out: Path,
    *,
    algorithm: str,
    metrics: Mapping[str, float | None],
    trained_on: Mapping[str, Sequence[str]],
) -> CheckpointInfo:
    """Write a checkpoint directory ``out / version`` and return what its ``checkpoint.json`` says: the adapter in
    PEFT's form, or all weights in Hugging Face's with config and tokenizer; and the value head if there is one.

    Weights are in float32, those of masters where the model computes in bfloat16. The version is
    ``ALGORITHM-STEP-HASH``, with the first 8 hex digits of a SHA-256 of the weights; the parent is the version that the
    model was loaded as. The optimizer's state is not kept. ``trained_on`` are the tasks of this update; those of the
    updates before it stay on record.

    Raises:
        StorageError: the disk is full or not writable. Nothing is left of the failed try, and earlier checkpoints
            are untouched.
    """
    adapted = isinstance(model.network, peft.PeftModel)
    weights = _adapter_weights(model) if adapted else _whole_weights(model)
    values = dict(model.value_head.state_dict()) if model.value_head is not None else {}
    step = model.step + 1
    info = CheckpointInfo(
        version=f"{algorithm}-{step}-{_digest({**weights, **values})[:8]}",
        base=model.base,
        parent=model.version,
        algorithm=algorithm,
        step=step,
        metrics=dict(metrics),
        weights="adapter" if adapted else "full",
        trained_on={**model.trained_on, **{task: tuple(keys) for task, keys in trained_on.items()}},
    )

    def build(folder: Path) -> None:
        if adapted:
            _write_adapter(model, folder / ADAPTER, weights)
        else:
            _write_whole(model, folder / MODEL, weights)
        if values:
            (folder / VALUE_HEAD).write_bytes(safetensors.torch.save(values, {"format": "pt"}))
        (folder / "checkpoint.json").write_text(info.to_line() + "\n", encoding="utf-8")

    publish_directory(out / info.version, build)
    return info


def _adapter_weights(model: AdaptedModel) -> dict[str, Tensor]:
    state: Mapping[str, Tensor] = peft.get_peft_model_state_dict(model.peft_model, save_embedding_layers=False)
    return {name: part.detach().cpu().contiguous() for name, part in state.items()}


def _whole_weights(model: AdaptedModel) -> dict[str, Tensor]:
    """All weights, tied ones once."""
    masters = model.masters.parameters if model.masters is not None else {}
    found: dict[str, Tensor] = {}
    seen = set[int]()
    for name, part in model.network.state_dict().items():
        if part.data_ptr() not in seen:
            seen.add(part.data_ptr())
            found[name] = masters.get(name, part).detach().cpu().contiguous()
    return found


def _digest(weights: Mapping[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, part in sorted(weights.items()):
        digest.update(f"{name} {part.dtype} {tuple(part.shape)}\n".encode())
        digest.update(part.cpu().numpy().data if part.numel() else b"")
    return digest.hexdigest()


def _write_adapter(model: AdaptedModel, folder: Path, weights: dict[str, Tensor]) -> None:
    config = copy.deepcopy(model.peft_model.active_peft_config)
    config.inference_mode = True
    config.base_model_name_or_path = model.base
    config.save_pretrained(str(folder))
    (folder / "adapter_model.safetensors").write_bytes(safetensors.torch.save(weights, {"format": "pt"}))


def _write_whole(model: AdaptedModel, folder: Path, weights: dict[str, Tensor]) -> None:
    with quiet():
        model.network.save_pretrained(str(folder), state_dict=weights)
        model.tokenizer.save_pretrained(str(folder))
