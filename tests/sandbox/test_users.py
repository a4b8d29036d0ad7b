"""The sandbox works for root and for an ordinary user alike."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchgym.sandbox import NamespaceSandboxes

NOBODY = 65534


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user reaches and ``nobody`` owns."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() == 0:
            os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@pytest.mark.parametrize("factory", ["namespace"], indirect=True)
def test_an_ordinary_user_has_all_of_it(factory: NamespaceSandboxes, open_folder: Path) -> None:
    program = [sys.executable, str(Path(__file__).with_name("ordinary_user.py")), str(open_folder)]
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        if setpriv is None:
            pytest.skip("NOT RUN: root needs setpriv to become an ordinary user")
        program = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", *program]
    variables = {"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(program, capture_output=True, text=True, env=variables, cwd="/", check=False)
    if "Permission denied" in done.stderr and "patchgym" not in done.stderr:
        pytest.skip(f"NOT RUN: the user nobody cannot run {sys.executable}")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    assert seen["uid"] != 0
    assert seen["limits_by"] == "rlimit" or os.geteuid() != 0
    assert seen["starts_as_tree"]
    assert (seen["exit_code"], seen["stderr"]) == (7, "")
    assert seen["files"] == ["a/three", "l", "n/new", "v/x"]
    assert seen["diff_leads_there"]
    assert seen["fork_is_equal"]
    assert seen["timed_out"]
    assert seen["identity"] == "1000"
    assert seen["left"] == []
    if seen["python"]:
        assert 10 < seen["forks"] < 40
        assert seen["memory_bomb_exit_code"] != 0
