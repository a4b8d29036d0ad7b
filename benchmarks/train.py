"""Trained tokens per second and peak memory of an update: ours, TRL's on the same rows, and what the arithmetic takes.

Prints one JSON document. Every row is trained by both programs, each in a process of its own and in turn: gradients of
Dr. GRPO's loss for a LoRA adapter on all linear layers, clipped, and one step of AdamW, in the same precision and from
the same weights. TRL's side is the ``_compute_loss`` of a real ``GRPOTrainer``, with gradient checkpointing off, which
is its fastest. Loss and gradients of the first step must agree: to 1e-5 of the largest number in float32.

- ``group``: 8 answers to one prompt that is most of the row. Claim: at least 2 times TRL's tokens a second.
- ``tree``: the leaves of a binary tree of depth 6, as a tree search leaves them. Claim: at least 4 times.
- ``apart``: rows of different lengths that share nothing. Claim: at least as many.

Seconds are those of a clock; beside them stands the work of all threads (``cpu_seconds``), which a busy machine changes
less. Peak memory is the high-water mark of the process over what it held before its first step; claim: at most TRL's.
The floor is the least arithmetic: each different id once through the body, each different place once through the head,
forward and back to activations, at the speed of this machine's matrix product.

    python benchmarks/train.py --peer-python PYTHON | --install-peer [--repeats 3] [--cases group tree apart] [--growth]

``--peer-python`` is an interpreter with patchgym and TRL 1.16; ``--install-peer`` makes one in a temporary folder.
"""

import argparse
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from patchgym.policy.models import quiet
from patchgym.train import PolicyGradientSettings, TokenRow
from patchgym.train.batch import make_batch
from patchgym.train.loading import load_adapted
from patchgym.train.losses import Predictions
from patchgym.train.objectives import PolicyGradient
from patchgym.train.packed import PackedRows, backward

CLAIMS = {"group": 2.0, "tree": 4.0, "apart": 1.0}
SHAPES: dict[str, dict[str, int]] = {
    "smollm2": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "tiny": {
        "vocab_size": 512,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
    },
}
LONGEST, THEIR_IDS = 1024, 2048


def rows_of(case: str, size: int, vocabulary: int) -> list[TokenRow]:
    """The rows of a case. ``size`` scales their lengths: 16 is what the claims are made for."""
    draw = random.Random(case)

    def some(count: int) -> list[int]:
        return [draw.randrange(3, vocabulary) for _ in range(count)]

    if case.startswith("group"):
        members = int(case.removeprefix("group") or 8)
        prompt = some(24 * size)
        return [_row(at, prompt, some(4 * size), draw) for at in range(members)]
    if case == "tree":
        prompt, leaves = some(6 * size), [list[int]()]
        for _ in range(6):
            leaves = [[*leaf, *some(size)] for leaf in leaves for _ in range(2)]
        return [_row(at, prompt, leaf, draw) for at, leaf in enumerate(leaves)]
    return [_row(at, some(6 * size), some((3 + at % 4) * size), draw) for at in range(8)]


def _row(at: int, prompt: Sequence[int], answer: Sequence[int], draw: random.Random) -> TokenRow:
    bits = [0] * len(prompt) + [1] * len(answer)
    advantage = draw.gauss(0, 1)
    return TokenRow(
        ids=(*prompt, *answer),
        trainable=tuple(bits),
        logprobs=tuple(draw.gauss(-11, 0.3) * bit for bit in bits),
        turns=tuple(bit - 1 for bit in bits),
        trajectory_id=f"t{at}",
        group_id="g",
        advantages=tuple(advantage * bit for bit in bits),
    )


def save_model(folder: Path, shape: str) -> None:
    """Random weights of a shape, with a tokenizer that nothing asks."""
    config_of: Any = LlamaConfig
    config = config_of(**SHAPES[shape], max_position_embeddings=8192, tie_word_embeddings=True)
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(folder)
    words = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="<pad>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    made: Any = PreTrainedTokenizerFast
    made(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)


