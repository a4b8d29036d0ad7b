"""The commands with a policy that is sampled from a server."""

import importlib.util
import json
from pathlib import Path

import pytest
from click import Command
from click.testing import CliRunner, Result

from patchgym.cli.eval import command as evaluate
from patchgym.cli.rollout import command as rollout
from patchgym.content import ObjectStore
from patchgym.errors import DataError, EndpointRetryable
from patchgym.records import TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.overlap.fingerprints import fingerprint_tasks
from patchgym.tasks.overlap.refuse import overlap_keys
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.workshop import calc_task, need_namespaces

pytestmark = [
    pytest.mark.train,
    pytest.mark.skipif(
        any(importlib.util.find_spec(name) is None for name in ("torch", "transformers", "peft")),
        reason="needs the train extra: pip install 'patchgym[train]'",
    ),
]


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "cache"))
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def taskset(tmp_path: Path) -> Path:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects).model_copy(update={"split": "heldout"})
    (tmp_path / "set").mkdir()
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN)
    write_task_set(tmp_path / "set", manifest, [task], objects)
    return tmp_path / "set"


def test_a_checkpoint_is_not_measured_on_the_tasks_that_it_was_trained_on(taskset: Path, tmp_path: Path) -> None:
    from tests.policy.tiny import save_tiny_checkpoint, save_tiny_model

    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", save_tiny_model(tmp_path / "tiny"))
    tasks = TaskSet.load(taskset)
    keys = {found.id: overlap_keys(found) for found in fingerprint_tasks(tasks.tasks, tasks.objects)}
    file = checkpoint / "checkpoint.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"trained_on": keys}))
    done = _run(evaluate, taskset, tmp_path / "run", f"vllm:{checkpoint}")
    assert isinstance(done.exception, DataError)
    assert "calc-1" in str(done.exception)


def test_a_server_that_is_not_there_is_told_before_a_run_is_made(taskset: Path, tmp_path: Path) -> None:
    from tests.policy.tiny import tiny_tokenizer

    need_namespaces()
    tiny_tokenizer().save_pretrained(tmp_path / "tokenizer")
    more = ("--tokenizer", str(tmp_path / "tokenizer"), "--base-url", "http://127.0.0.1:9/v1")
    done = _run(rollout, taskset, tmp_path / "run", "vllm:Qwen/Served", *more)
    assert isinstance(done.exception, EndpointRetryable)
    assert not (tmp_path / "run").exists()


def _run(command: Command, taskset: Path, out: Path, policy: str, *more: str) -> Result:
    return CliRunner().invoke(command, [str(taskset), "--policy", policy, "--out", str(out), *more])
