"""Ways to break code: each operator looks at one syntax node of a function and proposes small edits of it.

An operator is a plain function ``(node, place) -> edits``. To add one, write it and enter it in ``OPERATORS``; what it
must not touch (docstrings, annotations, decorators, raise and assert statements) is kept from it by the walk in
``mutation.py``.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import libcst as cst
from libcst.metadata import CodeSpan

_BOUNDARY: dict[type[cst.CSTNode], str] = {
    cst.LessThan: "<=",
    cst.LessThanEqual: "<",
    cst.GreaterThan: ">=",
    cst.GreaterThanEqual: ">",
}
_OPPOSITE: dict[type[cst.CSTNode], str] = {
    cst.Equal: "!=",
    cst.NotEqual: "==",
    cst.Is: "is not",
    cst.IsNot: "is",
    cst.In: "not in",
    cst.NotIn: "in",
}
_ARITHMETIC: dict[type[cst.CSTNode], str] = {
    cst.Add: "-",
    cst.Subtract: "+",
    cst.Multiply: "+",
    cst.Divide: "*",
    cst.FloorDivide: "/",
    cst.Modulo: "//",
    cst.Power: "*",
    cst.BitAnd: "|",
    cst.BitOr: "&",
    cst.LeftShift: ">>",
    cst.RightShift: "<<",
    cst.AddAssign: "-=",
    cst.SubtractAssign: "+=",
    cst.MultiplyAssign: "+=",
    cst.DivideAssign: "*=",
    cst.FloorDivideAssign: "/=",
}
_EXITS = (cst.Return, cst.Raise, cst.Continue, cst.Break)
_ATOMS = (cst.Name, cst.Call, cst.Attribute, cst.Subscript)
_EMPTY = cst.Module([])


@dataclass(frozen=True)
class Place:
    """The function around a node: its parameters (without ``self`` and ``cls``), and where each node lies in the
    source. A node's span leaves out the parentheses around it."""

    parameters: tuple[str, ...]
    source: bytes
    spans: Mapping[cst.CSTNode, CodeSpan]

    def start(self, node: cst.CSTNode) -> int:
        """Offset of a node's first byte."""
        return self.spans[node].start

    def end(self, node: cst.CSTNode) -> int:
        """Offset behind a node's last byte."""
        return self.spans[node].start + self.spans[node].length

    def outer(self, node: cst.BaseExpression) -> tuple[int, int]:
        """A node's first offset and the one behind it, with the parentheses around it."""
        before, after = (
            sum(len(_EMPTY.code_for_node(side).encode()) for side in sides) for sides in (node.lpar, node.rpar)
        )
        return self.start(node) - before, self.end(node) + after

    def text(self, node: cst.CSTNode | None) -> str:
        """A node's source text; empty for None."""
        return self.source[self.start(node) : self.end(node)].decode() if node is not None else ""


class Edit(NamedTuple):
    """Replace the source's bytes from ``start`` to ``end`` by ``text``. None removes their whole lines."""

    start: int
    end: int
    text: str | None


Operator = Callable[[cst.CSTNode, Place], Iterator[Edit]]


