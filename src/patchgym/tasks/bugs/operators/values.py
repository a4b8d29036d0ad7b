"""Operators on values: numbers, strings, slices, variables, arithmetic, assignments, copies."""

from collections.abc import Iterator

import libcst as cst

from patchgym.tasks.bugs.operators.base import (
    Edit,
    Place,
    kept_together,
    looks_at,
    name_called,
    outer_text,
    replace,
    swap,
    token,
)

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
_ORDERED = (cst.Subtract, cst.Divide, cst.FloorDivide, cst.Modulo, cst.Power, cst.LeftShift, cst.RightShift)
_STRINGS = (cst.SimpleString, cst.FormattedString, cst.ConcatenatedString)
_COPIERS = frozenset({"copy", "deepcopy"})
_COPIES = _COPIERS | {"list", "dict", "set", "OrderedDict", "bytearray"}


@looks_at(cst.BinaryOperation, cst.AugAssign)
def arithmetic(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """An arithmetic or bitwise operator becomes another. Concatenation of literal strings is left alone."""
    if isinstance(node, cst.BinaryOperation) and not isinstance(node.left, _STRINGS):
        if not isinstance(node.right, _STRINGS):
            yield from token(node.operator, _ARITHMETIC, place)
    elif isinstance(node, cst.AugAssign) and not isinstance(node.value, _STRINGS):
        yield from token(node.operator, _ARITHMETIC, place)


@looks_at(cst.BinaryOperation)
def swap_operands(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The two sides of an operator whose order counts change places; so do those of a concatenation with a string."""
    if not isinstance(node, cst.BinaryOperation):
        return
    strings = isinstance(node.left, _STRINGS), isinstance(node.right, _STRINGS)
    joined = isinstance(node.operator, cst.Add) and any(strings)
    formatted = isinstance(node.operator, cst.Modulo) and strings[0]
    if joined or (isinstance(node.operator, _ORDERED) and not formatted):
        yield swap(node.left, node.right, place)


@looks_at(cst.Integer, cst.Name)
def constant(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A whole number is off by one; ``True`` becomes ``False``."""
    yield from _off(node, place)


@looks_at(cst.Call)
def length(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A length is off by one."""
    match node:
        case cst.Call(func=cst.Name("len"), args=[_]):
            yield replace(node, f"({place.text(node)} - 1)", place)
            yield replace(node, f"({place.text(node)} + 1)", place)
        case _:
            pass


@looks_at(cst.FunctionDef)
def default_argument(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A parameter's default is another number, truth value or string."""
    if isinstance(node, cst.FunctionDef):
        for parameter in (*node.params.params, *node.params.kwonly_params):
            if parameter.default is not None:
                yield from _off(parameter.default, place)
                yield from _shorter(parameter.default, place)


@looks_at(cst.SimpleString)
def string(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A short string loses its last character, or has it twice."""
    yield from _shorter(node, place)


@looks_at(cst.FormattedStringExpression)
def format_piece(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A piece of an f-string loses its conversion (``!r``) or its format."""
    if isinstance(node, cst.FormattedStringExpression) and node.equal is None:
        _, behind = place.outer(node.expression)
        if node.conversion is not None or node.format_spec is not None:
            yield Edit(behind, place.end(node) - 1, "")


@looks_at(cst.Slice, cst.Index)
def slice_edit(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A slice loses one of its ends; the first item becomes the last."""
    match node:
        case cst.Slice(lower=lower, upper=upper, step=None):
            if lower is not None:
                yield replace(node, f":{place.text(upper)}", place)
            if upper is not None:
                yield replace(node, f"{place.text(lower)}:", place)
        case cst.Index(value=cst.Integer(value="0") as value):
            yield replace(value, "-1", place)
        case cst.Index(value=cst.UnaryOperation(operator=cst.Minus(), expression=cst.Integer(value="1")) as last):
            yield replace(last, "0", place)
        case _:
            pass


@looks_at(cst.Slice)
def slice_step(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A slice loses its step: ``[::-1]`` and ``[::2]`` become ``[::1]``."""
    match node:
        case cst.Slice(step=cst.BaseExpression() as step):
            yield Edit(*place.outer(step), "1")
        case _:
            pass


@looks_at(cst.Arg, cst.Return, cst.Subscript, cst.Index, cst.BinaryOperation, cst.BooleanOperation, cst.Comparison)
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
                yield replace(name, (later or others)[0], place)


@looks_at(cst.AugAssign)
def plain_assignment(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``x += y`` becomes ``x = y``: what was there before is lost."""
    if isinstance(node, cst.AugAssign):
        yield replace(node.operator, "=", place)


@looks_at(cst.AssignTarget, cst.For, cst.CompFor)
def swap_targets(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Two neighbouring names that are unpacked into change places."""
    match node:
        case (
            cst.AssignTarget(target=cst.Tuple(elements=elements))
            | cst.For(target=cst.Tuple(elements=elements))
            | cst.CompFor(target=cst.Tuple(elements=elements))
        ):
            plain = [element.value for element in elements if isinstance(element, cst.Element)]
            if len(plain) == len(elements) > 1:
                yield swap(plain[0], plain[1], place)
                if len(plain) > 2:
                    yield swap(plain[-2], plain[-1], place)
        case _:
            pass


@looks_at(cst.Call, cst.Subscript)
def drop_copy(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A copy is no longer made (``list(x)``, ``x.copy()``, ``x[:]`` become ``x``), so that the caller and the callee
    share what one of them changes."""
    match node:
        case cst.Subscript(
            value=value, slice=[cst.SubscriptElement(slice=cst.Slice(lower=None, upper=None, step=None))]
        ):
            yield replace(node, outer_text(value, place), place)
        case cst.Call(func=cst.Attribute(value=value, attr=cst.Name("copy")), args=[]):
            yield replace(node, outer_text(value, place), place)
        case cst.Call(func=func, args=[cst.Arg(star="", keyword=None, value=value)]):
            names = _COPIES if isinstance(func, cst.Name) else _COPIERS
            if name_called(node) in names and not isinstance(value, cst.GeneratorExp):
                yield replace(node, kept_together(value, place), place)
        case _:
            pass


def _off(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    match node:
        case cst.Integer(value=digits) if digits.isdecimal():
            yield replace(node, str(int(digits) + 1), place)
            if int(digits) > 0:
                yield replace(node, str(int(digits) - 1), place)
        case cst.Name(value="True" | "False" as value):
            yield replace(node, "False" if value == "True" else "True", place)
        case _:
            pass


def _shorter(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    if not isinstance(node, cst.SimpleString) or node.prefix not in ("", "r") or len(node.quote) != 1:
        return
    inner = node.raw_value
    if inner and "\\" not in inner:
        changed = inner[:-1] if len(inner) > 1 else inner * 2
        yield replace(node, f"{node.prefix}{node.quote}{changed}{node.quote}", place)
