"""A language model small enough to train in milliseconds, and trajectories that it could have sampled."""

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM

from patchgym.policy.models import load_model
from patchgym.records import Reward, Sampling, Step, StepTokens, Trajectory, Verdict
from patchgym.train import PolicyGradientSettings, UpdateReport
from tests.records_for_tests import make_report, make_step, make_trajectory

_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
VOCABULARY = 258
PROMPT, SEEN = [10, 11, 12, 13], [40, 41, 42]
GOOD, BAD = [20, 21, 22], [30, 31, 32]
RL = PolicyGradientSettings(learning_rate=1e-2, lora_rank=4, max_row_tokens=64)


def save_tiny_model(folder: Path) -> Path:
    """Random weights from a fixed seed."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bytes_only = Tokenizer(models.BPE(vocab={char: at for at, char in enumerate(alphabet)}, merges=[]))
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    bytes_only.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        initializer_range=0.2,  # wide enough for logits that can say something
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    bytes_only.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "additional_special_tokens": ["<|im_start|>"],
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")
    return folder


def full_logprobs(model: torch.nn.Module, ids: Sequence[int], temperature: float = 1.0) -> Tensor:
    """Log-probability of every id but the first, shape T-1, through the model's own logits for one unpadded row."""
    logits_TV = model(input_ids=torch.tensor([ids])).logits[0, :-1].float() / temperature
    logprobs_T: Tensor = logits_TV.log_softmax(-1).gather(1, torch.tensor(ids[1:])[:, None])[:, 0]
    return logprobs_T


def sampled_steps(
    model: torch.nn.Module, turns: Sequence[tuple[Sequence[int], Sequence[int]]], sampling: Sampling | None = None
) -> list[Step]:
    """Steps of (prompt ids, sampled ids), with the log-probabilities that ``model`` gives them and without the messages
    that the prompts are of."""
    sampling = sampling or Sampling()
    steps: list[Step] = []
    ids: list[int] = []
    for index, (prompt, answer) in enumerate(turns):
        ids += [*prompt, *answer]
        with torch.no_grad():
            logprobs = full_logprobs(model, ids, sampling.temperature)[-len(answer) :].tolist()
        tokens = StepTokens(
            prompt_ids=tuple(prompt), sampled_ids=tuple(answer), logprobs=tuple(logprobs), mask=(1,) * len(answer)
        )
        steps.append(make_step(index, tokens=tokens).model_copy(update={"sampling": sampling, "prompt": ()}))
    return steps


def graded(steps: Sequence[Step], reward: float | None, sample: int, group: str = "g") -> Trajectory:
    """A trajectory of group ``group``; without a reward it was lost to infrastructure."""
    report = make_report(Verdict.RESOLVED if reward else Verdict.UNRESOLVED) if reward is not None else None
    made = make_trajectory(sample, task_id=group, steps=steps, report=report, reward=reward)
    return made.model_copy(update={"id": f"{group}.{sample}", "group_id": group})


def rewarded(trajectory: Trajectory, **changes: object) -> Trajectory:
    """The trajectory with other fields; ``reward`` as a number."""
    if "reward" in changes:
        changes["reward"] = Reward.model_validate({"value": changes["reward"], "gate": "test", "terms": {}})
    return trajectory.model_copy(update=changes)


def load(path: Path, cache: Path) -> torch.nn.Module:
    """A model or checkpoint as a sampler sees it: adapter merged."""
    return load_model(str(path), cache=cache).model


def answer_logprob(path: Path, cache: Path, answer: list[int]) -> float:
    """What a sampler with this model or checkpoint gives ``answer`` after ``PROMPT``."""
    with torch.no_grad():
        return full_logprobs(load(path, cache), [*PROMPT, *answer])[-len(answer) :].sum().item()


def published(out: Path, report: UpdateReport) -> Path:
    """The directory of the checkpoint that an update published."""
    assert report.version is not None
    return out / report.version