def boundary(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``<`` becomes ``<=``, and so on."""
    yield from _token(node, _BOUNDARY, place)


def comparison(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``==`` becomes ``!=``, ``in`` becomes ``not in``, and so on."""
    yield from _token(node, _OPPOSITE, place)


def negate_condition(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The condition of an ``if``, ``while`` or conditional expression is inverted."""
    if isinstance(node, cst.If | cst.While | cst.IfExp):
        yield _replace(node.test, _negated(node.test, place), place)


def bool_operator(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``and`` becomes ``or`` and the other way round."""
    yield from _token(node, {cst.And: "or", cst.Or: "and"}, place)


def arithmetic(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """An arithmetic or bitwise operator becomes another. Concatenation of literal strings is left alone."""
    strings = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
    if isinstance(node, cst.BinaryOperation) and not isinstance(node.left, strings):
        if not isinstance(node.right, strings):
            yield from _token(node.operator, _ARITHMETIC, place)
    elif isinstance(node, cst.AugAssign) and not isinstance(node.value, strings):
        yield from _token(node.operator, _ARITHMETIC, place)


def constant(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A whole number is off by one; ``True`` becomes ``False``."""
    yield from _off(node, place)


def wrong_return(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A truth value is returned inverted, a pair swapped, anything else as None."""
    match node:
        case cst.Return(
            value=cst.Comparison() | cst.BooleanOperation() | cst.UnaryOperation(operator=cst.Not()) as value
        ):
            yield _replace(value, _negated(value, place), place)
        case cst.Return(value=cst.Tuple(elements=[cst.Element() as left, cst.Element() as right])):
            yield _swap(left.value, right.value, place)
        case cst.Return(value=cst.BaseExpression() as value) if place.text(value) != "None":
            yield _replace(value, "None", place)
        case _:
            pass


def remove_guard(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """An ``if`` without ``else`` that ends in return, raise, continue or break is removed."""
    if not isinstance(node, cst.IndentedBlock) or len(node.body) < 2:
        return
    for statement in node.body:
        match statement:
            case cst.If(orelse=None, body=cst.IndentedBlock(body=[*_, cst.SimpleStatementLine(body=[*_, last])])):
                if isinstance(last, _EXITS):
                    yield _replace(statement, None, place)
            case _:
                pass


def drop_statement(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A statement that is there for its effect is left out: a call, an augmented assignment, an assignment to a
    parameter, an attribute or an item."""
    if not isinstance(node, cst.IndentedBlock):
        return
    for statement in node.body:
        match statement:
            case cst.SimpleStatementLine(body=[only]) if _has_effect(only, place):
                yield _replace(statement, None if len(node.body) > 1 else "pass", place)
            case _:
                pass


def swap_arguments(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Two neighbouring positional arguments of a call change places."""
    if isinstance(node, cst.Call):
        for left, right in pairwise(node.args):
            if not (left.star or right.star or left.keyword or right.keyword):
                yield _swap(left.value, right.value, place)


def wrong_variable(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A variable is replaced by a parameter of the function: the next after it, or the first."""
    found: list[cst.CSTNode | None] = []
    match node:
        case (
            cst.Arg(star="", value=value)
            | cst.Return(value=value)
            | cst.Subscript(value=value)
            | cst.Index(value=value)
        ):
            found = [value]
        case cst.BinaryOperation(left=left, right=right) | cst.BooleanOperation(left=left, right=right):
            found = [left, right]
        case cst.Comparison(left=left, comparisons=comparisons):
            found = [left, *(target.comparator for target in comparisons)]
        case _:
            pass
    for name in found:
        if isinstance(name, cst.Name):
            others = [other for other in place.parameters if other != name.value]
            later = [other for other in place.parameters if other > name.value]
            if others and name.value not in ("None", "True", "False", "self", "cls"):
                yield _replace(name, (later or others)[0], place)


def default_argument(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A parameter's default is another number, truth value or string."""
    if isinstance(node, cst.FunctionDef):
        for parameter in (*node.params.params, *node.params.kwonly_params):
            if parameter.default is not None:
                yield from _off(parameter.default, place)
                yield from _shorter(parameter.default, place)


def string(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A short string loses its last character, or has it twice."""
    yield from _shorter(node, place)


def slice_edit(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A slice loses one of its ends; the first item becomes the last."""
    match node:
        case cst.Slice(lower=lower, upper=upper, step=None):
            if lower is not None:
                yield _replace(node, f":{place.text(upper)}", place)
            if upper is not None:
                yield _replace(node, f"{place.text(lower)}:", place)
        case cst.Index(value=cst.Integer(value="0") as value):
            yield _replace(value, "-1", place)
        case cst.Index(value=cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer(value="1")) as last):
            yield _replace(last, "0", place)
        case _:
            pass


def swap_branches(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The two values of a conditional expression change places."""
    if isinstance(node, cst.IfExp):
        yield _swap(node.body, node.orelse, place)


def loop_exit(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``break`` becomes ``continue`` and the other way round."""
    yield from _token(node, {cst.Break: "continue", cst.Continue: "break"}, place)


def narrow_except(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Of several exceptions that a handler catches, only the first is left."""
    match node:
        case cst.ExceptHandler(type=cst.Tuple(elements=[first, _, *_]) as caught):
            yield _replace(caught, place.text(first.value), place)
        case _:
            pass


OPERATORS: Mapping[str, Operator] = {
    operator.__name__: operator
    for operator in (
        arithmetic,
        bool_operator,
        boundary,
        comparison,
        constant,
        default_argument,
        drop_statement,
        loop_exit,
        narrow_except,
        negate_condition,
        remove_guard,
        slice_edit,
        string,
        swap_arguments,
        swap_branches,
        wrong_return,
        wrong_variable,
    )
}


def _token(node: cst.CSTNode, table: Mapping[type[cst.CSTNode], str], place: Place) -> Iterator[Edit]:
    text = table.get(type(node))
    if text is not None:
        yield _replace(node, text, place)


def _replace(node: cst.CSTNode, text: str | None, place: Place) -> Edit:
    return Edit(place.start(node), place.end(node), text)


def _swap(left: cst.BaseExpression, right: cst.BaseExpression, place: Place) -> Edit:
    (start, left_end), (right_start, end) = place.outer(left), place.outer(right)
    first, between, last = (
        place.source[begin:until].decode()
        for begin, until in ((start, left_end), (left_end, right_start), (right_start, end))
    )
    return Edit(start, end, last + between + first)


def _negated(test: cst.BaseExpression, place: Place) -> str:
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return place.text(test.expression)
    return f"not {place.text(test)}" if isinstance(test, _ATOMS) else f"not ({place.text(test)})"


def _off(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    match node:
        case cst.Integer(value=digits) if digits.isdecimal():
            yield _replace(node, str(int(digits) + 1), place)
            if int(digits) > 0:
                yield _replace(node, str(int(digits) - 1), place)
        case cst.Name(value="True" | "False" as value):
            yield _replace(node, "False" if value == "True" else "True", place)
        case _:
            pass


def _shorter(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    if not isinstance(node, cst.SimpleString) or node.prefix not in ("", "r") or len(node.quote) != 1:
        return
    inner = node.raw_value
    if inner and "\\" not in inner:
        changed = inner[:-1] if len(inner) > 1 else inner * 2
        yield _replace(node, f"{node.prefix}{node.quote}{changed}{node.quote}", place)


def _has_effect(statement: cst.CSTNode, place: Place) -> bool:
    match statement:
        case cst.AugAssign() | cst.Expr(value=cst.Call()):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Attribute() | cst.Subscript())]):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return name in place.parameters
        case _:
            return False
