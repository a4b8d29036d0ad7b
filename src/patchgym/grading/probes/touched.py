"""Which functions a solution touches, where a task does not say."""

import ast
from collections.abc import Iterator

from patchgym.content import ObjectStore, patched_paths
from patchgym.grading.probes.ask import TEST_NAME
from patchgym.records import Task

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def touched_functions(objects: ObjectStore, task: Task, solved: str) -> tuple[str, ...]:
    """``path:qualified name`` of the functions that the gold patch changes, as the task says, else as its files differ
    in the ``solved`` tree; all functions of the changed files where it changes none.

    Raises:
        PatchError: the gold patch does not parse.
        DataError: the task's trees are not in the store.
    """
    if task.functions:
        return task.functions
    changed: list[str] = []
    every: list[str] = []
    for path in patched_paths(task.gold_patch):
        if not path.endswith(".py") or TEST_NAME.search(path):
            continue
        before, after = (_functions_at(objects, tree, path) for tree in (task.workspace, solved))
        every += [f"{path}:{name}" for name in after]
        changed += [f"{path}:{name}" for name, text in after.items() if before.get(name) != text]
    return tuple(changed or every)


def _functions_at(objects: ObjectStore, tree: str, path: str) -> dict[str, str]:
    """The functions of a file, with all that they are; none where it is not there or does not parse."""
    entry = objects.entries(tree).get(path)
    if entry is None:
        return {}
    try:
        parsed = ast.parse(objects.get(entry.id))
        return {name: ast.dump(function) for name, function in _functions(parsed, "")}
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {}


def _functions(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, _Function | ast.ClassDef)
        name = f"{prefix}{child.name}" if isinstance(child, _Function | ast.ClassDef) else ""
        if isinstance(child, _Function):
            yield name, child
        yield from _functions(child, f"{name}." if named else prefix)
