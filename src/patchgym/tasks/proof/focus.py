"""Which tests can notice a change: those that run the statements that it touches."""

import ast
import difflib
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from patchgym.content import ObjectStore
from patchgym.testrun import Coverage


def focus(
    objects: ObjectStore, broken: str, healthy: str, coverage: Coverage | None, is_test: Callable[[str], bool]
) -> frozenset[str] | None:
    """The tests that ran, on the tree ``healthy``, any statement in which ``broken`` differs from it, or may have. None
    where that cannot be told and every test may notice: no coverage, a file that is no Python source, or code that runs
    on import."""
    found: set[str] = set()
    for path in objects.changed_paths(broken, healthy):
        if is_test(path):
            continue
        after = objects.entries(healthy).get(path)
        before = objects.entries(broken).get(path)
        if coverage is None or after is None or path not in coverage.lines:
            return None
        old, new = (objects.get(side.id).decode("utf-8", "replace") if side else "" for side in (before, after))
        tests = _noticing(old, new, partial(coverage.tests, path))
        if tests is None:
            return None
        found |= tests | coverage.unwatched
    return frozenset(found)


def _noticing(old: str, new: str, tests_of: Callable[[Iterable[int]], frozenset[str]]) -> set[str] | None:
    """Change by change: the tests of its statements, else those of the function around it; None outside functions."""
    try:
        module = ast.parse(new)
    except (SyntaxError, ValueError):
        return None
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    statements = [inner for node in functions for inner in ast.walk(node) if isinstance(inner, ast.stmt)]
    found: set[str] = set()
    for first, last in _changes(old, new):
        touched = [_lines(statement) for statement in statements]
        tests = frozenset().union(*(tests_of(lines) for lines in touched if lines[0] <= last and first <= lines[-1]))
        if not tests:  # a line that is no statement, or that a later line of the same function stands for
            around = [node for node in functions if node.lineno <= first and last <= (node.end_lineno or 0)]
            tests = tests_of(range(around[-1].lineno, (around[-1].end_lineno or 0) + 1)) if around else frozenset()
        if not tests:
            return None
        found |= tests
    return found


def touched_lines(old: str, new: str) -> frozenset[int]:
    """The lines of ``new`` (from 1) that differ from ``old``; of a removal, those on either side."""
    return frozenset(line for first, last in _changes(old, new) for line in range(first, last + 1))


def _changes(old: str, new: str) -> Iterator[tuple[int, int]]:
    """Ranges of changed lines of ``new`` (from 1, both ends in); a removal counts as the lines on either side."""
    before, after = old.splitlines(), new.splitlines()
    for kind, _, _, start, end in difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_opcodes():
        if kind != "equal":
            yield (start + 1, end) if end > start else (max(start, 1), min(start + 1, len(after)))


def _lines(statement: ast.stmt) -> range:
    """The lines of a statement; of one with a body, those of its header."""
    body = getattr(statement, "body", None)
    end = max(body[0].lineno - 1, statement.lineno) if body else statement.end_lineno or statement.lineno
    return range(statement.lineno, end + 1)
