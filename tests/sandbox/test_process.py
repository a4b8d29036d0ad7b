"""The sandbox that isolates nothing: what it does all the same, and that it is never had by accident."""

import asyncio
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from patchgym.content import ObjectStore, apply_patch
from patchgym.grading import Grader
from patchgym.records import Verdict
from patchgym.sandbox import Ending, ExecResult, ProcessSandbox, ProcessSandboxes, ResourceLimits, SandboxSpec
from tests.sandbox.box import processes_with
from tests.workshop import FIXED, calc_task, here, patch_of, tree_of


class Plain:
    """A process sandbox, one call each."""

    def __init__(self, runner: asyncio.Runner, sandbox: ProcessSandbox, objects: ObjectStore) -> None:
        self.runner, self.sandbox, self.objects = runner, sandbox, objects

    def exec(self, *argv: str, **options: Any) -> ExecResult:
        return self.runner.run(self.sandbox.exec(argv, **options))

    def sh(self, script: str, **options: Any) -> ExecResult:
        return self.exec("sh", "-c", script, **options)


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Plain]:
    objects = ObjectStore(tmp_path / "objects")
    tree = tree_of(objects, {"a.txt": "one\n", "d/b.txt": "two\n"})
    limits = ResourceLimits(stream_bytes=1000, output_bytes=100_000)
    with asyncio.Runner() as runner:
        sandbox = runner.run(ProcessSandboxes(objects).create(SandboxSpec(tree=tree, limits=limits)))
        yield Plain(runner, sandbox, objects)
        runner.run(sandbox.close())
    assert not sandbox.folder.exists()


def test_a_command_gives_back_what_it_does_anywhere(plain: Plain) -> None:
    done = plain.sh("cat; echo err >&2; exit 3", stdin=b"in")
    assert (done.ending, done.exit_code, done.stdout, done.stderr) == (Ending.EXITED, 3, b"in", b"err\n")
    assert done.limits_by == "none"
    assert plain.sh("kill -9 $$").signal == 9
    assert plain.exec("no-such-program").ending is Ending.NOT_FOUND
    assert plain.exec("pwd", cwd="d").stdout.decode().strip() == plain.sandbox.locate("/workspace/d")


def test_time_and_output_are_bounded(plain: Plain) -> None:
    marker = f"marker-{secrets.token_hex(8)}"
    began = time.monotonic()
    assert plain.exec("sh", "-c", f"sh -c 'sleep 1000; :' {marker} & sleep 1000", timeout_s=0.3).timed_out
    assert processes_with(marker) == []
    assert plain.sh("yes").ending is Ending.OUTPUT_CUT
    assert time.monotonic() - began < 20


def test_what_a_command_leaves_ends_with_it_unless_it_is_kept(plain: Plain) -> None:
    gone, kept = (f"marker-{secrets.token_hex(8)}" for _ in range(2))
    plain.sh(f"sh -c 'sleep 1000; :' {gone} &")
    plain.sh(f"sh -c 'sleep 1000; :' {kept} &", keep=True)
    assert processes_with(gone) == []
    assert len(processes_with(kept)) == 1
    plain.runner.run(plain.sandbox.close())
    assert processes_with(kept) == []


def test_states_are_right(plain: Plain) -> None:
    plain.sh("echo more >> a.txt; rm -r d; ln -s a.txt l; printf '\\0' > bin")
    plain.runner.run(plain.sandbox.write("n/new", b"x"))
    tree = plain.runner.run(plain.sandbox.snapshot())
    patch = plain.runner.run(plain.sandbox.diff())
    assert apply_patch(plain.objects, plain.sandbox.spec.tree, patch) == tree
    twin = plain.runner.run(plain.sandbox.fork())
    plain.sh("rm a.txt")
    assert plain.runner.run(twin.snapshot()) == tree
    plain.runner.run(twin.close())


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "link"])
def test_a_path_that_leaves_the_workspace_is_refused(plain: Plain, path: str) -> None:
    plain.sh("ln -s /etc/passwd link")
    with pytest.raises(PermissionError):
        plain.runner.run(plain.sandbox.read(path))


def test_a_patch_is_graded_and_the_report_says_where(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects, timeout_s=30.0)
    grader = Grader(ProcessSandboxes(objects), objects, here)
    report = asyncio.run(grader.grade(task, patch_of(objects, task, {"calc.py": FIXED})))
    assert (report.verdict, report.sandbox) == (Verdict.RESOLVED, "process")


@pytest.mark.parametrize("command", ["rollout", "eval", "grade", "validate", "loop", "tasks build"])
def test_no_command_takes_it_without_being_told_twice(tmp_path: Path, command: str) -> None:
    options = {
        "rollout": ["SET", "--policy", "noop", "--out", "run"],
        "eval": ["SET", "--policy", "noop", "--out", "run"],
        "grade": ["SET", "--patches", "patches.jsonl"],
        "validate": ["SET"],
        "loop": ["default"],
        "tasks build": ["--out", "set"],
    }[command]
    program = [sys.executable, "-m", "patchgym", *command.split(), *options, "--sandbox", "process"]
    done = subprocess.run(program, cwd=tmp_path, capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 2
    assert "--unsafe" in done.stderr
    assert os.listdir(tmp_path) == []
