"""A workspace that leaks in every way, and histories to plant in it, made by the real git where there is one."""

import io
import os
import py_compile
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.records import Task
from tests.workshop import BUGGY, FIXED, VISIBLE, WHOLE, calc_task

HIDDEN = WHOLE[len(VISIBLE) :]


def need_git() -> None:
    """Skip, loudly, where the git program is missing."""
    if shutil.which("git") is None:
        pytest.skip("LOUD SKIP: no git program to make histories with")


def git(folder: Path, *arguments: str) -> str:
    """Run git with a fixed author and no configuration of this machine."""
    names = {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    variables = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1", **names}
    command = ["git", "-c", "init.defaultBranch=main", "-c", "gc.auto=0", *arguments]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder: Path, text: str, message: str) -> str:
    """Commit ``calc.py`` with this text and return the commit's id."""
    (folder / "calc.py").write_text(text, encoding="utf-8")
    git(folder, "add", "calc.py")
    git(folder, "commit", "-q", "-m", message)
    return git(folder, "rev-parse", "HEAD")


def history(folder: Path) -> tuple[str, str]:
    """A repository that stands on the bug, with the fix one commit ahead on no branch; both ids."""
    folder.mkdir(parents=True)
    git(folder, "init", "-q")
    base = commit(folder, BUGGY, "the bug")
    fix = commit(folder, FIXED, "mend clamp")
    git(folder, "reset", "-q", "--hard", base)
    return base, fix


def leaky_files(folder: Path) -> dict[str, bytes]:
    """Files, by workspace path, each of which holds the fix or a hidden test, or tells of an earlier run."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "calc.py").write_text(FIXED, encoding="utf-8")
    compiled = folder / "calc.pyc"
    py_compile.compile(str(folder / "calc.py"), cfile=str(compiled), doraise=True)
    cached = f"__pycache__/calc.{sys.implementation.cache_tag}.pyc"
    wheel = zipped({"calc.py": FIXED.encode()})
    hunk = FIXED.split("\n")[2:8]
    patch = "--- a/calc.py\n+++ b/calc.py\n@@ -3,6 +3,6 @@\n" + "".join(f" {line}\n" for line in hunk)
    patch = patch.replace("         return high", "-        return low\n+        return high")
    return {
        "old/calc.py.orig": FIXED.replace("    ", "\t").encode(),
        "notes/fix.patch": patch.encode(),
        cached: compiled.read_bytes(),
        "dist/calc-1.1-py3-none-any.whl": wheel,
        "dist/calc-1.1.tar.gz": tarred({"calc-1.1/src/calc.py": FIXED.encode()}),
        "cache/body": zipped({"inner/calc.whl": wheel}),
        "notes/later.txt": HIDDEN.encode(),
        "fixtures.zip": zipped({"t.py": WHOLE.encode()}),
        ".pytest_cache/v/cache/lastfailed": b'{"tests/test_calc.py::test_far_above": true}',
        "junit.xml": b'<testsuites><testsuite><testcase name="test_far_above"/></testsuite></testsuites>',
        "logs/verifier/reward.txt": b"1.0\n",
        ".coverage": b"SQLite format 3\0" + bytes(84),
    }


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip file."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return stream.getvalue()


def tarred(files: Mapping[str, bytes]) -> bytes:
    """A compressed tar file."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return stream.getvalue()


def files_below(folder: Path, prefix: str) -> dict[str, bytes]:
    """Every file of a folder under a prefix."""
    return {
        f"{prefix}/{path.relative_to(folder)}": path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.endswith(".sample")
    }


def task_with(objects: ObjectStore, files: Mapping[str, bytes]) -> Task:
    """The task of the workshop with more files in its workspace."""
    task = calc_task(objects)
    changes = {path: Entry(0o100644, objects.put(data)) for path, data in files.items()}
    return task.model_copy(update={"workspace": objects.update_tree(task.workspace, changes)})


def bare_environment(folder: Path) -> Path:
    """A virtual environment without packages."""
    venv.EnvBuilder(with_pip=False, symlinks=True).create(folder)
    return folder


def install_fix(environment: Path) -> None:
    """Put the fixed module and its metadata into an environment's site-packages."""
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "calc.py").write_text(FIXED, encoding="utf-8")
    (site / "calc-1.1.dist-info").mkdir()
    (site / "calc-1.1.dist-info" / "RECORD").write_text("calc.py,sha256=x,1\n", encoding="utf-8")
