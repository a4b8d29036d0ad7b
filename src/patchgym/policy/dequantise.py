"""Rewrite a GGUF model as a float32 Hugging Face directory: ``python -m patchgym.policy.dequantise FOLDER FILE OUT``.

A process of its own, because the work writes progress bars and leaves twice the model's size in the allocator.
"""

import importlib
import sys
from typing import Any


def dequantise(folder: str, file: str, target: str) -> None:
    """Read ``folder/file`` and write config, safetensors, tokenizer and chat template into ``target``.

    transformers refuses to save a model that it read from GGUF, because its config still says that it is quantised:
    the weights move into a fresh model of the same shape without that entry.
    """
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    packed = transformers.AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    config = packed.config.__class__.from_dict(
        {key: value for key, value in packed.config.to_dict().items() if key != "quantization_config"}
    )
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(packed.state_dict())
    model.save_pretrained(target)
    tokenizer.save_pretrained(target)


if __name__ == "__main__":
    dequantise(*sys.argv[1:])
