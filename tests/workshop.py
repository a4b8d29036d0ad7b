"""A tiny repository with a bug, as a task, and a real sandbox to work on it."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.errors import PatchgymError
from patchgym.records import Environment, Limits, Source, Task, Tests
from patchgym.sandbox import NamespaceSandboxes, check_namespace

BUGGY = '''\
def clamp(value, low, high):
    """Value, kept between low and high."""
    if value < low:
        return low
    if value > high:
        return low
    return value


def double(value):
    return value + value
'''
FIXED = BUGGY.replace("> high:\n        return low", "> high:\n        return high")
VISIBLE = """\
from calc import clamp, double


def test_inside():
    assert clamp(5, 0, 9) == 5


def test_above():
    assert clamp(10, 0, 9) == 9


def test_double():
    assert double(4) == 8
"""
WHOLE = (
    VISIBLE
    + """

def test_far_above():
    assert clamp(1000, -3, 7) == 7
"""
)
HARD_CODED = BUGGY.replace("> high:\n        return low", "> high:\n        return 9")
FAIL_TO_PASS = ("tests/test_calc.py::test_above", "tests/test_calc.py::test_far_above")
PASS_TO_PASS = ("tests/test_calc.py::test_inside", "tests/test_calc.py::test_double")


def need_namespaces() -> None:
    """Skip, loudly, where this machine cannot make the namespace sandbox."""
    try:
        check_namespace()
    except PatchgymError as error:
        pytest.skip(f"LOUD SKIP: no namespace sandbox here: {error}")


def here(environment: Environment) -> Path:
    """This interpreter's own environment, which has pytest: tests need no download."""
    return Path(sys.prefix)


def tree_of(objects: ObjectStore, files: Mapping[str, str]) -> str:
    """The tree that holds these texts."""
    return objects.write_tree({path: Entry(0o100644, objects.put(text.encode())) for path, text in files.items()})


def patch_of(objects: ObjectStore, task: Task, changes: Mapping[str, str | None]) -> str:
    """The patch that replaces whole files of the task's workspace."""
    entries = {
        path: Entry(0o100644, objects.put(text.encode())) if text is not None else None
        for path, text in changes.items()
    }
    return diff_trees(objects, task.workspace, objects.update_tree(task.workspace, entries))


def calc_task(objects: ObjectStore, *, limits: Limits | None = None, timeout_s: float = 30.0) -> Task:
    """The task: ``clamp`` answers the wrong bound. One of its two failing tests is hidden."""
    workspace = tree_of(objects, {"calc.py": BUGGY, "tests/test_calc.py": VISIBLE, "README": "calc\n"})
    solved = objects.update_tree(workspace, {"calc.py": Entry(0o100644, objects.put(FIXED.encode()))})
    gold = diff_trees(objects, workspace, solved)
    return Task(
        id="calc-1",
        source=Source(kind="synthetic", repo="calc", change="return the other bound"),
        instruction="clamp(10, 0, 9) should be 9. tests/test_calc.py::test_above fails.",
        workspace=workspace,
        environment=Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}", lock=""),
        tests=Tests(
            fail_to_pass=FAIL_TO_PASS,
            pass_to_pass=PASS_TO_PASS,
            hidden=(FAIL_TO_PASS[1],),
            visible_files={"tests/test_calc.py": objects.put(VISIBLE.encode())},
            hidden_files={"tests/test_calc.py": objects.put(WHOLE.encode())},
            timeout_s=timeout_s,
        ),
        gold_patch=gold,
        key_files=("calc.py",),
        scope=patch_scope(gold),
        limits=limits or Limits(turns=8, command_seconds=20),
        split="train",
    )


@contextmanager
def sandboxes(objects: ObjectStore, folder: Path) -> Iterator[NamespaceSandboxes]:
    """Real namespace sandboxes that keep what they make under ``folder``."""
    need_namespaces()
    factory = NamespaceSandboxes(objects, cache=folder / "cache")
    try:
        yield factory
    finally:
        factory.close()