class Ours:
    """A step of ours."""

    def __init__(self, model: Any, rows: Sequence[TokenRow], settings: PolicyGradientSettings) -> None:
        self._model, self._rows, self._settings = model, rows, settings
        self._objective = PolicyGradient(settings)
        self.facts: dict[str, int] = {}

    def gradients(self) -> float:
        """Add the gradients of all rows up; the loss."""
        settings, batch = self._settings, make_batch(self._rows)
        packed = PackedRows(self._rows, settings.micro_batch_tokens, split=settings.recompute)
        divisor = self._objective.normaliser(self._rows)
        places = sum(len(one.places_U) for one in packed.passes)
        self.facts = {"read": packed.read, "places": places, "passes": len(packed.passes)}

        def loss_of(numbers_M: Tensor, seen: Predictions) -> Tensor:
            return self._objective.token_losses(batch.take(numbers_M), seen)[0].sum() / divisor

        return backward(self._model, packed, loss_of, recompute=settings.recompute)


class Theirs:
    """A step of TRL's, as its Trainer makes it: micro-batches of as many rows as fit in ``THEIR_IDS`` ids."""

    def __init__(self, model: Any, rows: Sequence[TokenRow], folder: Path, recompute: bool) -> None:
        from datasets import Dataset
        from trl import GRPOConfig, GRPOTrainer

        at_once = max(2, THEIR_IDS // max(len(row.ids) for row in rows))
        self._parts = [rows[at : at + at_once] for at in range(0, len(rows), at_once)]
        config = GRPOConfig(
            output_dir=str(folder),
            per_device_train_batch_size=len(self._parts[0]),
            num_generations=len(self._parts[0]),
            max_completion_length=LONGEST,
            loss_type="dr_grpo",
            epsilon=0.2,
            epsilon_high=0.28,
            temperature=1.0,
            gradient_checkpointing=recompute,
            report_to="none",
            use_cpu=True,
            bf16=False,
        )
        self._trainer = GRPOTrainer(
            model=model.peft_model,
            reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
            args=config,
            train_dataset=Dataset.from_dict({"prompt": ["a"]}),
            processing_class=model.tokenizer,
        )
        self._trainer.model.train()
        self._trainer.current_gradient_accumulation_steps = 1
        self._rows = len(rows)
        self.facts = {"read": sum(len(part) * max(len(row.ids) for row in part) for part in self._parts)}

    def gradients(self) -> float:
        """Add the gradients of all micro-batches up; the loss."""
        total = 0.0
        for part in self._parts:
            loss = self._trainer._compute_loss(self._trainer.model, _laid_out(part)) * (len(part) / self._rows)
            loss.backward()
            total += loss.item()
        return total


def _laid_out(rows: Sequence[TokenRow]) -> dict[str, Tensor]:
    """Rows as TRL wants them. Prompts are of one length here, answers are padded on the right."""
    starts = [row.trainable.index(1) for row in rows]

    def answers(values: Sequence[Sequence[float]]) -> Tensor:
        parts = [torch.tensor(one[start:]) for one, start in zip(values, starts, strict=True)]
        return nn.utils.rnn.pad_sequence(parts, batch_first=True)

    prompts = torch.tensor([row.ids[:start] for row, start in zip(rows, starts, strict=True)])
    mask = answers([row.trainable for row in rows])
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts),
        "completion_ids": answers([row.ids for row in rows]),
        "completion_mask": mask,
        "advantages": torch.tensor([row.advantages[-1] for row in rows if row.advantages]),
        "old_per_token_logps": answers([row.logprobs for row in rows]),
        "num_items_in_batch": mask.sum(),
    }


