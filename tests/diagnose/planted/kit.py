"""Tiny tasks out of ``kit.toml``: two bugs each to train on, one each held out."""

import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.records import Environment, Limits, Source, Task, Tests
from tests.workshop import tree_of

_KIT: dict[str, list[dict[str, Any]]] = tomllib.loads(Path(__file__).with_name("kit.toml").read_text(encoding="utf-8"))
TRAIN = [base["name"] for base in _KIT["base"]]
HELD = [base["name"] for base in _KIT["held"]]
_BY_NAME = {base["name"]: base for base in [*_KIT["base"], *_KIT["held"]]}
_AGAIN = "_again"
"""Behind a name: the same task under another id."""
LIMITS = Limits(turns=8, tokens=100_000, command_seconds=20)


def make_tasks(objects: ObjectStore, names: Sequence[str], *, sparse: bool = False) -> list[Task]:
    """The tasks of these names; with ``sparse`` the second bug is mended already, and one test decides."""
    return [make_task(objects, name, sparse=sparse) for name in names]


def make_task(objects: ObjectStore, name: str, *, sparse: bool = False) -> Task:
    """One task: its bugs, its tests, a hidden one, and the patch that mends them."""
    base = _BY_NAME[name.removesuffix(_AGAIN)]
    bugs = base["bugs"]
    code = _mended(base["code"], bugs[1:]) if sparse else base["code"]
    shown = base["shown"][:1] if sparse else base["shown"]
    hidden = [] if sparse else base["hidden"]
    visible = _tests(base["name"], [("shown", shown), ("kept", base["kept"])])
    whole = visible + _tests("", [("hidden", hidden)])
    path, tests = f"{base['name']}.py", f"tests/test_{base['name']}.py"
    workspace = tree_of(objects, {path: code, tests: visible, "README": f"{name}\n"})
    solved = objects.update_tree(workspace, {path: Entry(0o100644, objects.put(_mended(code, bugs).encode()))})
    gold = diff_trees(objects, workspace, solved)
    failing = [f"{tests}::test_shown_{at}" for at in range(len(shown))]
    unseen = [f"{tests}::test_hidden_{at}" for at in range(len(hidden))]
    return Task(
        id=f"{name}-1",
        source=Source(kind="synthetic", repo=base["name"]),
        instruction=f"{base['says']} These tests fail: {', '.join(failing)}.",
        workspace=workspace,
        environment=Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}", lock=""),
        tests=Tests(
            fail_to_pass=(*failing, *unseen),
            pass_to_pass=(f"{tests}::test_kept_0",),
            hidden=tuple(unseen),
            visible_files={tests: objects.put(visible.encode())},
            hidden_files={tests: objects.put(whole.encode())},
            timeout_s=20.0,
        ),
        gold_patch=gold,
        key_files=(path,),
        scope=patch_scope(gold),
        limits=LIMITS,
        split="heldout" if base["name"] in HELD else "train",
    )


def fixes(task: Task) -> list[tuple[str, str]]:
    """The edits that mend a task, one a bug."""
    return [tuple(bug) for bug in _base(task)["bugs"]]


def constants(task: Task) -> list[tuple[str, str]]:
    """The edits that answer what the shown tests ask and nothing else."""
    return [tuple(each) for each in _base(task)["constant"]]


def _base(task: Task) -> dict[str, Any]:
    return _BY_NAME[task.source.repo]


def _mended(code: str, bugs: Sequence[Sequence[str]]) -> str:
    for old, new in bugs:
        code = code.replace(old, new, 1)
    return code


def _tests(module: str, kinds: Sequence[tuple[str, Sequence[str]]]) -> str:
    head = f"from {module} import *\n" if module else ""
    bodies = (f"\n\ndef test_{kind}_{at}():\n    {line}\n" for kind, lines in kinds for at, line in enumerate(lines))
    return head + "".join(bodies)
