"""``patchgym serve`` as whoever runs it meets it."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from patchgym.cli.serve import command
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.records import Environment, TaskSetManifest
from patchgym.store import RunFiles
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.serve.serving import ONE, none_left, sandboxes_alive, until
from tests.workshop import calc_task, need_namespaces


@pytest.fixture(scope="module")
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasksets")
    objects = ObjectStore(folder / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    task = calc_task(objects).model_copy(update={"environment": Environment(python=python, lock=lock)})
    (folder / "set").mkdir()
    write_task_set(folder / "set", TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN), [task], objects)
    return folder / "set"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "some.host.example"])
def test_beyond_this_machine_it_wants_a_token(host: str) -> None:
    need_namespaces()
    done = CliRunner(env={"PATCHGYM_TOKEN": ""}).invoke(command, ["nowhere", "--host", host])
    assert isinstance(done.exception, UsageError)
    assert "no token" in str(done.exception)
    assert "PATCHGYM_TOKEN" in done.exception.mend


@contextmanager
def serving(taskset: Path, *more: object, token: str = "") -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    need_namespaces()
    arguments = [sys.executable, "-m", "patchgym", "serve", str(taskset), "--port", "0", *map(str, more)]
    environment = {**os.environ, "PATCHGYM_TOKEN": token}
    with subprocess.Popen(
        arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip(), process
        finally:
            process.kill()


def ask(address: str, path: str, body: object = None, token: str = "") -> dict[str, Any]:
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    with urllib.request.urlopen(urllib.request.Request(address + path, data, headers), timeout=200) as answer:
        found: dict[str, Any] = json.load(answer)
        return found


@pytest.mark.network
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_every_sandbox(tmp_path: Path, taskset: Path, number: signal.Signals) -> None:
    with serving(taskset, "--out", tmp_path / "run", token=ONE) as (address, process):
        assert address.startswith("http://127.0.0.1:")
        session = ask(address, "/sessions", {"task": "calc-1"}, ONE)["session"]
        step = ask(address, f"/sessions/{session}/step", {"command": "sleep 500 & true"}, ONE)
        assert step["ok"]
        assert sandboxes_alive()
        process.send_signal(number)
        _, said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "Ended. 1 sessions were opened" in said
        assert "Traceback" not in said
    asyncio.run(until(none_left))
    (left,) = RunFiles(tmp_path / "run").beginnings()
    assert (left.steps, left.interrupted) == (1, True)


@pytest.mark.network
def test_a_run_of_sessions_is_shown_and_scored_like_any_other(tmp_path: Path, taskset: Path) -> None:
    with serving(taskset, "--out", tmp_path / "run") as (address, process):
        session = ask(address, "/sessions", {"task": "calc-1"})["session"]
        assert ask(address, f"/sessions/{session}/grade", {})["verdict"] == "unresolved"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    for name in ("show", "score"):
        done = subprocess.run(
            [sys.executable, "-m", "patchgym", name, str(tmp_path / "run")],
            capture_output=True,
            text=True,
            timeout=200,
        )
        assert done.returncode == 0, done.stderr
        assert "calc-1" in done.stdout or name == "score"
