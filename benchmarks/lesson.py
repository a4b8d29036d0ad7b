"""A lesson that a model of 100,000 weights can take: tasks of one wrong operator, and a model without any knowledge.

Made on the spot for ``learn.py --tiny`` and for the suite, with which the recipe ``cpu_tiny`` shows in minutes that the
whole loop learns: real sandboxes, real gradings, real updates. It says nothing of what a language model learns.
"""

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from importlib import resources
from itertools import chain
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM

from patchgym.agent import tools_named
from patchgym.agent.prompt import opening
from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.policy.models import quiet
from patchgym.policy.plaintext import render_action
from patchgym.records import Action, Environment, Limits, Source, Task, TaskSetManifest, Tests
from patchgym.tasks.taskset import write_task_set

OPERATORS = ("+", "-", "*", "//")
TRAIN = (
    *("total", "left", "area", "share", "joined", "margin", "volume"),
    *("portion", "amount", "surplus", "surface", "quota", "income", "excess"),
)
HELD_OUT = ("balance", "product")
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def make_model(folder: Path, tasks: Sequence[Task]) -> None:
    """Write a Llama of two layers with random weights, and a tokenizer for what is said about ``tasks`` (any other text
    it reads byte by byte), into an empty folder."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=2,
        special_tokens=["<|im_start|>", "<|im_end|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    tokenizer.train_from_iterator(chain.from_iterable(map(_said_of, tasks)), trainer)
    end = tokenizer.token_to_id("<|im_end|>")
    config = LlamaConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        eos_token_id=end,
    )
    with torch.random.fork_rng(), quiet():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    told = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "additional_special_tokens": ["<|im_start|>"],
        "chat_template": TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(told), encoding="utf-8")


def _said_of(task: Task) -> Iterator[str]:
    """What an agent is told of a task, and the answers that one could think of."""
    tools = tools_named(("edit_line",))
    for operator in OPERATORS:
        line = f"return a {operator} b"
        for message in opening(task.view(), native=False, tools=tools, briefing=f"m.py:\n2:     {line}"):
            yield message.content
        yield render_action(Action(tool="edit_line", arguments={"path": "m.py", "line": 2, "new": line}))


def make_tasks(folder: Path) -> None:
    """Write the task set into an empty folder: 14 tasks to train on, two held out."""
    with tempfile.TemporaryDirectory() as scratch:
        objects = ObjectStore(Path(scratch))
        tasks = [_task(objects, name, at, "train") for at, name in enumerate(TRAIN)]
        tasks += [_task(objects, name, at, "heldout") for at, name in enumerate(HELD_OUT)]
        made_at = datetime(2026, 1, 1, tzinfo=UTC)
        manifest = TaskSetManifest(name="lesson", recipe={}, funnel={"candidates": len(tasks)}, created_at=made_at)
        write_task_set(folder, manifest, tasks, objects)


def _task(objects: ObjectStore, name: str, at: int, split: str) -> Task:
    # What is right cannot be told from what is wrong: that would be learned by heart from a few demonstrations.
    right, wrong = OPERATORS[at % 4], OPERATORS[(at + 1 + at // 4 % 3) % 4]
    calls = {"test_first": (7, 2), "test_second": (12, 5)}
    checks = [f"def {test}():\n    assert {name}{pair} == {_value(pair, right)}\n" for test, pair in calls.items()]
    visible = f"from m import {name}\n\n\n{checks[0]}"
    files = {"m.py": _source(name, wrong), "test_m.py": visible}
    workspace = objects.write_tree({path: _entry(objects, text) for path, text in files.items()})
    solved = objects.update_tree(workspace, {"m.py": _entry(objects, _source(name, right))})
    gold = diff_trees(objects, workspace, solved)
    first, second = (f"test_m.py::{test}" for test in calls)
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    return Task(
        id=f"lesson-{name}",
        source=Source(kind="synthetic", repo=name, change=f"{right} became {wrong}"),
        instruction=f"{name}{calls['test_first']} should be {_value(calls['test_first'], right)}. {first} fails.",
        workspace=workspace,
        environment=Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}", lock=lock),
        tests=Tests(
            fail_to_pass=(first, second),
            pass_to_pass=(),
            hidden=(second,),
            visible_files={"test_m.py": objects.put(visible.encode())},
            hidden_files={"test_m.py": objects.put(f"{visible}\n\n{checks[1]}".encode())},
            timeout_s=60.0,
        ),
        gold_patch=gold,
        key_files=("m.py",),
        scope=patch_scope(gold),
        limits=Limits(turns=1, tokens=200, seconds=120.0, command_seconds=30.0, output_bytes=800),
        split="train" if split == "train" else "heldout",
    )


def _source(name: str, operator: str) -> str:
    return f"def {name}(a, b):\n    return a {operator} b\n"


def _value(pair: tuple[int, int], operator: str) -> int:
    a, b = pair
    return {"+": a + b, "-": a - b, "*": a * b, "//": a // b}[operator]


def _entry(objects: ObjectStore, text: str) -> Entry:
    return Entry(0o100644, objects.put(text.encode()))
