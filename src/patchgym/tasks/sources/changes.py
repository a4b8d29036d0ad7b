"""Whether a change that people made can be a candidate, told before anything of it is run. The same for a commit, a
merge and a release."""

import ast
from dataclasses import dataclass

from patchgym.content import Entry, ObjectStore, patch_scope
from patchgym.content.objects import SYMLINK
from patchgym.tasks.sources.candidates import Change, text_of
from patchgym.tasks.sources.project import Project
from patchgym.tasks.sources.refusals import Refusal, Refused


@dataclass(frozen=True)
class ChangeLimits:
    """The largest change that makes a candidate: ``files`` of source, and ``lines`` added and removed in them."""

    files: int = 8
    lines: int = 400


def check_change(objects: ObjectStore, change: Change, project: Project, limits: ChangeLimits) -> None:
    """Look at a change before anything of it is run.

    Raises:
        Refused: it makes no candidate.
    """
    if not any(project.is_source(path) for path in change.paths):
        raise Refused(Refusal.NO_SOURCE_CHANGE)
    if not change.tested:
        raise Refused(Refusal.NO_TEST_CHANGE)
    before, after = objects.entries(change.broken), objects.entries(change.healthy)
    pairs = [(path, before.get(path), after.get(path)) for path in change.paths]
    for path, *sides in pairs:
        for entry in sides:
            if entry is not None:
                _check_file(objects, path, entry)
    if sorted(old.id for _, old, _ in pairs if old) == sorted(new.id for _, _, new in pairs if new):
        raise Refused(Refusal.RENAMES_ONLY)
    texts = [[text_of(objects, side) if side else "" for side in sides] for path, *sides in pairs]
    if all(
        path.endswith(".py") and _program(old) == _program(new)
        for (path, *_), (old, new) in zip(pairs, texts, strict=True)
    ):
        raise Refused(Refusal.NO_CODE_CHANGE)
    lines = patch_scope(change.patch).lines
    if lines > limits.lines:
        raise Refused(Refusal.TOO_BIG, f"{lines} lines")


def _check_file(objects: ObjectStore, path: str, entry: Entry) -> None:
    if entry.mode == SYMLINK:
        raise Refused(Refusal.SYMLINK, path)
    data = objects.get(entry.id)
    if b"\0" in data:
        raise Refused(Refusal.BINARY, path)
    try:
        text = data.decode()
        if path.endswith(".py"):
            ast.parse(text)
    except UnicodeDecodeError:
        raise Refused(Refusal.NOT_UTF8, path) from None
    except (SyntaxError, ValueError, RecursionError):
        raise Refused(Refusal.DOES_NOT_PARSE, path) from None


def _program(source: str) -> str:
    """A source file as a program: without comments, docstrings, layout and line endings."""
    module = ast.parse(source)
    for node in ast.walk(module):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                node.body = node.body[1:]
    return ast.dump(module)
