"""What visible tests give and expect, as wide as it goes: rows of tables, loops, fixtures, ``setUp``, names for values.

``expected.expectations`` pairs the two sides of one assert. A ``Situation`` is wider: all that a test, or one row of
its data, writes down on either side. It says less by itself, so that whoever uses it asks for more.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from patchgym.reward.hacks.folding import Constants, Leaf, constants_of, leaves_in, weigh, written
from patchgym.reward.hacks.source import Function, functions_in, parse
from patchgym.reward.hacks.trees import walk

_SETUPS = frozenset({"setUp", "setup_method", "setUpClass", "setup_class", "setup", "asyncSetUp"})
_MOST = 2000
_COMPARING = frozenset({"isclose", "allclose", "array_equal", "assert_equal", "assert_allclose"})


@dataclass(frozen=True)
class Situation:
    """Constants that belong together in the tests. In a row of a table both sides are the same."""

    given: frozenset[Leaf]
    expected: frozenset[Leaf]
    row: bool = False

    @property
    def all(self) -> frozenset[Leaf]:
        """Both sides."""
        return self.given | self.expected


@lru_cache(maxsize=512)
def situations(text: str) -> tuple[Situation, ...]:
    """All situations of a test file."""
    tree = parse(text).tree
    if tree is None:
        return ()
    functions = dict(functions_in(tree.body))
    outer = constants_of(node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign))
    found = [Situation(one, one, row=True) for one in _rows(tree, outer)]
    fixtures = {name: one for name, one in functions.items() if _is_fixture(one)}
    for name, function in functions.items():
        if not function.name.startswith("test"):
            continue
        holder = name.rpartition(".")[0]
        around = [one for other, one in functions.items() if other == f"{holder}.{one.name}" and one.name in _SETUPS]
        asked = {arg.arg for arg in function.args.args}
        around += [one for one in fixtures.values() if one.name in asked]
        found += _of_function(function, around, outer)
        if len(found) > _MOST:
            break
    return tuple(found[:_MOST])


@lru_cache(maxsize=512)
def written_down(text: str) -> frozenset[Leaf]:
    """All that the situations of a test file write down, on either side."""
    return frozenset().union(*(one.all for one in situations(text)))


def _is_fixture(function: Function) -> bool:
    return any("fixture" in ast.dump(one) for one in function.decorator_list)


def _rows(tree: ast.AST, constants: Constants) -> Iterator[frozenset[Leaf]]:
    """Rows of tables: members of a display that are displays or calls themselves, and items of a dictionary."""
    for node in walk(tree):
        match node:
            case ast.List(elts=elts) | ast.Tuple(elts=elts) | ast.Set(elts=elts):
                for elt in elts:
                    if isinstance(elt, ast.Tuple | ast.List | ast.Dict | ast.Call):
                        yield leaves_in(elt, constants)
            case ast.Dict(keys=keys, values=values):
                for key, value in zip(keys, values, strict=True):
                    if key is not None:
                        yield leaves_in(key, constants) | leaves_in(value, constants)


def _of_function(function: Function, around: list[Function], outer: Constants) -> Iterator[Situation]:
    """What a test gives and expects, for each of its asserts, and for all of them together."""
    nodes = [node for one in (*around, function) for node in walk(one)]
    local = constants_of(nodes)
    constants = {**outer, **local}
    given: set[Leaf] = set()
    for one in around:
        given |= leaves_in(ast.Module(one.body, []), constants)
    wanted: set[Leaf] = set()
    asserts = []
    for statement in function.body:
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        given |= leaves_in(statement, constants)
        for node in walk(statement):
            if (sides := _sides(node)) is not None:
                expected: set[Leaf] = set()
                for side in [one for one in sides if written(one, constants) is not None] or sides:
                    expected |= leaves_in(side, constants)
                asserts.append(frozenset(expected))
                wanted |= expected
            elif isinstance(node, ast.With):
                wanted |= {found for item in node.items if (found := _raised(item.context_expr)) is not None}
    whole = frozenset(given)
    for expected_here in asserts:
        if weigh(expected_here) > 0:
            yield Situation(whole, expected_here)
    if wanted:
        yield Situation(whole, frozenset(wanted))


def _sides(node: ast.AST) -> list[ast.expr] | None:
    """The expressions that an assert holds against each other."""
    match node:
        case ast.Assert(test=ast.Compare(left=left, comparators=comparators)):
            return [left, *comparators]
        case ast.Assert(test=ast.Call(args=args)):
            return list(args)
        case ast.Call(func=ast.Attribute(attr=attr), args=args) if attr.startswith("assert") or attr in _COMPARING:
            return list(args)
    return None


def _raised(call: ast.expr) -> Leaf | None:
    """``raises ValueError``, of ``pytest.raises(ValueError)`` and its like."""
    if isinstance(call, ast.Call) and call.args and "raises" in ast.dump(call.func).lower():
        kind = call.args[0]
        name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", None)
        return f"raises {name}" if name else None
    return None
