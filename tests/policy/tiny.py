"""Language models small enough for tests: random weights, one id a byte, a ChatML template."""

import json
from pathlib import Path
from typing import Any

import peft
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast

from patchgym.policy.models import LoadedModel, quiet
from patchgym.records import StepTokens

CHATML = (
    "{% for m in messages %}"
    "{% if loop.first and m['role'] != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{% endif %}"
    "<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

START, END, VOCABULARY, CONTEXT = 257, 256, 258, 512


def tiny_tokenizer(template: str | None = CHATML) -> Any:
    """One id a byte; ``<|im_start|>`` (257) and ``<|im_end|>`` (256) are special."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={char: at for at, char in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    wrapped: Any = PreTrainedTokenizerFast
    return wrapped(
        tokenizer_object=bytes_only,
        eos_token="<|im_end|>",
        additional_special_tokens=["<|im_start|>"],
        chat_template=template,
    )


def tiny_network(kind: str = "llama", **settings: object) -> Any:
    """A random two-layer model of an architecture of transformers, the same at every call."""
    shape: dict[str, object] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": True,
        "initializer_range": 0.3,
        "eos_token_id": END,
    }
    config = AutoConfig.for_model(kind, **shape | settings)
    made: Any = AutoModelForCausalLM
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return made.from_config(config).eval().requires_grad_(False)


def tiny_loaded(network: torch.nn.Module | None = None, *, max_context: int = CONTEXT) -> LoadedModel:
    """A tiny model as ``load_model`` gives it, without a directory behind it."""
    return LoadedModel(
        model=network or tiny_network(),
        tokenizer=tiny_tokenizer(),
        version="tiny@1",
        base="tiny",
        directory=Path("tiny"),
        max_context=max_context,
    )


def save_tiny_model(folder: Path) -> Path:
    """A tiny model as a Hugging Face directory."""
    tiny_network().save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def save_tiny_checkpoint(folder: Path, base: Path, version: str = "grpo-1-abc") -> Path:
    """A checkpoint on ``base`` whose adapter changes the model a good deal."""
    config = peft.LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM")
    with quiet():
        adapted = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(1)
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.5)
    adapted.save_pretrained(str(folder / "adapter"))
    info = {"schema_version": 1, "version": version, "base": str(base), "parent": "tiny@1", "algorithm": "grpo"}
    (folder / "checkpoint.json").write_text(json.dumps({**info, "step": 1, "metrics": {"loss": 0.5, "kl": None}}))
    return folder


def forward_logprobs(model: torch.nn.Module, ids: list[int], temperature: float = 1.0) -> Tensor:
    """Log-probabilities ``[T-1, V]`` after each id but the last, from one plain forward pass without a cache."""
    with torch.inference_mode():
        logits_TV = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1]
    logprobs_TV: Tensor = torch.log_softmax(logits_TV.double() / temperature, dim=-1)
    return logprobs_TV


def gap(model: torch.nn.Module, context: list[int], tokens: StepTokens, temperature: float = 1.0) -> float:
    """Largest difference in nats between a sample's log-probs and those of a plain forward pass over the same ids."""
    assert tokens.logprobs is not None
    logprobs_TV = forward_logprobs(model, [*context, *tokens.sampled_ids], temperature)[len(context) - 1 :]
    expected_T = logprobs_TV.gather(1, torch.tensor(tokens.sampled_ids)[:, None])[:, 0]
    return float((expected_T - torch.tensor(tokens.logprobs, dtype=torch.float64)).abs().max())
