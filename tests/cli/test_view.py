"""``patchgym view`` and ``patchgym runs`` as a person meets them."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from patchgym.cli.viewing import make_extras
from patchgym.content import ObjectStore
from patchgym.records import TaskSetManifest
from patchgym.store import RunDirectory
from patchgym.tasks.taskset import write_task_set
from patchgym.view.serving import listen
from tests.records_for_tests import THEN, make_manifest
from tests.view.making import HOSTILE, TOKEN, graded, looking_at, loop_run, page, states_run, write_run
from tests.workshop import calc_task


@pytest.fixture
def cache(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "PATCHGYM_CACHE": str(tmp_path / "cache"), "COLUMNS": "80"}


def patchgym(cache: dict[str, str], *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "patchgym", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=cache, timeout=240)


def test_runs_are_listed_in_80_columns(tmp_path: Path, cache: dict[str, str]) -> None:
    loop_run(tmp_path / "runs" / "a name with spaces and a good many words in it")
    write_run(tmp_path / "runs" / "deep" / "empty", [])
    damaged = write_run(tmp_path / "runs" / "damaged", [graded(0)])
    with (damaged / "trajectories.jsonl").open("a") as file:
        file.write(f"{HOSTILE}\n")
    older = write_run(tmp_path / "runs" / "older", [graded(0)])
    (older / "run.json").write_text('{"schema_version": 0}')
    running = RunDirectory.open_for_writing(tmp_path / "runs" / "running", make_manifest())
    done = patchgym(cache, "runs", tmp_path / "runs")
    told = json.loads(patchgym(cache, "runs", tmp_path / "runs", "--json").stdout)
    running.close()
    assert done.returncode == 0, done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80 or "schema version" in done.stdout
    for word in ("deep/empty", "damaged", "unreadable", "running", "loop", "0.500"):
        assert word in done.stdout
    assert "schema version 0" in done.stdout
    states = {Path(one["path"]).name: one["state"] for one in told}
    assert (states["empty"], states["running"], states["older"]) == ("empty", "running", "unreadable")
    (loop,) = (one for one in told if one["command"] == "loop")
    assert (loop["attempts"], loop["tasks"], loop["mean_reward"], loop["pass_at_1"]) == (14, 2, 0.5, 1.0)


def test_a_folder_without_runs_is_told(tmp_path: Path, cache: dict[str, str]) -> None:
    done = patchgym(cache, "runs", tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert "There is no run" in done.stderr
    assert patchgym(cache, "runs", tmp_path / "none").returncode == 2
    done = patchgym(cache, "view", tmp_path)
    assert done.returncode == 2
    assert "There is no run in" in done.stderr


def test_a_page_of_its_own_is_written(tmp_path: Path, cache: dict[str, str]) -> None:
    run = loop_run(tmp_path / "run")
    done = patchgym(cache, "view", run, "--static", tmp_path / "page.html", "--attempts", 2)
    assert done.returncode == 0, done.stderr
    assert "2 of its 14 attempts" in (tmp_path / "page.html").read_text()
    done = patchgym(cache, "view", run, "--static", tmp_path / "no" / "page.html")
    assert done.returncode == 2
    done = patchgym(cache, "view", run, loop_run(tmp_path / "second"), "--static", tmp_path / "page.html")
    assert done.returncode == 2
    assert "of one run" in done.stderr


def test_a_taken_port_is_told(tmp_path: Path, cache: dict[str, str]) -> None:
    with listen(0) as taken:
        done = patchgym(cache, "view", loop_run(tmp_path / "run"), "--port", taken.getsockname()[1])
    assert done.returncode == 2
    assert "Another program listens there." in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_it_at_once(tmp_path: Path, cache: dict[str, str], number: signal.Signals) -> None:
    command = [sys.executable, "-m", "patchgym", "view", str(loop_run(tmp_path / "run"))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cache) as process:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:")
        kept_open = urllib.request.urlopen(address, timeout=60)
        process.send_signal(number)
        began = time.monotonic()
        _, said = process.communicate(timeout=60)
        kept_open.close()
    assert process.returncode == 0
    assert "Ended." in said
    assert "Traceback" not in said
    assert time.monotonic() - began < 30


def test_the_page_of_a_spot_check_keeps_the_file_of_the_command(tmp_path: Path, cache: dict[str, str]) -> None:
    run = loop_run(tmp_path / "run")
    with looking_at(run, index=tmp_path / "index", extras=make_extras((), None)) as (client, _):
        blind = page(client, "/run/run/spotcheck")
        for telling in ("resolved", "round-1.demo", "round-2.demo", "round-3.demo", "reward 1"):
            assert telling not in blind
        for label in ("yes", "no", "unsure"):
            answer = client.post(f"/{TOKEN}/run/run/spotcheck?seed=0&item=0", data={"label": label, "notes": "why not"})
            assert answer.status_code == 200
        told = page(client, "/run/run/spotcheck?result=1")
    assert "1 of 14 answered" in told
    done = patchgym(cache, "spotcheck", run, "--labels", run / "spotcheck-0.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["labelled"], found["unsure"]) == (1, 1)


def test_an_answer_of_another_site_or_without_the_token_is_refused(tmp_path: Path) -> None:
    run = loop_run(tmp_path / "run")
    with looking_at(run, index=tmp_path / "index", extras=make_extras((), None)) as (client, _):
        address = f"/{TOKEN}/run/run/spotcheck?seed=0&item=0"
        there = {"origin": "http://evil.example"}
        assert client.post(address, data={"label": "yes"}, headers=there).status_code == 403
        assert client.post(address, data={"label": "yes"}, headers={"origin": "null"}).status_code == 403
        assert client.post(address.replace(TOKEN, "x"), data={"label": "yes"}).status_code == 403
        assert client.post(address, data={"label": "perhaps"}).status_code == 404
        assert client.post(address.replace("item=0", "item=99"), data={"label": "yes"}).status_code == 404
        assert client.post(address, content=b"x" * 100_000).status_code == 413
        assert client.post(f"/{TOKEN}/run/run/attempts", data={"label": "yes"}).status_code == 405
    assert not (run / "spotcheck-0.jsonl").exists()


def test_the_rewards_of_a_run_are_checked_when_asked(tmp_path: Path) -> None:
    with looking_at(states_run(tmp_path / "run"), index=tmp_path / "index", extras=make_extras((), None)) as (
        client,
        _,
    ):
        assert "<h2>Now</h2>" in page(client, "/run/run/checklist?now=1")


def test_listing_runs_needs_no_web_library(tmp_path: Path) -> None:
    code = "import sys, patchgym.cli.runs\n"
    code += "print([name for name in ('jinja2', 'markupsafe', 'starlette', 'uvicorn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.train
def test_tokens_are_shown_as_the_text_of_a_model(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="LOUD SKIP: no train extra here")
    from tests.train.tiny import save_tiny_model

    extras = make_extras((), str(save_tiny_model(tmp_path)))
    assert extras.decode is not None
    pieces = extras.decode([64, 64, 256])
    assert pieces[0] == pieces[1] != pieces[2] == "<|im_start|>"


def test_a_tokenizer_that_is_not_there_is_told(tmp_path: Path, cache: dict[str, str]) -> None:
    done = patchgym(cache, "view", loop_run(tmp_path / "run"), "--tokenizer", tmp_path / "none")
    assert done.returncode == 2
    assert "There is no model" in done.stderr


def test_how_a_task_set_was_made_is_shown(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    (tmp_path / "set").mkdir()
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={"candidates": 7}, dropped={"flaky": 3}, created_at=THEN)
    write_task_set(tmp_path / "set", manifest, [calc_task(objects)], objects)
    before = {file: file.stat().st_mtime_ns for file in (tmp_path / "set").rglob("*")}
    extras = make_extras([tmp_path / "set"], None)
    with looking_at(loop_run(tmp_path / "run"), index=tmp_path / "index", extras=extras) as (client, _):
        text = page(client, "/run/run/data")
    for told in ("Task set set", "candidates", "flaky", "licence"):
        assert told in text
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "set").rglob("*")} == before
