"""A task out of what a benchmark says of it: the part that all formats share."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from patchgym.content import Entry, ObjectStore, apply_patch, diff_trees, patch_scope, patched_paths
from patchgym.errors import PatchError
from patchgym.records import Environment, Scope, Source, Task, Tests
from patchgym.tasks.formats.refused import Refused

BENCHMARK_TIMEOUT_S = 1800.0
"""Seconds that SWE-bench's own harness gives a task's tests."""

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""The workspace of a task whose format names no files: git's empty tree."""

_TEST_FOLDERS = frozenset({"test", "tests", "testing"})


@dataclass(frozen=True)
class Files:
    """A workspace, and its test files as ``Tests`` has them."""

    tree: str
    visible: Mapping[str, str] = field(default_factory=dict)
    hidden: Mapping[str, str] = field(default_factory=dict)


def no_files(objects: ObjectStore) -> Files:
    """Of a task that is known by its row alone."""
    return Files(objects.write_tree({}))


def has_files(task: Task) -> bool:
    """Whether a task can be run: its workspace holds something."""
    return task.workspace != EMPTY_TREE


def must_build(task: Task) -> None:
    """Check that a container can be made for a task: it has files, or a container of its own that has them.

    Raises:
        Refused: ``not_runnable``.
    """
    environment = task.environment
    contained = environment.contained
    if not has_files(task) and not contained:
        raise Refused("not_runnable", "It has no files and names no container: import it with --repos.")
    if not contained and not environment.python:
        raise Refused("not_runnable", "It names neither a container nor a Python version with a lock.")


def files_at(objects: ObjectStore, tree: str, gold: str, test_patch: str, tests: Iterable[str]) -> Files:
    """The files of a task that starts from ``tree`` and is graded with the files that ``test_patch`` leaves.

    Visible are the test files of ``tree``: those that ``tests`` name, that the test patch touches, or that look like
    tests, save those that the gold patch changes.

    Raises:
        Refused: one of the patches does not apply.
    """
    try:
        apply_patch(objects, tree, gold)
    except PatchError as error:
        raise Refused("gold_does_not_apply", error.what) from error
    try:
        graded = objects.entries(apply_patch(objects, tree, test_patch))
        touched = frozenset(patched_paths(test_patch))
    except PatchError as error:
        raise Refused("test_patch_does_not_apply", error.what) from error
    named = {test.partition("::")[0] for test in tests}
    fixed = frozenset(patched_paths(gold))
    return Files(
        tree,
        visible={
            path: entry.id
            for path, entry in sorted(objects.entries(tree).items())
            if path not in fixed and (path in touched or path in named or looks_like_test(path))
        },
        hidden={path: graded[path].id for path in sorted(touched) if path in graded},
    )


def looks_like_test(path: str) -> bool:
    """Whether a path's name says that it is a test: a ``tests`` folder, ``test_*``, ``*_test`` or ``conftest.py``."""
    *folders, name = PurePosixPath(path).parts
    return (
        not _TEST_FOLDERS.isdisjoint(folders)
        or name == "conftest.py"
        or (name.endswith(".py") and (name.startswith("test_") or name.endswith("_test.py")))
    )


def test_patch_of(task: Task, objects: ObjectStore) -> str:
    """The patch from the test files that an agent finds to those that decide; empty where they are the same."""
    changes = {path: Entry(0o100644, blob) for path, blob in task.tests.hidden_files.items()}
    return diff_trees(objects, task.workspace, objects.update_tree(task.workspace, changes))


def says_test_files(patch: str, task: Task, objects: ObjectStore) -> bool:
    """Whether a test patch leaves just the hidden files of the task; true of any patch where the task has no files."""
    if not has_files(task):
        return not task.tests.hidden_files
    try:
        found = files_at(objects, task.workspace, "", patch, ())
    except Refused:
        return False
    return found.hidden == task.tests.hidden_files


def benchmark_task(
    *,
    name: str,
    source: Source,
    instruction: str,
    environment: Environment,
    gold: str,
    fail_to_pass: tuple[str, ...],
    pass_to_pass: tuple[str, ...],
    files: Files,
) -> Task:
    """A held-out task of a benchmark, in which an agent sees no fail-to-pass test.

    Raises:
        Refused: the gold patch does not parse.
    """
    scope = scope_of(gold)
    return Task(
        id=name,
        source=source,
        instruction=instruction,
        workspace=files.tree,
        environment=environment,
        tests=Tests(
            fail_to_pass=fail_to_pass,
            pass_to_pass=pass_to_pass,
            hidden=fail_to_pass,
            visible_files=dict(files.visible),
            hidden_files=dict(files.hidden),
            timeout_s=BENCHMARK_TIMEOUT_S,
        ),
        gold_patch=gold,
        key_files=patched_paths(gold),
        scope=scope,
        split="heldout",
    )


def scope_of(gold: str) -> Scope:
    """Size of a gold patch.

    Raises:
        Refused: it does not parse.
    """
    try:
        return patch_scope(gold)
    except PatchError as error:
        raise Refused("broken_patch", str(error)) from error
