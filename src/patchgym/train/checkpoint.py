"""Publishing a policy version: all at once, named by its content."""

import copy
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import peft
import safetensors.torch

from patchgym.content import publish_directory
from patchgym.policy.models import CheckpointInfo
from patchgym.train.model import AdaptedModel


def publish_checkpoint(
    model: AdaptedModel,
    out: Path,
    *,
    algorithm: str,
    metrics: Mapping[str, float | None],
    trained_on: Mapping[str, Sequence[str]],
) -> CheckpointInfo:
    """Write the adapter as a checkpoint directory ``out / version`` and return what its ``checkpoint.json`` says.

    The version is ``ALGORITHM-STEP-HASH``, with the first 8 hex digits of the SHA-256 of the adapter's weights file;
    the parent is the version that the model was loaded as. The optimizer's state is not kept. ``trained_on`` are the
    tasks of this update; those of the updates before it stay on record.

    Raises:
        StorageError: the disk is full or not writable. Nothing is left of the failed try, and earlier checkpoints
            are untouched.
    """
    state = peft.get_peft_model_state_dict(model.peft_model, save_embedding_layers=False)
    weights = safetensors.torch.save({name: part.contiguous() for name, part in state.items()}, {"format": "pt"})
    step = model.step + 1
    info = CheckpointInfo(
        version=f"{algorithm}-{step}-{hashlib.sha256(weights).hexdigest()[:8]}",
        base=model.base,
        parent=model.version,
        algorithm=algorithm,
        step=step,
        metrics=dict(metrics),
        trained_on={**model.trained_on, **{task: tuple(keys) for task, keys in trained_on.items()}},
    )
    config = copy.deepcopy(model.peft_model.active_peft_config)
    config.inference_mode = True
    config.base_model_name_or_path = model.base

    def build(folder: Path) -> None:
        adapter = folder / "adapter"
        config.save_pretrained(str(adapter))
        (adapter / "adapter_model.safetensors").write_bytes(weights)
        (folder / "checkpoint.json").write_text(info.to_line() + "\n", encoding="utf-8")

    publish_directory(out / info.version, build)
    return info
