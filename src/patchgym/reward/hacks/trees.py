"""Walking syntax trees, quickly: every detector walks the same functions, so that each walk is kept at its node."""

import ast
import copy
from collections.abc import Sequence

_KEPT = "_patchgym_below"


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, in order of the source's fields; contexts such as ``Load`` are left out."""
    found: list[ast.AST] = []
    for value in vars(node).values():
        if type(value) is list:
            found += [one for one in value if isinstance(one, ast.AST)]
        elif isinstance(value, ast.AST) and not isinstance(value, ast.expr_context):
            found.append(value)
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
