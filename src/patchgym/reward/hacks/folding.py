"""Values that are written down, however they are spelled: ``90 * 60``, ``"a" + "b"``, a name for either.

Nothing of an attempt is run: only arithmetic and joining of constants is done here, on small values.
"""

import ast
import math
from collections.abc import Iterable, Mapping

from patchgym.reward.hacks.trees import walk

Leaf = str
"""One constant, written so that ``1`` and ``1.0`` are alike, and texts whatever their case and outer blanks."""

_DEPTH = 30
_LARGEST = 10**15
_LONGEST = 2000
_MEMBERS = 400
_UNKNOWN = object()
_CONVERTERS = frozenset({"int", "float", "str", "tuple", "list", "set", "frozenset", "dict", "bytes", "approx"})
Constants = Mapping[str, object]


def fold(node: ast.AST | None, constants: Constants, depth: int = 0) -> object:
    """The value of an expression that is made of constants; ``unknown`` tells whether there is none."""
    if node is None or depth > _DEPTH:
        return _UNKNOWN
    match node:
        case ast.Constant(value=written_down):
            return _UNKNOWN if isinstance(written_down, str | bytes) and len(written_down) > _LONGEST else written_down
        case ast.Name(id=name):
            return constants.get(name, _UNKNOWN)
        case ast.UnaryOp(op=ast.USub() | ast.UAdd() as op, operand=operand):
            value = fold(operand, constants, depth + 1)
            if isinstance(value, int | float):
                return -value if isinstance(op, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            sides = fold(left, constants, depth + 1), fold(right, constants, depth + 1)
            return _computed(sides[0], op, sides[1])
        case ast.Tuple(elts=elts) | ast.List(elts=elts) | ast.Set(elts=elts) if len(elts) <= _MEMBERS:
            members = [fold(one, constants, depth + 1) for one in elts]
            return tuple(members) if _UNKNOWN not in members else _UNKNOWN
        case ast.JoinedStr(values=values):
            shown = [one.value if isinstance(one, ast.FormattedValue) else one for one in values]
            parts = [fold(one, constants, depth + 1) for one in shown]
            if all(isinstance(one, str | int) for one in parts):
                return "".join(map(str, parts))[:_LONGEST]
        case ast.Call(func=ast.Attribute(value=glue, attr="join"), args=[ast.List() | ast.Tuple() as inner]):
            joined = fold(inner, constants, depth + 1)
            text = fold(glue, constants, depth + 1)
            if isinstance(joined, tuple) and isinstance(text, str) and all(isinstance(one, str) for one in joined):
                return text.join(joined)[:_LONGEST]
    return _UNKNOWN


def unknown(value: object) -> bool:
    """Whether ``fold`` found no value."""
    return value is _UNKNOWN


def _computed(left: object, op: ast.operator, right: object) -> object:
    if isinstance(left, str) and isinstance(right, str) and isinstance(op, ast.Add):
        return (left + right)[:_LONGEST]
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return _UNKNOWN
    if max(abs(left), abs(right)) > _LARGEST:
        return _UNKNOWN
    try:
        match op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case ast.Div():
                return left / right
            case ast.FloorDiv():
                return left // right
            case ast.Mod():
                return left % right
            case ast.Pow() if abs(right) <= 40 and abs(left) <= 1000:
                return left**right
    except (ArithmeticError, ValueError):
        return _UNKNOWN
    return _UNKNOWN


def leaf(value: object) -> Leaf:
    """One constant as a leaf."""
    if isinstance(value, str):
        return repr(value.strip().casefold())
    if isinstance(value, int) and abs(value) > _LARGEST:
        return hex(value)
    if isinstance(value, float) and value.is_integer() and abs(value) < _LARGEST:
        return repr(int(value))
    return repr(value)


def leaves_of(value: object) -> frozenset[Leaf]:
    """The leaves of a value that was folded."""
    if isinstance(value, tuple):
        return frozenset().union(*(leaves_of(one) for one in value))
    return frozenset({leaf(value)})


def leaves_in(node: ast.AST, constants: Constants) -> frozenset[Leaf]:
    """All constants below a node, worked out as far as they can be."""
    value = fold(node, constants)
    if not unknown(value):
        return leaves_of(value)
    found: set[Leaf] = set()
    for one in ast.iter_child_nodes(node):
        if isinstance(one, ast.expr | ast.keyword | ast.comprehension | ast.stmt | ast.pattern | ast.match_case):
            found |= leaves_in(one, constants)
    return frozenset(found)


def written(node: ast.AST | None, constants: Constants) -> frozenset[Leaf] | None:
    """The constants of an answer that depends on nothing else: literals, and literals handed to a class or a
    conversion. None where it depends on a name that is not known."""
    if node is None:
        return None
    value = fold(node, constants)
    if not unknown(value):
        return leaves_of(value)
    match node:
        case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
            return _all(parts, constants)
        case ast.Dict(keys=keys, values=values):
            return _all([key for key in keys if key is not None] + values, constants) if None not in keys else None
        case ast.Call(func=func, args=args, keywords=keywords) if _makes(func):
            return _all([*args, *(keyword.value for keyword in keywords)], constants)
        case ast.UnaryOp(operand=operand):
            return written(operand, constants)
    return None


def _makes(func: ast.expr) -> bool:
    """Whether what is called makes a value: a class by its name, or a conversion."""
    name = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    return name in _CONVERTERS or name.lstrip("_")[:1].isupper()


def _all(parts: list[ast.expr], constants: Constants) -> frozenset[Leaf] | None:
    found = [written(part, constants) for part in parts]
    known = [one for one in found if one is not None]
    return frozenset().union(*known) if len(known) == len(found) else None


def constants_of(nodes: Iterable[ast.AST]) -> dict[str, object]:
    """Names that are given one constant, and nothing else, among some nodes."""
    found: dict[str, object] = {}
    for node in nodes:
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                folded = fold(value, found)
                found[name] = folded if name not in found else _UNKNOWN
            case ast.AugAssign(target=ast.Name(id=name)) | ast.NamedExpr(target=ast.Name(id=name)):
                found[name] = _UNKNOWN
            case ast.For(target=target) | ast.comprehension(target=target):
                found.update({one.id: _UNKNOWN for one in walk(target) if isinstance(one, ast.Name)})
            case ast.arg(arg=name):
                found[name] = _UNKNOWN
    return {name: value for name, value in found.items() if not unknown(value)}


_COMMON = frozenset(
    {16, 24, 32, 60, 64, 100, 128, 180, 255, 256, 360, 365, 400, 404, 500, 512, 1000, 1024, 3600, 86400}
)


def weight(written_leaf: Leaf) -> float:
    """How telling a constant is: 0 for what stands everywhere, up to 2 for a text that nobody writes by chance."""
    if written_leaf[:1] in ("'", '"') or written_leaf[:2] in ("b'", 'b"'):
        text = written_leaf.lstrip("b")[1:-1]
        if len(text) < 2:
            return 0.0
        if text.replace("_", "").isalpha():
            return 0.5 if len(text) < 4 else 1.0
        odd = any(not c.isalnum() and c not in "-_. " for c in text)
        if len(text) < 3:
            return 0.5
        return 2.0 if (odd and any(c.isdigit() for c in text)) or (" " in text and len(text) > 5) else 1.5
    try:
        number = float(written_leaf)
    except ValueError:
        return 0.5 if written_leaf.startswith("raises ") else 0.0
    if number in (0, 1, -1, 2) or not math.isfinite(number):
        return 0.0
    if abs(number) <= 12 or number in _COMMON:
        return 0.5
    return 1.5 if abs(number) >= 1000 or (number != int(number) and len(written_leaf) > 4) else 1.0


def weigh(found: Iterable[Leaf]) -> float:
    """The sum of some constants' weights."""
    return sum(weight(one) for one in found)
