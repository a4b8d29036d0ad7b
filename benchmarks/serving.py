"""Whether a vLLM server's log-probabilities are the trainer's, for the base model and for an adapter handed to it.

Prints one JSON document: what the server agreed to; for the base and for a random LoRA checkpoint that is published to
it, the largest and mean difference in nats between each sampled token's log-probability as the server told it and that
of a plain forward pass here, in float32; and sampled tokens a second of the server and of the local policy on the same
conversations, with the ratio.

    vllm serve DIR --served-model-name MODEL --enable-lora ...   # see docs/serving.md
    python benchmarks/serving.py MODEL --base-url http://127.0.0.1:8000/v1

``MODEL`` is a known name or a model directory. The server must see the folder that ``--adapters`` names.
"""

import argparse
import asyncio
import copy
import json
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import peft
import torch

from patchgym.policy import Policy
from patchgym.policy.chat import ChatEncoder
from patchgym.policy.local import LocalPolicy
from patchgym.policy.models import CheckpointInfo, LoadedModel, load_model, quiet
from patchgym.policy.server import ServerPolicy
from patchgym.policy.tokens import load_tokens
from patchgym.records import Message, Sample, Sampling

MAX_TOKENS, RANK = 32, 8
Turn = tuple[list[Message], Sample]


async def conversation(policy: Policy, salt: int, turns: int, temperature: float) -> list[Turn]:
    """The samples of one conversation, each with the messages that it was sampled for."""
    messages, seen = [Message(role="user", content=f"Write Python function number {salt}, with a short docstring.")], []
    for turn in range(turns):
        sampling = Sampling(temperature=temperature, max_tokens=MAX_TOKENS, seed=100 * salt + turn)
        sample = await policy.sample(messages, (), sampling)
        seen.append((messages, sample))
        messages = [*messages, sample.message, Message(role="user", content=f"Change it: case {turn} fails.")]
    return seen


async def sampled(policy: Policy, options: argparse.Namespace) -> tuple[list[Turn], float]:
    """All turns of all conversations at once, and sampled tokens a second."""
    clock = time.perf_counter()
    found = await asyncio.gather(
        *(conversation(policy, salt, options.turns, options.temperature) for salt in range(options.conversations))
    )
    turns = [turn for one in found for turn in one]
    return turns, sum(sample.usage.sampled_tokens for _, sample in turns) / (time.perf_counter() - clock)


def gaps(model: torch.nn.Module, encoder: ChatEncoder, turns: list[Turn], temperature: float) -> dict[str, object]:
    """The differences to one plain forward pass for each turn."""
    found: list[float] = []
    for messages, sample in turns:
        tokens, context = sample.tokens, encoder.encode(messages)
        assert tokens is not None
        assert tokens.logprobs is not None
        with torch.inference_mode():
            ids = torch.tensor([[*context, *tokens.sampled_ids]])
            logits_TV = model(input_ids=ids, use_cache=False).logits[0, len(context) - 1 : -1].double()
        logprobs_TV = torch.log_softmax(logits_TV / (temperature or 1.0), dim=-1)
        told_T = torch.tensor(tokens.logprobs, dtype=torch.float64)
        found += (logprobs_TV.gather(1, ids[0, len(context) :, None])[:, 0] - told_T).abs().tolist()
    return {
        "versions": sorted({str(sample.policy_version) for _, sample in turns}),
        "turns": len(turns),
        "tokens": len(found),
        "largest_gap": max(found),
        "mean_gap": statistics.fmean(found),
    }


def random_checkpoint(loaded: LoadedModel, folder: Path) -> tuple[Path, torch.nn.Module]:
    """A checkpoint whose adapter changes the model a good deal, and the model with it merged in."""
    linear = {
        name.rpartition(".")[2] for name, part in loaded.model.named_modules() if isinstance(part, torch.nn.Linear)
    }
    config = peft.LoraConfig(
        r=RANK, lora_alpha=2 * RANK, target_modules=sorted(linear - {"lm_head"}), task_type="CAUSAL_LM"
    )
    base: Any = copy.deepcopy(loaded.model)
    with quiet():
        adapted = peft.get_peft_model(base, config)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.normal_(std=0.02, generator=generator)
    adapted.save_pretrained(str(folder / "adapter"))
    info = CheckpointInfo(
        version="serving-benchmark-1",
        base=loaded.base,
        parent=loaded.version,
        algorithm="random",
        step=1,
        metrics={},
    )
    (folder / "checkpoint.json").write_text(info.to_line() + "\n", encoding="utf-8")
    return folder, adapted.merge_and_unload().eval()


async def measure(options: argparse.Namespace, folder: Path) -> dict[str, object]:
    """Everything, in order."""
    loaded, tokens = load_model(options.model), load_tokens(options.model)
    checkpoint, merged = random_checkpoint(loaded, folder)
    server = ServerPolicy(options.model, tokens, base_url=options.base_url)
    try:
        await server.check()
        await sampled(server, options)  # what a server compiles at its first requests is not what is measured
        base, speed = await sampled(server, options)
        await server.use(checkpoint)
        adapter, _ = await sampled(server, options)
        agreement = server.agreement
    finally:
        await server.close()
    local = LocalPolicy(loaded, max_batch=options.conversations)
    _, ours = await sampled(local, options)
    await local.close()
    return {
        "server": asdict(agreement) if agreement is not None else None,
        "temperature": options.temperature,
        "base": gaps(loaded.model, tokens.encoder, base, options.temperature),
        "adapter": gaps(merged, tokens.encoder, adapter, options.temperature),
        "adapter_against_base": gaps(loaded.model, tokens.encoder, adapter, options.temperature)["mean_gap"],
        "server_tokens_a_second": round(speed, 1),
        "local_tokens_a_second": round(ours, 1),
        "ratio": round(speed / ours, 2),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("--base-url", default=None)
    parser.add_argument("--conversations", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--adapters", type=Path, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="patchgym-", dir=options.adapters) as folder:
        print(json.dumps(asyncio.run(measure(options, Path(folder))), indent=1))


if __name__ == "__main__":
    main()
