"""Operators on statements: returned wrongly, left out, swapped, moved out of their block."""

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from patchgym.tasks.bugs.operators.base import Edit, Place, looks_at, negated, replace, swap
from patchgym.tasks.bugs.operators.calls import calls_super

_EXITS = (cst.Return, cst.Raise, cst.Continue, cst.Break)


@looks_at(cst.Return)
def wrong_return(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A truth value is returned inverted, a pair swapped, anything else as None."""
    match node:
        case cst.Return(
            value=cst.Comparison() | cst.BooleanOperation() | cst.UnaryOperation(operator=cst.Not()) as value
        ):
            yield replace(value, negated(value, place), place)
        case cst.Return(value=cst.Tuple(elements=[cst.Element() as left, cst.Element() as right])):
            yield swap(left.value, right.value, place)
        case cst.Return(value=cst.BaseExpression() as value) if place.text(value) != "None":
            yield replace(value, "None", place)
        case _:
            pass


@looks_at(cst.IndentedBlock)
def remove_guard(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """An ``if`` without ``else`` that ends in return, raise, continue or break is removed."""
    if not isinstance(node, cst.IndentedBlock) or len(node.body) < 2:
        return
    for statement in node.body:
        match statement:
            case cst.If(orelse=None, body=cst.IndentedBlock(body=[*_, cst.SimpleStatementLine(body=[*_, last])])):
                if isinstance(last, _EXITS):
                    yield replace(statement, None, place)
            case _:
                pass


@looks_at(cst.IndentedBlock)
def drop_statement(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A statement that is there for its effect is left out: a call, an augmented assignment, an assignment to a
    parameter, an attribute or an item."""
    for statement, only in _simple(node):
        if _has_effect(only, place):
            yield _left_out(statement, node, place)


@looks_at(cst.IndentedBlock)
def drop_yield(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A generator leaves out one of the places where it yields."""
    for statement, only in _simple(node):
        match only:
            case cst.Expr(value=cst.Yield()):
                yield _left_out(statement, node, place)
            case _:
                pass


@looks_at(cst.IndentedBlock)
def swap_statements(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Two neighbouring statements change places where one of them changes what the other uses."""
    if not isinstance(node, cst.IndentedBlock):
        return
    for left, right in pairwise(node.body):
        match left, right:
            case cst.SimpleStatementLine(body=[first]), cst.SimpleStatementLine(body=[second]):
                if _depend(first, second, place) and not right.leading_lines:
                    start, end = place.start(left), place.end(right)
                    between = place.source[place.end(left) : place.start(right)].decode()
                    yield Edit(start, end, place.text(right) + between + place.text(left))
            case _:
                pass


@looks_at(cst.If)
def dedent_statement(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The last statement of an ``if`` moves out of it, so that it runs in any case."""
    match node:
        case cst.If(
            orelse=None, body=cst.IndentedBlock(body=[_, *_, cst.SimpleStatementLine(body=[only]) as last])
        ) if place.text(node).startswith("if") and not place.indent(node).strip():
            if not isinstance(only, _EXITS):
                yield Edit(place.line_start(last), place.start(last), place.indent(node))
        case _:
            pass


def _simple(node: cst.CSTNode) -> Iterator[tuple[cst.SimpleStatementLine, cst.BaseSmallStatement]]:
    """The lines of a block that hold one simple statement each, with that."""
    if isinstance(node, cst.IndentedBlock):
        for statement in node.body:
            match statement:
                case cst.SimpleStatementLine(body=[only]):
                    yield statement, only
                case _:
                    pass


def _left_out(statement: cst.SimpleStatementLine, block: cst.CSTNode, place: Place) -> Edit:
    alone = isinstance(block, cst.IndentedBlock) and len(block.body) == 1
    return replace(statement, "pass" if alone else None, place)


def _has_effect(statement: cst.CSTNode, place: Place) -> bool:
    match statement:
        case cst.Expr(value=cst.Call() as call):
            return not calls_super(call)
        case cst.AugAssign():
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Attribute() | cst.Subscript())]):
            return True
        case cst.Assign(targets=[cst.AssignTarget(target=cst.Name(value=name))]):
            return name in place.parameters
        case _:
            return False


def _depend(first: cst.BaseSmallStatement, second: cst.BaseSmallStatement, place: Place) -> bool:
    """Whether one of two statements changes something that the other mentions, and the swapped pair can run at all: a
    plain assignment to a local name is not moved behind its use."""
    if not (_has_effect(first, place) and _has_effect(second, place)):
        return False
    changed, mentioned = [_changes(one) for one in (first, second)], [_mentions(one) for one in (first, second)]
    return bool(changed[0] & mentioned[1] or changed[1] & mentioned[0])


def _changes(statement: cst.BaseSmallStatement) -> set[str]:
    """The name at the root of what a statement assigns to or calls a method of."""
    match statement:
        case cst.AugAssign(target=target) | cst.Assign(targets=[cst.AssignTarget(target=target)]):
            return _root(target)
        case cst.Expr(value=cst.Call(func=cst.Attribute(value=value))):
            return _root(value)
        case _:
            return set()


def _root(node: cst.CSTNode) -> set[str]:
    """``x`` of ``x.a[0]``; of ``self.a.b`` the attribute, for all of an object is too much."""
    match node:
        case cst.Attribute(value=cst.Name("self" | "cls"), attr=cst.Name(name)) | cst.Name(name):
            return {name}
        case cst.Attribute(value=value) | cst.Subscript(value=value) | cst.Call(func=value):
            return _root(value)
        case _:
            return set()


def _mentions(statement: cst.BaseSmallStatement) -> set[str]:
    names = _Names()
    statement.visit(names)
    return names.found - {"self", "cls"}


class _Names(cst.CSTVisitor):
    """Gathers every name of a piece of code."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, cst.Name):
            self.found.add(node.value)
        return True