def measured(options: argparse.Namespace) -> dict[str, object]:
    """What one process of one side says of one case: seconds of its steps (but the first, if there are more), its
    memory, its loss."""
    settings = PolicyGradientSettings(
        micro_batch_tokens=options.chunk, max_row_tokens=LONGEST, recompute=options.recompute, lora_rank=16
    )
    model = load_adapted(str(options.model), settings, options.folder / "cache")
    rows = rows_of(options.case, options.size, model.vocabulary)
    with torch.no_grad():  # a new adapter's second half is zero, and the gradient of its first half with it
        for name, part in model.peft_model.named_parameters():
            if "lora_B" in name:
                part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(1)) * 0.01)
    side: Ours | Theirs
    if options.side == "ours":
        side = Ours(model, rows, settings)
    else:
        with quiet():
            side = Theirs(model, rows, options.folder / "out", options.recompute)
    parameters = [part for part in model.peft_model.parameters() if part.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.0)
    held, seconds, cpu, losses = _held(), list[float](), list[float](), list[float]()
    for step in range(options.repeats + 1):
        began, worked = time.perf_counter(), time.process_time()
        losses.append(side.gradients())
        if step == 0 and options.gradients:
            found = {str(at): part.grad for at, part in enumerate(parameters) if part.grad is not None}
            safetensors.torch.save_file(found, options.gradients)
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - began)
        cpu.append(time.process_time() - worked)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "seconds": seconds[1:] or seconds,
        "cpu_seconds": cpu[1:] or cpu,
        "loss": losses[0],
        "trained": sum(row.trained for row in rows),
        "row_ids": sum(len(row.ids) for row in rows),
        "peak_mb": round(peak),
        "steps_mb": round(peak - held),
        **side.facts,
    }


def _held() -> float:
    """Megabytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def floor_seconds(shape: str, read: int, places: int) -> float:
    """The arithmetic of a step at the speed of a large matrix product of this machine, in float32."""
    config = SHAPES[shape]
    wide, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_key_value_heads"] / config["num_attention_heads"]
    layer = wide * wide * (2 + 2 * heads) + 3 * wide * inner
    work = 4 * read * layer * config["num_hidden_layers"] + 4 * places * wide * config["vocab_size"]
    left, right = torch.randn(1024, 576), torch.randn(576, 1536)
    taken = []
    for _ in range(10):
        began = time.perf_counter()
        left @ right
        taken.append(time.perf_counter() - began)
    return work / (2 * 1024 * 576 * 1536 / min(taken))


def ask(python: str, folder: Path, side: str, case: str, options: argparse.Namespace, **more: object) -> dict[str, Any]:
    """One process of one side. Both are asked with one step at a time, so that a busy moment strikes both alike."""
    told = {"side": side, "case": case, "folder": folder, "model": folder / "model", "size": options.size}
    told |= {"repeats": 0, "chunk": options.chunk, **more}
    if options.recompute:
        told["recompute"] = True
    command = [python, __file__]
    for name, value in told.items():
        command += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    # Threads that wait must not count as work, and must not keep others from a core.
    quietly = {
        **os.environ,
        "OMP_WAIT_POLICY": "PASSIVE",
        "HF_HUB_OFFLINE": "1",
        "TQDM_DISABLE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    done = subprocess.run(command, check=True, capture_output=True, env=quietly, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(case: str, peer: str | None, folder: Path, options: argparse.Namespace) -> dict[str, object]:
    """Both sides of a case, in turn."""
    sides: dict[str, list[dict[str, Any]]] = {"ours": [], "theirs": []}
    for _ in range(options.repeats):
        for side, python in (("ours", sys.executable), ("theirs", peer)):
            if python:
                extra = {"gradients": folder / f"{side}.safetensors"} if not sides[side] else {}
                sides[side].append(ask(python, folder, side, case, options, **extra))
    ours = sides["ours"][0]
    trained, read, places = ours["trained"], ours["read"], ours["places"]
    taken, worked = ({side: _all(found, name) for side, found in sides.items() if found} for name in _CLOCKS)
    middle = {side: statistics.median(seconds) for side, seconds in taken.items()}
    floor = floor_seconds(options.shape, read, places)
    report: dict[str, object] = {
        "rows_ids": ours["row_ids"],
        "read_ids": read,
        "passes": ours["passes"],
        "trained_tokens": trained,
        "trained_tokens_a_second": {side: round(trained / second, 1) for side, second in middle.items()},
        "seconds": taken,
        "cpu_seconds": worked,
        "floor_seconds": round(floor, 2),
        "ours_over_floor": round(middle["ours"] / floor, 2),
        "peak_mb": {side: max(one["peak_mb"] for one in found) for side, found in sides.items() if found},
        "steps_mb": {side: max(one["steps_mb"] for one in found) for side, found in sides.items() if found},
    }
    if peer:
        report["ratio"] = round(middle["theirs"] / middle["ours"], 2)
        report["cpu_ratio"] = round(statistics.median(worked["theirs"]) / statistics.median(worked["ours"]), 2)
        report["claim"] = CLAIMS.get(case)
        report |= _agreement(folder, sides)
    return report


_CLOCKS = ("seconds", "cpu_seconds")


def _all(found: Sequence[dict[str, Any]], clock: str) -> list[float]:
    return [round(second, 2) for one in found for second in one[clock]]


def _agreement(folder: Path, sides: dict[str, list[dict[str, Any]]]) -> dict[str, float]:
    """How far apart loss and gradients of the first step are, as shares of TRL's largest."""
    ours, theirs = (safetensors.torch.load_file(folder / f"{side}.safetensors") for side in ("ours", "theirs"))
    largest = max(part.abs().max().item() for part in theirs.values())
    apart = max((ours[name] - part).abs().max().item() for name, part in theirs.items())
    losses = sides["ours"][0]["loss"], sides["theirs"][0]["loss"]
    return {"loss_apart": abs(losses[0] - losses[1]) / abs(losses[1]), "gradients_apart": apart / largest}


