"""Walking syntax trees, quickly: every detector walks the same functions, so that each walk is kept at its node."""

import ast
import copy
from collections.abc import Sequence

_KEPT, _RIGHT_BELOW = "_patchgym_below", "_patchgym_right_below"
_NO_NODES = frozenset({"ctx", "id", "attr", "asname", "kind", "type_comment", "level", "module", "conversion", "arg"})
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {ast.Constant: ()}


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, in order of the source's fields; contexts such as ``Load`` are left out."""
    held = vars(node)
    kept: list[ast.AST] | None = held.get(_RIGHT_BELOW)
    if kept is not None:
        return kept
    fields = _FIELDS.get(type(node))
    if fields is None:
        fields = _FIELDS[type(node)] = tuple(name for name in node._fields if name not in _NO_NODES)
    found: list[ast.AST] = []
    for name in fields:
        value = held.get(name)
        if type(value) is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    held[_RIGHT_BELOW] = found
    return found


def walk(node: ast.AST) -> Sequence[ast.AST]:
    """A node and all below it, the shallow ones first, as ``ast.walk`` gives them."""
    kept: tuple[ast.AST, ...] | None = vars(node).get(_KEPT)
    if kept is None:
        found = [node]
        for one in found:
            found += children(one)
        kept = tuple(found)
        vars(node)[_KEPT] = kept
    return kept


def with_body(node: ast.ClassDef, body: list[ast.stmt]) -> ast.ClassDef:
    """A class with only some of its statements, which it shares with ``node``."""
    found = copy.copy(node)
    vars(found).pop(_KEPT, None)
    vars(found).pop(_RIGHT_BELOW, None)
    found.body = body
    return found


def depth_within(tree: ast.AST, limit: int) -> bool:
    """Whether no node lies deeper than ``limit``; counted without recursion."""
    level = [tree]
    for _ in range(limit):
        level = [child for node in level for child in children(node)]
        if not level:
            return True
    return False
