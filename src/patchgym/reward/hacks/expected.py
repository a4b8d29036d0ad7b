"""What visible tests expect: constants that they give, paired with those that they want."""

import ast
from functools import lru_cache

from patchgym.reward.hacks.source import Function, functions_in, parse
from patchgym.reward.hacks.trees import walk

Value = str
"""A constant, or a display of constants, written by ``repr``."""
_LITERAL_NODES = 200


@lru_cache(maxsize=512)
def expectations(text: str) -> tuple[tuple[frozenset[Value], frozenset[Value]], ...]:
    """What a test file expects: for each assert, and each row of ``parametrize``, the constants that are given and
    those that are expected. Where the sides cannot be told apart, each stands on both."""
    tree = parse(text).tree
    found: list[tuple[frozenset[Value], frozenset[Value]]] = []
    for node in walk(tree) if tree is not None else ():
        match node:
            case ast.Assert(test=ast.Compare(left=left, ops=[ast.Eq() | ast.Is() | ast.In()], comparators=[right])):
                found += _sides(left, right)
            case ast.Assert(test=test):
                found.append((constants_in(test), frozenset({"True"})))
            case ast.Call(func=ast.Attribute(attr=attr), args=[first, second, *_]) if attr.startswith("assert"):
                found += _sides(first, second)
            case ast.Call(func=ast.Attribute(attr="parametrize"), args=[_, ast.List() | ast.Tuple() as rows, *_]):
                for row in rows.elts:
                    parts = (
                        row.elts
                        if isinstance(row, ast.Tuple | ast.List)
                        else row.args
                        if isinstance(row, ast.Call)
                        else [row]
                    )
                    values = frozenset(value for part in parts for value in (*constants_in(part), *values_of(part)))
                    found.append((values, values))
    for _, function in functions_in(tree.body) if tree is not None else ():
        found += _along(function)
    return tuple(found)


def _along(function: Function) -> list[tuple[frozenset[Value], frozenset[Value]]]:
    """Constants given on the lines before an assert, with what the assert expects."""
    given: set[Value] = set()
    found = []
    for statement in function.body:
        if isinstance(statement, ast.Assign | ast.Expr | ast.For | ast.With):
            given |= constants_in(statement)
        for node in walk(statement):
            if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare) and given:
                found.append((frozenset(given), frozenset(values_of(node.test.comparators[-1]))))
    return found


def _sides(left: ast.expr, right: ast.expr) -> list[tuple[frozenset[Value], frozenset[Value]]]:
    return [
        (
            constants_in(one),
            frozenset((*values_of(other), *values_of(getattr(other, "args", [None])[0] if _approx(other) else None))),
        )
        for one, other in ((left, right), (right, left))
        if not isinstance(one, ast.Constant)
    ]


def _approx(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and bool(node.args)


def values_of(node: ast.AST | None) -> tuple[Value, ...]:
    """A literal's value, written out; nothing for other expressions."""
    if node is None or not isinstance(node, ast.expr) or not is_literal(node):
        return ()
    return (_written(node),)


def _written(node: ast.expr) -> Value:
    try:
        return repr(ast.literal_eval(node))
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return ast.dump(node)


def is_literal(node: ast.expr) -> bool:
    """Whether an expression is written down whole: constants, and containers and signs around them; not too large."""
    kinds = (ast.Constant, ast.Tuple, ast.List, ast.Dict, ast.Set, ast.UnaryOp, ast.USub, ast.Load, ast.UAdd)
    nodes = walk(node)
    return len(nodes) <= _LITERAL_NODES and all(isinstance(one, kinds) for one in nodes)


def constants_in(node: ast.AST) -> frozenset[Value]:
    """All constants below a node, and the displays that they make up."""
    found: set[Value] = set()
    for one in walk(node):
        if isinstance(one, ast.Constant | ast.Tuple | ast.List | ast.Dict | ast.Set | ast.UnaryOp) and (
            value := values_of(one)
        ):
            found.update(value)
    return frozenset(found)
