"""What a machine with one GPU makes of an update: is it right, how fast is it, what does it hold in memory.

It needs no network: models are random weights of a shape, made on the spot. Every part prints a line of JSON as it
ends, so that a run that is cut off still tells something; a part that fails or has no time says so and the next begins.

- ``agreement``: loss and gradients on the device against the CPU, in float32, of a small shape; on a GPU also bfloat16.
- ``trl``: loss and gradients against TRL's ``GRPOTrainer`` on the device, where TRL is installed.
- ``packing``: an update of a group with a long prompt, and of a tree, as one trie and row by row: seconds, peak memory.
- ``speed``: trained and read tokens a second of an update, all weights and an adapter, against the arithmetic:
  6 (all weights) or 4 (an adapter on frozen ones) times parameters times ids, at the speed of a large matrix product.
- ``sampling``: tokens a second of the local policy's engine, one conversation and many.

    python benchmarks/gpu_check.py [--seconds 450] [--shapes 0.5B 7B] [--parts agreement packing ...]
    python benchmarks/gpu_check.py --tiny        # on the CPU, in seconds: only to see that it runs
"""

import argparse
import contextlib
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

from patchgym.policy.engine import Engine, Request
from patchgym.policy.models import LoadedModel, quiet
from patchgym.train import PolicyGradientSettings, TokenRow
from patchgym.train.batch import make_batch
from patchgym.train.loading import adapt
from patchgym.train.losses import Predictions
from patchgym.train.model import AdaptedModel
from patchgym.train.objectives import PolicyGradient
from patchgym.train.packed import PackedRows, backward

# Layers, width, inner width, heads, heads of keys and values, vocabulary, tied head: those of Qwen2.5.
SHAPES = {
    "tiny": (2, 64, 128, 4, 2, 512, True),
    "small": (4, 256, 688, 8, 4, 8192, True),
    "0.5B": (24, 896, 4864, 14, 2, 151_936, True),
    "7B": (28, 3584, 18_944, 28, 4, 152_064, False),
}
PARTS = ("agreement", "trl", "packing", "speed", "sampling")
CUDA = torch.cuda.is_available()


@dataclass(frozen=True)
class Plan:
    """How large the work is: ids of a prompt and of an answer, rows of a group, levels of a tree, ids of a chunk."""

    prompt: int
    answer: int
    members: int
    depth: int
    chunk: int
    shapes: tuple[str, ...]


def network(shape: str, dtype: torch.dtype, device: str) -> Qwen2ForCausalLM:
    """Random weights, made on the device in the precision asked for."""
    layers, wide, inner, heads, pairs, vocabulary, tied = SHAPES[shape]
    config = Qwen2Config(
        num_hidden_layers=layers,
        hidden_size=wide,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        vocab_size=vocabulary,
        tie_word_embeddings=tied,
        max_position_embeddings=32_768,
    )
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        torch.manual_seed(0)
        with torch.device(device):
            made: Any = Qwen2ForCausalLM
            model: Qwen2ForCausalLM = made(config).eval().requires_grad_(False)
            return model
    finally:
        torch.set_default_dtype(before)


