"""Operators on exception handling: what is caught, what is done about it, what is done in any case."""

from collections.abc import Iterator

import libcst as cst

from patchgym.tasks.bugs.operators.base import Edit, Place, looks_at, replace

_WIDEST = frozenset({"Exception", "BaseException"})


@looks_at(cst.ExceptHandler)
def narrow_except(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """Of several exceptions that a handler catches, only the first is left."""
    match node:
        case cst.ExceptHandler(type=cst.Tuple(elements=[first, _, *_]) as caught):
            yield replace(caught, place.text(first.value), place)
        case _:
            pass


@looks_at(cst.ExceptHandler)
def wide_except(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A handler catches every exception."""
    match node:
        case cst.ExceptHandler(type=cst.BaseExpression() as caught) if place.text(caught) not in _WIDEST:
            yield Edit(*place.outer(caught), "Exception")
        case _:
            pass


@looks_at(cst.ExceptHandler)
def swallow(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A handler catches and does nothing more."""
    if isinstance(node, cst.ExceptHandler):
        yield from _emptied(node.body, place)


@looks_at(cst.ExceptHandler)
def drop_reraise(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A handler no longer raises in its end, and goes on."""
    match node:
        case cst.ExceptHandler(
            body=cst.IndentedBlock(body=[*others, cst.SimpleStatementLine(body=[cst.Raise()]) as raised])
        ):
            yield replace(raised, None if others else "pass", place)
        case _:
            pass


@looks_at(cst.Try)
def drop_handler(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """One of several handlers is left out."""
    if isinstance(node, cst.Try) and len(node.handlers) > 1:
        for handler in node.handlers:
            yield replace(handler, None, place)


@looks_at(cst.Finally)
def drop_finally(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """What is done in any case is left out."""
    if isinstance(node, cst.Finally):
        yield from _emptied(node.body, place)


def _emptied(body: cst.BaseSuite, place: Place) -> Iterator[Edit]:
    """``pass`` in place of a block's statements."""
    if isinstance(body, cst.IndentedBlock) and body.body:
        yield Edit(place.start(body.body[0]), place.end(body.body[-1]), "pass")
