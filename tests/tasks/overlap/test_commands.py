"""``patchgym tasks index`` and ``split`` as a person and a program meet them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.tasks import TaskSet
from tests.tasks.overlap.made import CHUNKS, COUNT, MERGE, made_set, made_task


def patchgym(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "patchgym", "tasks", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task set of three functions, and a benchmark that has one of them."""
    made = tmp_path_factory.mktemp("overlap")
    objects = ObjectStore(made / "work")
    tasks = [
        made_task(objects, "merge-1", MERGE, "<=", "<"),
        made_task(objects, "chunks-1", CHUNKS, "size < 1", "size < 2"),
        made_task(objects, "count-1", COUNT, ", 0)", ", 1)"),
    ]
    made_set(made / "set", tasks, objects)
    (made / "bench.jsonl").write_text(json.dumps({"task_id": "Bench/1 [bold]", "code": CHUNKS}) + "\n")
    (made / "other.jsonl").write_text(json.dumps({"task_id": "Other/1", "code": "print('hello')\n"}) + "\n")
    return made


def test_an_index_is_written_and_finds_what_stands_in_it(folder: Path) -> None:
    written = patchgym("index", folder / "bench.jsonl", "--out", folder / "bench.index")
    assert written.returncode == 0, written.stderr
    done = patchgym("index", folder / "bench.index", "--check", folder / "set", "--json")
    assert done.returncode == 1
    (match,) = json.loads(done.stdout)["matches"]
    assert (match["task"], match["record"], match["by"]) == ("chunks-1", "Bench/1 [bold]", "function")
    assert "size" in match["ours"]
    assert "size" in match["theirs"]


def test_a_person_sees_both_passages_and_gets_a_page(folder: Path) -> None:
    done = patchgym("index", folder / "bench.jsonl", "--check", folder / "set", "--html", folder / "page.html")
    assert done.returncode == 1
    assert "task chunks-1" in done.stdout
    assert "record Bench/1 [bold]" in done.stdout
    assert done.stdout.count("raise ValueError") == 2
    assert "Bench/1 [bold]" in (folder / "page.html").read_text()


def test_a_clean_set_is_clean(folder: Path) -> None:
    done = patchgym("index", folder / "other.jsonl", "--check", folder / "set")
    assert done.returncode == 0, done.stderr
    assert "None of the 3 tasks" in done.stdout


def test_rows_that_were_left_out_are_told_and_fail(folder: Path) -> None:
    (folder / "half.jsonl").write_text((folder / "other.jsonl").read_text() + "nope\n")
    done = patchgym("index", folder / "half.jsonl", "--out", folder / "half.index")
    assert done.returncode == 1
    assert "Left out 1 row: not_json" in done.stderr


def test_nothing_asked_for_is_a_usage_error(folder: Path) -> None:
    done = patchgym("index", folder / "bench.jsonl")
    assert done.returncode == 2
    assert "--check" in done.stderr


def test_a_set_is_split_and_says_how(folder: Path) -> None:
    done = patchgym("split", folder / "set", "--out", folder / "split", "--heldout", "0.34", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"train": 2, "heldout": 1, "components": 3, "largest_component": 1}
    assert len(TaskSet.load(folder / "split").split("heldout")) == 1