def with_trl(folder: Path) -> str:
    """A new interpreter with TRL beside what this one has."""
    venv.create(folder / "peer", with_pip=True)
    python = folder / "peer" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "trl==1.16.*", "datasets"], check=True, stdout=sys.stderr)
    ask_paths = "import sysconfig; print(sysconfig.get_path('purelib'))"
    theirs = subprocess.run([python, "-c", ask_paths], check=True, capture_output=True, text=True).stdout.strip()
    Path(theirs, "beside.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith(("site-packages", "src")))
    )
    return str(python)


def main() -> None:
    """Measure and print; with ``--side``, one side of one case."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer-python", help="an interpreter that has TRL")
    parser.add_argument("--install-peer", action="store_true", help="make one for this")
    parser.add_argument("--cases", nargs="+", default=list(CLAIMS))
    parser.add_argument("--growth", action="store_true", help="also groups of 2 to 16, and rows half and twice as long")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--shape", default="smollm2", choices=SHAPES)
    parser.add_argument("--size", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=1024)
    parser.add_argument("--recompute", action="store_true")
    for name in ("side", "case", "folder", "model", "gradients"):
        parser.add_argument(f"--{name}", type=Path if name in ("folder", "model", "gradients") else str)
    options = parser.parse_args()
    if options.side:
        print(json.dumps(measured(options)))
        return
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        folder = Path(scratch)
        save_model(folder / "model", options.shape)
        peer = with_trl(folder) if options.install_peer else options.peer_python
        found: dict[str, object] = {case: compared(case, peer, folder, options) for case in options.cases}
        if options.growth:
            found["growth"] = growth(peer, folder, options)
        versions = {name: version(name) for name in ("torch", "transformers", "peft")}
        machine = {"cores": os.cpu_count(), "load": [round(load, 2) for load in os.getloadavg()]}
        print(json.dumps({"shape": options.shape, **found, "versions": versions, "machine": machine}, indent=1))


def growth(peer: str | None, folder: Path, options: argparse.Namespace) -> list[dict[str, object]]:
    """The group case by the group's size and by the row's length."""
    table: list[dict[str, object]] = []
    for members, size in ((2, 16), (4, 16), (8, 16), (16, 16), (8, 8), (8, 32)):
        asked = argparse.Namespace(**{**vars(options), "size": size, "repeats": 1})
        found = compared(f"group{members}", peer, folder, asked)
        keep = ("rows_ids", "read_ids", "trained_tokens_a_second", "steps_mb", "ratio", "cpu_ratio")
        table.append({"members": members, "row": 28 * size, **{name: found[name] for name in keep if name in found}})
    return table


if __name__ == "__main__":
    main()
