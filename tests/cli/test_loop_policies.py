"""The closed loop with a policy that a server samples, with further samples of flat groups, and with search trees."""

import importlib.util
import json
import sys
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from patchgym.cli.closed_loop import LoopReport
from patchgym.cli.loop import command
from patchgym.content import ObjectStore
from patchgym.errors import ConfigError
from patchgym.records import Environment
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from tests.cli.test_loop import MANIFEST, doubling_task
from tests.workshop import calc_task, need_namespaces

pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")),
        reason="needs the train extra: pip install 'patchgym[train]'",
    ),
]
SETTINGS = {
    "rounds": 1,
    "tasks_per_round": 1,
    "samples": 2,
    "rollout.max_tokens": 8,
    "warm_start.passes": 1,
    "warm_start.lora_layers": 2,
    "warm_start.lora_rank": 4,
    "warm_start.max_row_tokens": 16000,
    "grpo.lora_rank": 4,
    "grpo.max_row_tokens": 16000,
}
LONG = 16384


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny model with room for the instructions of an agent, one id a byte."""
    from tests.policy.tiny import tiny_network, tiny_tokenizer

    tiny_network(max_position_embeddings=LONG).save_pretrained(tmp_path / "tiny")
    tiny_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


def looped(place: Path, **settings: object) -> LoopReport:
    """What a loop over one training and one held-out task comes to."""
    objects = ObjectStore(place / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    limits = calc_task(objects).limits.model_copy(update={"turns": 6})
    environment = Environment(python=python, lock=lock)
    task = calc_task(objects).model_copy(update={"environment": environment, "limits": limits})
    (place / "set").mkdir()
    write_task_set(place / "set", MANIFEST, [task, doubling_task(objects, task)], objects)
    overrides = [part for key, value in {**SETTINGS, **settings}.items() for part in ("--set", f"{key}={value}")]
    done = CliRunner().invoke(
        command, ["--tasks", str(place / "set"), "--out", str(place / "run"), "--json", *overrides]
    )
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return LoopReport.model_validate_json(done.stdout)


@pytest.mark.parametrize(
    ("policy", "start", "said"),
    [
        ("openai:gpt", "", "cannot train 'openai:gpt'"),
        ("vllm:Qwen/Served", "", "is not on this machine"),
        ("local:smollm2", "elsewhere", "Remove start"),
    ],
)
def test_a_policy_that_cannot_be_trained_here_is_refused(policy: str, start: str, said: str) -> None:
    more = ["--set", f"start={start}"] if start else []
    done = CliRunner().invoke(command, ["--set", f"policy={policy}", *more])
    assert isinstance(done.exception, ConfigError)
    assert said in str(done.exception)


@pytest.mark.slow
@pytest.mark.network
def test_versions_are_trained_here_and_handed_to_the_server_that_samples(model: Path, tmp_path: Path) -> None:
    need_namespaces()
    from tests.policy.tiny import tiny_network
    from tests.policy.vllm_server import vllm_server

    network = tiny_network(max_position_embeddings=LONG)
    with vllm_server(network=network, context=LONG, root=str(model), mode="processed_logprobs") as fake:
        report = looped(tmp_path, policy="vllm:tiny", start=model, base_url=fake.url, resample=1)
        asked: list[Any] = fake.bodies("/v1/load_lora_adapter")
        sampled = [sent["model"] for sent in fake.sampled()]
    warm = report.updates["warm-start"].version
    assert warm is not None, report.updates["warm-start"].why
    assert [sent["lora_name"] for sent in asked] == [warm]
    assert Path(asked[0]["lora_path"]) == tmp_path / "run" / "checkpoints" / warm / "adapter"
    assert sampled.index(warm) > 0
    assert set(sampled[: sampled.index(warm)]) == {"tiny"}
    run = RunDirectory.read(tmp_path / "run")
    assert {one.policy.version for one in run.phase("round-1")} == {warm}
    # Nothing that such a model says is an action: the group is flat, and was sampled again.
    assert len(run.phase("round-1")) == 3
    row = next(one for one in run.metrics() if one["kind"] == "resample")
    assert (row["groups"], row["samples"]) == (["round-1/calc-1"], 1)
    assert (tmp_path / "run" / "updates" / "warm-start" / "steps.jsonl").is_file()


@pytest.mark.slow
@pytest.mark.network
def test_a_round_of_search_trees_is_trained_on_by_its_siblings(model: Path, tmp_path: Path) -> None:
    need_namespaces()
    more = {"search.nodes": 4, "search.value": "none", "grpo.baseline": "siblings"}
    report = looped(tmp_path, policy=f"local:{model}", **more)
    run = RunDirectory.read(tmp_path / "run")
    assert len(run.tree_ids) == 2
    left_out = json.loads((tmp_path / "run" / "report.json").read_text())["updates"]["round-1"]["left_out"]
    assert "no_tree" not in left_out
    assert report.rounds["round-1"].trajectories == len(run.phase("round-1"))
