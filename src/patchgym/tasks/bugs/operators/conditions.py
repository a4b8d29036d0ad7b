"""Operators on conditions: comparisons, ``and`` and ``or``, truth values, branches."""

from collections.abc import Iterator

import libcst as cst

from patchgym.tasks.bugs.operators.base import (
    Edit,
    Place,
    looks_at,
    name_called,
    negated,
    outer_text,
    replace,
    swap,
    token,
)

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


@looks_at(*_BOUNDARY)
def boundary(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``<`` becomes ``<=``, and so on."""
    yield from token(node, _BOUNDARY, place)


@looks_at(*_OPPOSITE)
def comparison(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``==`` becomes ``!=``, ``in`` becomes ``not in``, and so on."""
    yield from token(node, _OPPOSITE, place)


@looks_at(cst.If, cst.While, cst.IfExp)
def negate_condition(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The condition of an ``if``, ``while`` or conditional expression is inverted."""
    if isinstance(node, cst.If | cst.While | cst.IfExp):
        yield replace(node.test, negated(node.test, place), place)


@looks_at(cst.And, cst.Or)
def bool_operator(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``and`` becomes ``or`` and the other way round."""
    yield from token(node, {cst.And: "or", cst.Or: "and"}, place)


@looks_at(cst.BooleanOperation)
def drop_condition(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Of two conditions joined by ``and`` or ``or``, one is left."""
    if isinstance(node, cst.BooleanOperation):
        yield replace(node, outer_text(node.left, place), place)
        yield replace(node, outer_text(node.right, place), place)


@looks_at(cst.Comparison)
def drop_comparison(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Of a chain of comparisons (``a < b < c``) one end is left out."""
    match node:
        case cst.Comparison(comparisons=[first, *_, last]):
            start, _ = place.outer(first.comparator)
            _, before_last = place.outer(node.comparisons[-2].comparator)
            yield Edit(place.start(node), start, "")
            yield Edit(before_last, place.outer(last.comparator)[1], "")
        case _:
            pass


@looks_at(cst.UnaryOperation)
def drop_not(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``not x`` becomes ``x``."""
    match node:
        case cst.UnaryOperation(operator=cst.Not(), expression=inner):
            yield replace(node, outer_text(inner, place), place)
        case _:
            pass


@looks_at(cst.Comparison)
def none_check(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``x is None`` becomes ``not x``, and ``x is not None`` becomes ``x``: other empty values go the same way."""
    match node:
        case cst.Comparison(left=left, comparisons=[cst.ComparisonTarget(operator=how, comparator=cst.Name("None"))]):
            text = outer_text(left, place)
            if isinstance(how, cst.Is):
                yield replace(node, f"(not {text})", place)
            elif isinstance(how, cst.IsNot):
                yield replace(node, f"{text}", place)
        case _:
            pass


@looks_at(cst.Call)
def narrow_isinstance(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Of several classes that an ``isinstance`` or ``issubclass`` asks for, only one is left."""
    match node:
        case cst.Call(args=[_, cst.Arg(value=cst.Tuple(elements=[first, *_, last]) as classes)]):
            if name_called(node) in ("isinstance", "issubclass"):
                start, end = place.outer(classes)
                for kept in (first, last):
                    yield Edit(start, end, place.text(kept.value))
        case _:
            pass


@looks_at(cst.Return)
def bool_return(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``return True`` becomes ``return False`` and the other way round."""
    match node:
        case cst.Return(value=cst.Name("True" | "False") as value):
            yield replace(value, "False" if value.value == "True" else "True", place)
        case _:
            pass


@looks_at(cst.IfExp)
def swap_branches(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The two values of a conditional expression change places."""
    if isinstance(node, cst.IfExp):
        yield swap(node.body, node.orelse, place)


@looks_at(cst.If)
def elif_to_if(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``elif`` becomes ``if``: what follows an earlier branch runs as well."""
    if isinstance(node, cst.If) and place.text(node).startswith("elif"):
        yield Edit(place.start(node), place.start(node) + 2, "")


@looks_at(cst.If, cst.For, cst.While)
def drop_else(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The ``else`` of an ``if`` or a loop is left out."""
    match node:
        case (
            cst.If(orelse=cst.Else() as orelse)
            | cst.For(orelse=cst.Else() as orelse)
            | cst.While(orelse=cst.Else() as orelse)
        ):
            yield replace(orelse, None, place)
        case _:
            pass
