"""How much a test demands: the strength of its asserts.

Strengths: 4 for equality with a value, 3 for closeness, a certain exception or a truth about all members, 2 for order,
membership and the truth of a call, 1 for a kind or for being there at all, 0 for what cannot fail. An assert whose
failure is caught, or that is never reached, has 0. Both styles, ``assert`` and unittest's methods, come to the same.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.source import FUNCTIONS, Function
from patchgym.reward.hacks.trees import children, walk

_EQUAL = re.compile(
    r"assert(?:_?(?:equals?|dict_?equal|list_?equal|tuple_?equal|set_?equal|sequence_?equal|"
    r"count_?equal|"
    r"multi_?line_?equal|array_equal|frame_equal|series_equal))$",
    re.IGNORECASE,
)
_CLOSE = re.compile(r"assert_?(?:almost_?equals?|allclose|array_almost_equal|is$|is_?none$)", re.IGNORECASE)
_MEMBER = re.compile(
    r"assert_?(?:in|not_?in|less\w*|greater\w*|regex\w*|not_?equal|is_?not$|raises_?regex)$", re.IGNORECASE
)
_KIND = re.compile(r"assert_?(?:is_?instance|not_?is_?instance|is_?not_?none|called|has_attr)$", re.IGNORECASE)
_RAISING = re.compile(r"(?:pytest\.(?:raises|warns|deprecated_call)|(?:self\.)?assert(?:Raises|Warns|Logs)\w*)$")
_BROAD = frozenset({"Exception", "BaseException"})
_ANY_ASSERT = re.compile(
    r"^_?(?:assert|check|verify|expect|ensure|should|fail|compare|validate|raises|warns)", re.IGNORECASE
)
_OF_EQUALITY = re.compile(r"eq(?:$|_|ual)|hash|same|identi|compar|reflexiv", re.IGNORECASE)
_TOLERANCES = frozenset({"abs", "rel", "rtol", "atol", "delta"})


@dataclass(frozen=True)
class Check:
    """One assert. ``key`` says what is checked (without the expected value where it is an equality), ``expected`` with
    what; ``tolerance`` how far off it may be."""

    node: ast.AST
    strength: int
    key: str
    expected: str = ""
    tolerance: float = 0.0
    loose: bool = False
    """Whether it stands where it cannot make the test fail."""


def checks_of(function: Function, names: Names) -> list[Check]:
    """Every assert of a test, in order."""
    return list(_block(function.body, names, dead=False))


def _block(body: list[ast.stmt], names: Names, *, dead: bool) -> Iterator[Check]:
    for statement in body:
        yield from _statement(statement, names, dead)
        if isinstance(statement, ast.Return | ast.Raise) or _skips(statement, names) or _may_leave(statement):
            dead = True


def _may_leave(statement: ast.stmt) -> bool:
    """Whether the test may be over after a statement: a ``return`` somewhere in it, which no failed assert needs."""
    queue: list[ast.AST] = [statement]
    for node in queue:
        if isinstance(node, ast.Return):
            return True
        queue += [one for one in children(node) if isinstance(one, ast.stmt | ast.ExceptHandler | ast.match_case)]
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            return False
    return False


def _skips(statement: ast.stmt, names: Names) -> bool:
    call = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(call, ast.Call) and (names.dotted(call.func) or "") in (
        "pytest.skip",
        "pytest.xfail",
        "self.skipTest",
    )


def _statement(node: ast.stmt, names: Names, dead: bool) -> Iterator[Check]:
    match node:
        case ast.Assert(test=test):
            yield _check(node, test, names, dead)
        case ast.Expr(value=ast.Call() as call):
            if (found := _called(call, names, dead)) is not None:
                yield found
        case ast.With(items=items, body=body) | ast.AsyncWith(items=items, body=body):
            for item in items:
                if isinstance(item.context_expr, ast.Call) and (found := _called(item.context_expr, names, dead)):
                    yield found
            hides = any(_hides(item.context_expr, names) for item in items)
            yield from _block(body, names, dead=dead or hides)
        case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
            hides = any(_catches(handler, names) for handler in handlers)
            yield from _block(body, names, dead=dead or hides)
            for handler in handlers:
                yield from _block(handler.body, names, dead=dead)
            yield from _block([*orelse, *final], names, dead=dead)
        case ast.If(test=test, body=body, orelse=orelse):
            never = isinstance(test, ast.Constant) and not test.value
            yield from _block(body, names, dead=dead or never)
            yield from _block(orelse, names, dead=dead or (isinstance(test, ast.Constant) and bool(test.value)))
        case ast.For(iter=over, body=body, orelse=orelse):
            empty = isinstance(over, ast.List | ast.Tuple) and not over.elts
            empty |= isinstance(over, ast.Subscript) and isinstance(over.slice, ast.Slice)
            yield from _block(body, names, dead=dead or empty)
            yield from _block(orelse, names, dead=dead)
        case ast.While(test=test, body=body):
            yield from _block(body, names, dead=dead or not isinstance(test, ast.Constant) or not test.value)


def _hides(call: ast.expr, names: Names) -> bool:
    if not isinstance(call, ast.Call):
        return False
    name = names.dotted(call.func) or ""
    if name != "contextlib.suppress" and not _RAISING.search(name):
        return False
    return any(names.dotted(arg) in ("BaseException", "AssertionError", "Exception") for arg in call.args[:3])


def _catches(handler: ast.ExceptHandler, names: Names) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    broad = handler.type is None or any(names.dotted(kind) in (*_BROAD, "AssertionError") for kind in kinds)
    inner = [one for statement in handler.body for one in walk(statement)]
    fails = any(isinstance(n, ast.Raise | ast.Assert) for n in inner) or any(
        isinstance(n, ast.Call) and (names.dotted(n.func) or "").endswith("fail") for n in inner
    )
    return broad and not fails


def _check(node: ast.AST, test: ast.expr, names: Names, dead: bool) -> Check:
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        strength = strength_of(test, names)
        left, right = test.left, test.comparators[0]
        if isinstance(left, ast.Constant) and not isinstance(right, ast.Constant):
            left, right = right, left
        return _equality(node, left, right, names, 0 if dead else strength, dead)
    return Check(node, 0 if dead else strength_of(test, names), ast.dump(test), loose=dead)


def _equality(node: ast.AST, left: ast.expr, right: ast.expr, names: Names, strength: int, dead: bool) -> Check:
    tolerance = 0.0
    if isinstance(right, ast.Call) and (names.dotted(right.func) or "").endswith("approx") and right.args:
        tolerance = max([1e-6, *(_number(k.value) for k in right.keywords if k.arg in _TOLERANCES)])
        right = right.args[0]
        floats = any(isinstance(one, ast.Constant) and isinstance(one.value, float) for one in walk(right))
        strength = strength if floats and tolerance <= 1e-6 else min(strength, 3)
    return Check(node, strength, ast.dump(left), ast.dump(right), tolerance, dead)


def _number(node: ast.expr) -> float:
    value = node.value if isinstance(node, ast.Constant) else None
    return float(value) if isinstance(value, int | float) else 1e-6


def _called(call: ast.Call, names: Names, dead: bool) -> Check | None:
    name = names.dotted(call.func) or (call.func.attr if isinstance(call.func, ast.Attribute) else "")
    last = name.rsplit(".", 1)[-1]
    args = call.args
    if _RAISING.search(name):
        kind = names.dotted(args[0]) if args else None
        strength = 1 if kind in _BROAD or kind is None else 3
        match = any(keyword.arg == "match" for keyword in call.keywords) or "Regex" in last
        return Check(call, 0 if dead else strength + match, f"raises {kind}", loose=dead)
    if last in ("assertTrue", "assert_", "failUnless", "assertFalse", "failIf") and args:
        test = args[0] if last not in ("assertFalse", "failIf") else ast.UnaryOp(ast.Not(), args[0])
        return _check(call, test, names, dead)
    if _EQUAL.search(last) and len(args) >= 2:
        left, right = (args[1], args[0]) if isinstance(args[0], ast.Constant) else (args[0], args[1])
        strength = _compared(left, ast.Eq(), right)
        return _equality(call, left, right, names, 0 if dead else strength, dead)
    for pattern, strength in ((_CLOSE, 3), (_KIND, 1), (_MEMBER, 2)):
        if pattern.search(last):
            wide = [_number(k.value) for k in call.keywords if k.arg in _TOLERANCES]
            return Check(
                call,
                0 if dead else strength,
                last + ast.dump(args[0]) if args else last,
                tolerance=max(wide, default=0.0),
                loose=dead,
            )
    if last.startswith(("assert_called", "assert_has_calls", "assert_any_call", "assert_not_called", "assert_awaited")):
        return Check(call, 0 if dead else 3 if call.args or call.keywords else 2, ast.dump(call.func), loose=dead)
    if _ANY_ASSERT.match(last):
        return Check(call, 0 if dead else 2, ast.dump(call), loose=dead)
    return None


def strength_of(test: ast.expr, names: Names) -> int:
    """How much the truth of an expression demands."""
    match test:
        case ast.Constant() | ast.JoinedStr():
            return 0
        case ast.Tuple(elts=elts) if elts:
            return 0
        case ast.BoolOp(op=ast.And(), values=values):
            return max(strength_of(value, names) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            opposed = {ast.dump(v.operand) for v in values if isinstance(v, ast.UnaryOp) and isinstance(v.op, ast.Not)}
            if opposed & {ast.dump(value) for value in values}:
                return 0
            return min(strength_of(value, names) for value in values)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return 0 if isinstance(operand, ast.Constant) else min(2, max(1, strength_of(operand, names)))
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            return _compared(left, ops[0], comparators[0])
        case ast.Call(func=func, args=args):
            name = names.dotted(func) or ""
            if name in ("isinstance", "issubclass", "hasattr", "callable"):
                vacuous = len(args) > 1 and isinstance(args[1], ast.Name) and args[1].id == "object"
                return 0 if vacuous else 1
            if name in ("all", "any") and args and isinstance(args[0], ast.GeneratorExp | ast.ListComp):
                return max(1, strength_of(args[0].elt, names) - 1)
            if name in ("bool", "len") and args and isinstance(args[0], ast.Constant):
                return 0
            return 2
        case ast.Lambda():
            return 0
    return 1


def _compared(left: ast.expr, op: ast.cmpop, right: ast.expr) -> int:
    same = ast.dump(left) == ast.dump(right)
    if isinstance(left, ast.Constant) and isinstance(right, ast.Constant):
        return 0
    if same:
        calls = any(isinstance(one, ast.Call) for one in walk(left))  # the same call twice says that it is steady
        return int(calls) if isinstance(op, ast.Eq | ast.Is | ast.LtE | ast.GtE) else 2
    if isinstance(op, ast.Eq):
        return min(_kept(left), _kept(right))
    if isinstance(op, ast.Is):
        return 3
    if isinstance(op, ast.IsNot | ast.NotEq):
        return 1
    zero = isinstance(right, ast.Constant) and right.value == 0 and not isinstance(right.value, bool)
    if isinstance(op, ast.GtE) and zero:
        length = isinstance(left, ast.Call) and isinstance(left.func, ast.Name) and left.func.id == "len"
        return 0 if length else 1
    return 2


def _kept(side: ast.expr) -> int:
    """How much of a value an equality still looks at: 4 for all of it, less for its order, length, or a part."""
    if isinstance(side, ast.Subscript) and isinstance(side.slice, ast.Slice):
        return 2
    if isinstance(side, ast.Call) and isinstance(side.func, ast.Name):
        return {"sorted": 3, "set": 3, "frozenset": 3, "round": 3, "abs": 3, "len": 2, "type": 1, "bool": 1}.get(
            side.func.id, 4
        )
    return 4


def rows_of(function: Function, names: Names) -> list[str]:
    """The rows of a test's ``parametrize`` decorators, as dumps; one empty row where it has none."""
    found: list[str] = []
    for decorator in function.decorator_list:
        if isinstance(decorator, ast.Call) and (names.dotted(decorator.func) or "").endswith(
            ("parametrize", ".expand")
        ):
            rows = decorator.args[-1] if decorator.args else None
            if isinstance(rows, ast.List | ast.Tuple | ast.Set):
                found += [ast.dump(row) for row in rows.elts]
            elif rows is not None:
                found.append(ast.dump(rows))
    return found