def tokenizer() -> PreTrainedTokenizerFast:
    """One that nothing asks but TRL, for its special tokens."""
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made: Any = PreTrainedTokenizerFast
    found: PreTrainedTokenizerFast = made(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>")
    return found


def ready(causal: Qwen2ForCausalLM, settings: PolicyGradientSettings, seed: int = 1) -> AdaptedModel:
    """A model to be trained. An adapter's second half is drawn, so that every gradient is there."""
    made: Any = tokenizer()
    model = adapt(LoadedModel(causal, made, "random", "random", Path(), 32_768), settings)
    draw = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, part in model.network.named_parameters():
            if "lora_B" in name:
                part.copy_(torch.randn(part.shape, generator=draw) * 0.01)
    return model


def settings_of(plan: Plan, **changes: object) -> PolicyGradientSettings:
    """Dr. GRPO's loss; micro-batches of the plan."""
    told = {"micro_batch_tokens": plan.chunk, "max_row_tokens": 32_768, **changes}
    return PolicyGradientSettings.model_validate(told)


def group(plan: Plan, vocabulary: int) -> list[TokenRow]:
    """Answers to one prompt."""
    draw = random.Random(0)
    prompt = _ids(draw, plan.prompt, vocabulary)
    return [_row(at, prompt, _ids(draw, plan.answer, vocabulary), draw) for at in range(plan.members)]


def tree(plan: Plan, vocabulary: int) -> list[TokenRow]:
    """The leaves of a binary tree."""
    draw, leaves = random.Random(1), [list[int]()]
    for _ in range(plan.depth):
        leaves = [[*leaf, *_ids(draw, plan.answer // 4, vocabulary)] for leaf in leaves for _ in range(2)]
    prompt = _ids(draw, plan.prompt // 4, vocabulary)
    return [_row(at, prompt, leaf, draw) for at, leaf in enumerate(leaves)]


def _ids(draw: random.Random, count: int, vocabulary: int) -> list[int]:
    return [draw.randrange(3, vocabulary) for _ in range(count)]


def _row(at: int, prompt: Sequence[int], answer: Sequence[int], draw: random.Random) -> TokenRow:
    bits = [0] * len(prompt) + [1] * len(answer)
    logprobs, advantage = tuple(draw.gauss(-9, 0.3) * bit for bit in bits), draw.gauss(0, 1)
    given = tuple(advantage * bit for bit in bits)
    return TokenRow(
        (*prompt, *answer), tuple(bits), logprobs, tuple(bit - 1 for bit in bits), f"t{at}", "g", 1.0, given
    )


def step(model: AdaptedModel, rows: Sequence[TokenRow], settings: PolicyGradientSettings, apart: bool = False) -> float:
    """Gradients of a step, added to the parameters; the loss. ``apart`` reads every row by itself."""
    objective, total = PolicyGradient(settings), 0.0
    divisor = objective.normaliser(rows)
    for some in [[row] for row in rows] if apart else [rows]:
        batch = make_batch(some, model.device)
        packed = PackedRows(some, settings.micro_batch_tokens, split=settings.recompute, device=model.device)

        def loss_of(numbers_M: Tensor, seen: Predictions, batch: Any = batch) -> Tensor:
            return objective.token_losses(batch.take(numbers_M), seen)[0].sum() / divisor

        total += backward(model, packed, loss_of, recompute=settings.recompute)
    return total


def gradient(model: AdaptedModel) -> Tensor:
    """All gradients as one, on the CPU in float32; they are taken away."""
    found = [part.grad.float().cpu().flatten() for part in model.parameters() if part.grad is not None]
    for part in model.parameters():
        part.grad = None
    return torch.cat(found)


def timed(work: Callable[[], object], repeats: int = 2) -> tuple[float, float]:
    """Seconds of the fastest of ``repeats`` after a first, and gigabytes of memory at most (None on a CPU)."""
    work()
    taken = []
    if CUDA:
        torch.cuda.reset_peak_memory_stats()
    for _ in range(repeats):
        _wait()
        began = time.perf_counter()
        work()
        _wait()
        taken.append(time.perf_counter() - began)
    return min(taken), torch.cuda.max_memory_allocated() / 2**30 if CUDA else float("nan")


def _wait() -> None:
    if CUDA:
        torch.cuda.synchronize()


def apart(ours: Tensor, wanted: Tensor) -> float:
    """The largest difference, as a share of the largest number."""
    return ((ours - wanted).abs().max() / wanted.abs().max()).item()


def agreement(plan: Plan) -> Iterator[dict[str, object]]:
    """Loss and gradients on the device against float32 on the CPU."""
    shape = "small" if CUDA else "tiny"
    small = Plan(48, 24, 4, 3, 64, ())
    for kind in ("lora", "none"):
        asked = settings_of(small, adapter=kind, device="cpu", lora_rank=4)
        model = ready(network(shape, torch.float32, "cpu"), asked)
        rows = [*group(small, model.vocabulary), *tree(small, model.vocabulary)]
        wanted_loss, wanted = step(model, rows, asked, apart=True), gradient(model)
        for dtype in ("float32", "bfloat16"):
            there = asked.model_copy(update={"device": "auto", "dtype": dtype})
            base = network(shape, torch.float32, "cpu")
            if kind == "lora" and dtype == "bfloat16":
                for part in base.parameters():  # buffers stay: frequencies of positions must not be rounded
                    part.data = part.data.to(torch.bfloat16)
            other = ready(base, there)
            loss, found = step(other, rows, there), gradient(other)
            yield {
                "adapter": kind,
                "dtype": dtype,
                "loss_apart": abs(loss - wanted_loss) / abs(wanted_loss),
                "gradients_apart": apart(found, wanted),
                "gradients_cosine": torch.cosine_similarity(found, wanted, dim=0).item(),
            }


def trl(plan: Plan) -> Iterator[dict[str, object]]:
    """Against TRL on the device, in float32."""
    try:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer
    except ImportError as error:
        yield {"skipped": f"{error.name} is not installed"}
        return
    small = Plan(48, 24, 4, 3, 64, ())
    asked = settings_of(small, lora_rank=4)
    model = ready(network("small" if CUDA else "tiny", torch.float32, "cpu"), asked)
    rows = group(small, model.vocabulary)
    loss, found = step(model, rows, asked), gradient(model)
    with tempfile.TemporaryDirectory() as folder, quiet():
        config = GRPOConfig(
            output_dir=folder,
            per_device_train_batch_size=len(rows),
            num_generations=len(rows),
            max_completion_length=32_768,
            loss_type="dr_grpo",
            epsilon=0.2,
            epsilon_high=0.28,
            temperature=1.0,
            report_to="none",
            use_cpu=not CUDA,
            bf16=False,
            gradient_checkpointing=False,
        )
        trainer = GRPOTrainer(
            model=model.peft_model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=model.tokenizer,
        )
        theirs = trainer._compute_loss(trainer.model, their_inputs(rows, small.prompt, model.device))
        theirs.backward()
    yield {"loss_apart": abs(loss - theirs.item()) / abs(loss), "gradients_apart": apart(found, gradient(model))}


def their_inputs(rows: Sequence[TokenRow], start: int, device: torch.device) -> dict[str, Tensor]:
    """The rows as TRL wants them."""
    ids, told = torch.tensor([row.ids for row in rows]), torch.tensor([row.logprobs for row in rows])
    given = {
        "prompt_ids": ids[:, :start],
        "prompt_mask": torch.ones_like(ids[:, :start]),
        "completion_ids": ids[:, start:],
        "completion_mask": torch.ones_like(ids[:, start:]),
        "advantages": torch.tensor([row.advantages[-1] for row in rows if row.advantages]),
        "old_per_token_logps": told[:, start:],
        "num_items_in_batch": torch.tensor(ids[:, start:].numel()),
    }
    return {name: part.to(device) for name, part in given.items()}


def packing(plan: Plan) -> Iterator[dict[str, object]]:
    """One trie against row by row, in bfloat16, with an adapter; ``recompute`` beside."""
    shape = plan.shapes[0]
    asked = settings_of(plan, dtype="bfloat16", lora_rank=16)
    model = ready(network(shape, torch.bfloat16, "cuda" if CUDA else "cpu"), asked)
    for name, rows in (("group", group(plan, model.vocabulary)), ("tree", tree(plan, model.vocabulary))):
        found: dict[str, object] = {"shape": shape, "rows": name, "row_ids": sum(len(row.ids) for row in rows)}
        found["read_ids"] = PackedRows(rows, plan.chunk).read
        again = asked.model_copy(update={"recompute": True})
        flat, flat_gb = timed(lambda rows=rows: step(model, rows, asked, apart=True), 1)  # type: ignore[misc]
        ours, ours_gb = timed(lambda rows=rows: step(model, rows, asked), 1)  # type: ignore[misc]
        twice, twice_gb = timed(lambda rows=rows, again=again: step(model, rows, again), 1)  # type: ignore[misc]
        yield {
            **found,
            "seconds": {"row_by_row": flat, "trie": ours, "trie_recompute": twice},
            "speed_up": flat / ours,
            "peak_gb": {"row_by_row": flat_gb, "trie": ours_gb, "trie_recompute": twice_gb} if CUDA else None,
        }


def speed(plan: Plan) -> Iterator[dict[str, object]]:
    """Tokens a second of an update against the arithmetic."""
    device, peak = "cuda" if CUDA else "cpu", matmul_peak()
    yield {"matmul_tflops": peak / 1e12, "device": torch.cuda.get_device_name() if CUDA else "cpu"}
    for shape in plan.shapes:
        for kind in ("lora", "none"):
            weights = _parameters(shape)
            if kind == "none" and CUDA and 20 * weights > torch.cuda.get_device_properties(0).total_memory:
                yield {"shape": shape, "adapter": kind, "skipped": "weights, masters and moments do not fit"}
                continue
            asked = settings_of(plan, dtype="bfloat16", adapter=kind, lora_rank=16)
            dtype = torch.bfloat16 if kind == "lora" else torch.float32
            model = ready(network(shape, dtype, device), asked)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
            rows = group(plan, model.vocabulary)

            def update(rows: Any = rows, asked: Any = asked, model: Any = model, optimizer: Any = optimizer) -> None:
                step(model, rows, asked)
                optimizer.step()
                model.moved()
                optimizer.zero_grad()

            seconds, peak_gb = timed(update)
            read, trained = PackedRows(rows, plan.chunk).read, sum(row.trained for row in rows)
            floor = (4 if kind == "lora" else 6) * weights * read / peak
            yield {
                "shape": shape,
                "adapter": kind,
                "trained_tokens_a_second": trained / seconds,
                "row_tokens_a_second": sum(len(row.ids) for row in rows) / seconds,
                "read_tokens_a_second": read / seconds,
                "seconds": seconds,
                "over_floor": seconds / floor,
                "peak_gb": peak_gb if CUDA else None,
            }
            del model, optimizer, update
            if CUDA:
                torch.cuda.empty_cache()


def matmul_peak() -> float:
    """Operations a second of a large product in bfloat16."""
    size = 8192 if CUDA else 512
    left = torch.randn(size, size, dtype=torch.bfloat16, device="cuda" if CUDA else "cpu")
    seconds, _ = timed(lambda: left @ left, 5)
    return 2 * size**3 / seconds


def _parameters(shape: str) -> int:
    layers, wide, inner, heads, pairs, vocabulary, _ = SHAPES[shape]
    return layers * wide * (wide * 2 + 2 * wide * pairs // heads + 3 * inner) + vocabulary * wide


def sampling(plan: Plan) -> Iterator[dict[str, object]]:
    """Tokens a second of the engine."""
    draw = random.Random(2)
    for shape in plan.shapes:
        model = network(shape, torch.bfloat16, "cuda" if CUDA else "cpu")
        for together in (1, plan.members):
            engine = Engine(model, frozenset(), max_batch=together, kept_tokens=1)
            prompts = [tuple(_ids(draw, plan.prompt, model.config.vocab_size)) for _ in range(together)]
            began = time.perf_counter()
            asked = [engine.submit(Request(ids, plan.answer, 1.0, 1.0, at)) for at, ids in enumerate(prompts)]
            made = sum(len(one.result().ids) for one in asked)
            seconds = time.perf_counter() - began
            engine.close()
            yield {"shape": shape, "rows": together, "tokens_a_second": made / seconds, "with_prefill_of": plan.prompt}
        del model, engine
        if CUDA:
            torch.cuda.empty_cache()


def main() -> None:
    """Run the parts in order, each with its share of the time that is left."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=450.0, help="no part's next line is begun after this")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["0.5B", "7B"])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--tiny", action="store_true", help="a shape for the CPU")
    options = parser.parse_args()
    plan = Plan(2048, 256, 8, 6, 4096, tuple(options.shapes))
    if options.tiny:
        plan = Plan(48, 8, 3, 3, 64, ("tiny",))
    began = time.monotonic()
    for name in options.parts:
        share = (options.seconds - (time.monotonic() - began)) / (len(options.parts) - options.parts.index(name))
        part, since = globals()[name](plan), time.monotonic()
        with contextlib.closing(part):
            while True:
                try:
                    found = next(part, None)
                except (RuntimeError, MemoryError) as error:  # out of memory, or an operation that the device lacks
                    found = {"failed": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
                if found is None:
                    break
                told = {"part": name, "at_s": round(time.monotonic() - began, 1), **found}
                print(json.dumps(told, default=str), flush=True)
                if time.monotonic() - since > share:
                    print(json.dumps({"part": name, "stopped": f"its share of {share:.0f} s is over"}), flush=True)
                    break


if __name__ == "__main__":
    main()
