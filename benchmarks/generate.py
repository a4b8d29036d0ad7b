"""Sampling over the turns of conversations: our engine, which keeps keys and values, and ``generate``, which does not.

Prints one JSON document. Both sample the same conversations from the same weights (random, of SmolLM2's shape, in
float32): every turn is a stretch of observation and then an answer of fixed length. ``generate`` of transformers reads
the whole conversation again at every turn, as whoever calls it turn by turn lets it; all conversations of a turn are
one batch of it. Claim: at least 3 times its sampled tokens a second, over 8 turns of 8 samples of one task.

- ``alone``: one conversation;
- ``task``: samples of one task, which begin alike.

The floor is the arithmetic: every id that must be read once, at the speed of a large matrix product.

    python benchmarks/generate.py [--turns 8] [--samples 8] [--prompt 384] [--observation 96] [--answer 16]
"""

import argparse
import json
import os
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from patchgym.policy.engine import Engine, Request

SHAPES = {"smollm2": (30, 576, 1536, 9, 3, 49_152), "tiny": (2, 32, 64, 4, 2, 512)}
NEVER = frozenset[int]()


@dataclass(frozen=True)
class Work:
    """The conversations: what each is told at each turn, and how much it answers."""

    told: list[list[list[int]]]
    answer: int

    @property
    def sampled(self) -> int:
        """Ids that are sampled in all."""
        return sum(len(one) for one in self.told) * self.answer

    @property
    def different(self) -> int:
        """Ids that must be read: what conversations begin with alike once, and everything else."""
        first = {tuple(one[0]) for one in self.told}
        later = sum(len(ids) for one in self.told for ids in one[1:])
        return sum(map(len, first)) + later + self.sampled

    @property
    def read_again(self) -> int:
        """Ids that are read where every turn reads its whole context."""
        total = 0
        for one in self.told:
            context = 0
            for ids in one:
                context += len(ids)
                total += context + self.answer
                context += self.answer
        return total


def work(samples: int, options: argparse.Namespace, vocabulary: int) -> Work:
    """Samples of one task: they begin alike, and see other things later."""
    draw = random.Random(0)

    def some(count: int) -> list[int]:
        return [draw.randrange(3, vocabulary) for _ in range(count)]

    prompt = some(options.prompt)
    told = [[prompt, *(some(options.observation) for _ in range(options.turns - 1))] for _ in range(samples)]
    return Work(told, options.answer)


def ours(model: LlamaForCausalLM, given: Work) -> int:
    """Through the engine; every conversation goes on as soon as its answer is there. Returns what was sampled."""
    engine = Engine(model, NEVER, max_batch=len(given.told))
    contexts = [list(one[0]) for one in given.told]
    sampled = 0
    for turn in range(len(given.told[0])):
        for context, one in zip(contexts, given.told, strict=True):
            context += one[turn] if turn else []
        asked = [
            engine.submit(Request(tuple(ids), given.answer, 1.0, 1.0, 100 * at + turn))
            for at, ids in enumerate(contexts)
        ]
        for context, answer in zip(contexts, asked, strict=True):
            context += answer.result().ids
            sampled += len(answer.result().ids)
    engine.close()
    return sampled


def plain(model: LlamaForCausalLM, given: Work) -> int:
    """Through ``generate``, turn by turn."""
    contexts = [list(one[0]) for one in given.told]
    sampled = 0
    for turn in range(len(given.told[0])):
        for context, one in zip(contexts, given.told, strict=True):
            context += one[turn] if turn else []
        ids = torch.tensor(contexts)
        with torch.inference_mode():
            made = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=given.answer,
                min_new_tokens=given.answer,
                do_sample=True,
                top_k=0,
                pad_token_id=0,
            )
        for context, row in zip(contexts, made.tolist(), strict=True):
            context += row[len(context) :]
            sampled += given.answer
    return sampled


def matmul_peak() -> float:
    """Operations a second of a large product in float32."""
    left, right, taken = torch.randn(1024, 576), torch.randn(576, 1536), []
    for _ in range(10):
        began = time.perf_counter()
        left @ right
        taken.append(time.perf_counter() - began)
    return 2 * 1024 * 576 * 1536 / min(taken)


def compared(model: LlamaForCausalLM, given: Work, repeats: int) -> dict[str, object]:
    """Both on the same work, in turn."""
    sides: dict[str, Callable[[LlamaForCausalLM, Work], int]] = {"ours": ours, "generate": plain}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    cpu: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            began, worked = time.perf_counter(), time.process_time()
            assert side(model, given) == given.sampled
            seconds[name].append(time.perf_counter() - began)
            cpu[name].append(time.process_time() - worked)
    middle = {name: statistics.median(taken) for name, taken in seconds.items()}
    weights = sum(part.numel() for part in model.parameters())
    floor = 2 * weights * given.different / matmul_peak()
    return {
        "conversations": len(given.told),
        "sampled": given.sampled,
        "ids_that_differ": given.different,
        "ids_read_again": given.read_again,
        "sampled_a_second": {name: round(given.sampled / taken, 2) for name, taken in middle.items()},
        "ratio": round(middle["generate"] / middle["ours"], 2),
        "cpu_ratio": round(statistics.median(cpu["generate"]) / statistics.median(cpu["ours"]), 2),
        "ours_over_floor": round(middle["ours"] / floor, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    told = {"turns": 8, "samples": 8, "prompt": 384, "observation": 96, "answer": 16, "repeats": 1}
    for name, value in told.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--shape", default="smollm2", choices=SHAPES)
    options = parser.parse_args()
    layers, wide, inner, heads, pairs, vocabulary = SHAPES[options.shape]
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=layers,
        hidden_size=wide,
        intermediate_size=inner,
        num_attention_heads=heads,
        num_key_value_heads=pairs,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
        max_position_embeddings=8192,
        eos_token_id=1,
    )
    made: Any = LlamaForCausalLM
    model: LlamaForCausalLM = made(config).eval().requires_grad_(False)
    found = {
        name: compared(model, work(samples, options, vocabulary), options.repeats)
        for name, samples in (("alone", 1), ("task", options.samples))
    }
    machine = {"cores": os.cpu_count(), "load": [round(load, 2) for load in os.getloadavg()]}
    print(
        json.dumps(
            {"shape": options.shape, "turns": options.turns, **found, "claim": 3.0, "machine": machine}, indent=1
        )
    )


if __name__ == "__main__":
    main()
