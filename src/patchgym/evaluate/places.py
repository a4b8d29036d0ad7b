"""Where in a code base a patch works: functions, classes and modules, so that two patches can be compared."""

import ast
import difflib
from collections.abc import Iterable, Iterator

from patchgym.content import ObjectStore
from patchgym.reward.hacks.attempt import texts_of
from patchgym.reward.hacks.source import first_line, parse

_LONGEST = 20_000
_COMPARED = 4_000_000


def places_of(patch: str, tree: str, objects: ObjectStore) -> frozenset[str] | None:
    """The places that ``patch`` changes of the workspace ``tree``, as ``path:qualified name`` (``path:`` where it is
    outside of functions and classes, and for what is no Python); import lines and blank ones count nowhere. None where
    a file that it touches cannot be read as Python, or the patch not at all.

    Raises:
        DataError: the tree is not in the store.
    """
    entries = objects.entries(tree)

    def read(path: str) -> bytes | None:
        return objects.get(entries[path].id) if path in entries else None

    before, after = texts_of(patch, read)
    if not before:
        return None
    found: set[str] = set()
    for path in before.keys() | after.keys():
        old, new = before.get(path) or "", after.get(path) or ""
        names = _changed_names(old, new) if path.endswith((".py", ".pyi")) else frozenset({""})
        if names is None:
            return None
        found.update(f"{path}:{name}" for name in names)
    return frozenset(found)


def _changed_names(old: str, new: str) -> frozenset[str] | None:
    """The places that differ between two texts of one module; None where either is no Python, or too long."""
    sides = [text.split("\n") for text in (old, new)]
    named = [_names_of_lines(text) for text in (old, new)]
    if any(len(side) > _LONGEST for side in sides) or None in named:
        return None
    head = _alike(sides[0], sides[1])
    tail = _alike(sides[0][head:][::-1], sides[1][head:][::-1])
    middles = [side[head : len(side) - tail] for side in sides]
    found: set[str] = set()
    for ranges in _changed_ranges(*middles):
        for side, (start, stop), names in zip(middles, ranges, named, strict=True):
            assert names is not None
            lines = [at for at in range(start, stop) if side[at].strip()]
            found.update(names.get(head + at + 1, "") for at in lines)
    return frozenset(found - {_IMPORT})


def _changed_ranges(old: list[str], new: list[str]) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Which lines differ, on both sides. Of what is too long to align line by line, all."""
    if len(old) * len(new) > _COMPARED:
        return [((0, len(old)), (0, len(new)))]
    codes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    return [((one[1], one[2]), (one[3], one[4])) for one in codes if one[0] != "equal"]


_IMPORT = "(import)"


def _alike(one: list[str], other: list[str]) -> int:
    """How many first lines are the same."""
    pairs = zip(one, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def _names_of_lines(text: str) -> dict[int, str] | None:
    """The place of each line, from 1, that is in one."""
    tree = parse(text).tree
    if tree is None:
        return None
    return {
        line: name
        for name, node in _named(tree.body)
        for line in range(first_line(node), (node.end_lineno or node.lineno) + 1)
    }


def _named(body: Iterable[ast.stmt], prefix: str = "") -> Iterator[tuple[str, ast.stmt]]:
    """Every import, function and class, outer ones first: a method takes its lines from its class, and what is within a
    function belongs to it."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield _IMPORT, node
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield f"{prefix}{node.name}", node
            yield from _named(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            handled = [inner for handler in getattr(node, "handlers", []) for inner in handler.body]
            parts = (node.body, getattr(node, "orelse", []), getattr(node, "finalbody", []), handled)
            yield from _named([inner for part in parts for inner in part], prefix)