def tautologies(function: Function, names: Names) -> Iterator[ast.AST]:
    """Asserts that cannot fail, whatever the code does."""
    found = checks_of(function, names)
    of_equality = _OF_EQUALITY.search(function.name) is not None and any(check.strength for check in found)
    for check in found:
        test = check.node.test if isinstance(check.node, ast.Assert) else None
        if of_equality and isinstance(test, ast.Compare) and isinstance(test.left, ast.Name):
            continue  # ``a == a`` says something of a class that compares
        if check.strength == 0 and not check.loose:
            unknown = isinstance(test, ast.Constant) and not test.value
            if not unknown:
                yield check.node


def has_check(function: Function, names: Names) -> bool:
    """Whether a test can fail by anything but an error of what it calls."""
    if checks_of(function, names):
        return True
    for node in walk(function):
        if isinstance(node, ast.Assert | ast.Raise):
            return True
        if isinstance(node, FUNCTIONS) and node is not function and _mentioned(function, node.name):
            return True
        if isinstance(node, ast.Call):
            name = names.dotted(node.func) or (node.func.attr if isinstance(node.func, ast.Attribute) else "")
            if _ANY_ASSERT.match(name.rsplit(".", 1)[-1]) or name.endswith(
                (".fail", "run_test", "runpytest", "benchmark")
            ):
                return True
    return False


def _mentioned(function: Function, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in walk(function))
