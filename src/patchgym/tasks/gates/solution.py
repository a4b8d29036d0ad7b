"""What must not be readable in a workspace: the fix as blocks of lines, and the hidden tests."""

import ast
from collections.abc import Iterable, Mapping

from patchgym.content import ObjectStore, apply_patch
from patchgym.content.unified import Hunk
from patchgym.records import Task
from patchgym.tasks.gates.attack.secrets import normal
from patchgym.tasks.gates.statement import Answer
from patchgym.testrun import function_of

_CONTEXT = (1, 2, 3)
_MOST_LINES = 40
_LEAST_CHARS, _TELLING_CHARS = 16, 100  # "except ValueError: / return False" stands in many a program


def answer_of(task: Task, objects: ObjectStore) -> Answer:
    """The answer that a task's statement must not tell.

    Raises:
        DataError: the task's objects are not in the store.
    """
    ids = (task.source.fix_commit, task.source.base_commit)
    return Answer(
        gold_patch=task.gold_patch,
        workspace=workspace_texts(task, objects),
        failing_tests=task.view().failing_tests,
        hidden_tests=task.tests.hidden,
        hidden_sources=_texts(task.tests.hidden_files, objects),
        commits=tuple(commit for commit in ids if commit is not None),
    )


def workspace_texts(task: Task, objects: ObjectStore) -> dict[str, str]:
    """The text files that the agent starts from, by path; what is no UTF-8 is left out.

    Raises:
        DataError: the workspace is not in the store.
    """
    return _texts({path: entry.id for path, entry in objects.entries(task.workspace).items()}, objects)


def fix_blocks(answer: Answer) -> list[tuple[str, str]]:
    """Each hunk of the fix as it looks afterwards, as a path and lines in the form of ``attack.secrets.normal``: the
    changed lines with as little context as tells them from that file before the fix and from commonplace code. A hunk
    that cannot be told from the file is left out.

    Raises:
        PatchError: the gold patch does not parse.
    """
    before = {path: f"\n{normal(answer.workspace.get(path, ''))}\n" for path, _ in answer.hunks}
    found = []
    for path, hunk in answer.hunks:
        blocks = [normal("\n".join(_after(hunk, context))) for context in _CONTEXT]
        telling = [one for one in blocks if len(one) >= _LEAST_CHARS and f"\n{one}\n" not in before[path]]
        if telling:
            found.append((path, next((one for one in telling if len(one) >= _TELLING_CHARS), telling[-1])))
    return found


def hidden_blocks(task: Task, answer: Answer) -> list[tuple[str, str]]:
    """Each hidden test function as a name and its lines in the form of ``attack.secrets.normal``."""
    found: dict[str, str] = {}
    wanted = {function_of(test) for test in task.tests.hidden}
    for path, source in sorted(answer.hidden_sources.items()):
        names = {function for file, function in wanted if file == path}
        found.update((name.rpartition(".")[2], text) for name, text in _functions(source) if name in names)
    return sorted(found.items())


def key_sources(task: Task, answer: Answer, objects: ObjectStore) -> dict[str, list[str]]:
    """The Python files that the fix changes, each before and after.

    Raises:
        DataError: an object is missing.
        PatchError: the gold patch does not apply.
    """
    after = objects.entries(apply_patch(objects, task.workspace, task.gold_patch))
    paths = [path for path in sorted(answer.key_files) if path.endswith(".py") and path in after]
    new = _texts({path: after[path].id for path in paths}, objects)
    return {path: [answer.workspace.get(path, ""), text] for path, text in new.items()}


def _after(hunk: Hunk, context: int) -> list[str]:
    """The new side of a hunk with at most ``context`` lines that are the same on both sides around what is not."""
    old, new = hunk.old, hunk.new
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    lines = new[max(0, head - context) : len(new) - max(0, tail - context)]
    return [line.decode("utf-8", "replace") for line in lines[:_MOST_LINES]]


def _functions(source: str) -> Iterable[tuple[str, str]]:
    """Qualified name and normal text of each function of a test file."""
    try:
        module = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    lines = source.split("\n")
    pending: list[tuple[ast.AST, str]] = [(module, "")]
    while pending:
        node, prefix = pending.pop()
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ClassDef):
                pending.append((child, f"{prefix}{child.name}."))
            elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
                body = "\n".join(lines[child.lineno - 1 : child.end_lineno])
                yield prefix + child.name, normal(body)
            else:
                pending.append((child, prefix))


def _texts(blobs: Mapping[str, str], objects: ObjectStore) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, blob in blobs.items():
        try:
            found[path] = objects.get(blob).decode("utf-8")
        except UnicodeDecodeError:
            continue
    return found
