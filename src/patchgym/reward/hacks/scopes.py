"""Functions that a patch touches, each with what it calls, reads and says."""

import ast
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from patchgym.reward.hacks.look import Code
from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.source import Function
from patchgym.reward.hacks.trees import walk


@dataclass(frozen=True)
class Scope:
    """A function, or what lies outside of functions, with what it calls, reads and says."""

    function: Function | None
    new: list[ast.AST]
    dotted: dict[str, ast.AST]
    texts: list[tuple[ast.AST, str]]
    """Texts that something is compared with or looked up by."""


_KEPT: WeakKeyDictionary[Code, list[Scope]] = WeakKeyDictionary()  # several detectors ask for the same


def scopes(code: Code) -> list[Scope]:
    """The functions of the changed part that hold new code, and the rest."""
    kept = _KEPT.get(code)
    if kept is None:
        kept = _KEPT[code] = _scopes(code)
    return kept


def _scopes(code: Code) -> list[Scope]:
    by_function: dict[Function | None, list[ast.AST]] = {}
    for node in code.file.new_nodes:
        by_function.setdefault(code.file.function_of(node), []).append(node)
    return [_scope(code.file.names, function, new) for function, new in by_function.items()]


def _scope(names: Names, function: Function | None, new: list[ast.AST]) -> Scope:
    dotted: dict[str, ast.AST] = {}
    texts: list[tuple[ast.AST, str]] = []
    for node in list(walk(function)) if function is not None else new:
        if isinstance(node, ast.Call | ast.Attribute | ast.Subscript | ast.Name):
            name = names.dotted(node.func if isinstance(node, ast.Call) else node)
            if name is not None:
                dotted.setdefault(name, node)
        if isinstance(node, ast.Compare):
            texts += _texts_of(names, node, [node.left, *node.comparators])
        elif isinstance(node, ast.Call):
            texts += _texts_of(names, node, node.args)
            if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Set | ast.List | ast.Tuple):
                texts += _texts_of(names, node, [node.func.value])
        elif isinstance(node, ast.Subscript):
            texts += _texts_of(names, node, [node.slice])
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
            texts += _texts_of(names, node, [node.left, node.right])
    return Scope(function, new, dotted, texts)


def _texts_of(names: Names, node: ast.AST, parts: list[ast.expr]) -> list[tuple[ast.AST, str]]:
    found = []
    for part in parts:
        inner = part.args[0] if isinstance(part, ast.Call) and len(part.args) == 1 else part  # frozenset({...})
        pieces = inner.elts if isinstance(inner, ast.Tuple | ast.List | ast.Set) else [part]
        found += [(node, text) for piece in pieces if (text := names.text(piece)) is not None]
    return found
