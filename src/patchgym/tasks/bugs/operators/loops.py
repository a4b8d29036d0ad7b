"""Operators on loops and comprehensions: where they begin and end, in which order, and what they leave out."""

from collections.abc import Iterator
from itertools import pairwise

import libcst as cst

from patchgym.tasks.bugs.operators.base import (
    Edit,
    Place,
    kept_together,
    looks_at,
    outer_text,
    plain_arguments,
    replace,
    token,
)


@looks_at(cst.Break, cst.Continue)
def loop_exit(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``break`` becomes ``continue`` and the other way round."""
    yield from token(node, {cst.Break: "continue", cst.Continue: "break"}, place)


@looks_at(cst.Call)
def range_bounds(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A range leaves out its first or its last number."""
    if not (isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "range"):
        return
    match plain_arguments(node):
        case [stop]:
            yield _into(node.args[0], f"1, {outer_text(stop, place)}", place)
            yield _into(node.args[0], f"{outer_text(stop, place)} - 1", place)
        case [start, stop, *_]:
            yield _into(node.args[0], f"{outer_text(start, place)} + 1", place)
            yield _into(node.args[1], f"{outer_text(stop, place)} - 1", place)
        case _:
            pass


@looks_at(cst.Call)
def enumerate_start(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """An ``enumerate`` counts from one more; where it was told a start, from 0."""
    match node:
        case cst.Call(func=cst.Name("enumerate"), args=[cst.Arg(star="") as only]):
            yield _into(only, f"{outer_text(only.value, place)}, 1", place)
        case cst.Call(func=cst.Name("enumerate"), args=[cst.Arg(star=""), cst.Arg(star="") as start]):
            yield _into(start, "0", place)
        case _:
            pass


@looks_at(cst.Call)
def iteration_order(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``reversed(x)`` and ``sorted(x)`` become ``x``."""
    match node:
        case cst.Call(func=cst.Name("reversed" | "sorted"), args=[cst.Arg(star="", keyword=None, value=value), *_]):
            if not isinstance(value, cst.GeneratorExp):
                yield replace(node, kept_together(value, place), place)
        case _:
            pass


@looks_at(cst.IndentedBlock)
def early_return(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """The ``return`` right behind a loop moves into it, so that the first round is the last."""
    if not isinstance(node, cst.IndentedBlock):
        return
    for loop, after in pairwise(node.body):
        match loop, after:
            case (
                (
                    cst.For(orelse=None, body=cst.IndentedBlock(body=[first, *_]))
                    | cst.While(orelse=None, body=cst.IndentedBlock(body=[first, *_]))
                ),
                cst.SimpleStatementLine(body=[cst.Return()]),
            ):
                yield Edit(place.line_start(after), place.start(after), place.indent(first))
            case _:
                pass


@looks_at(cst.While)
def loop_once(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """``while`` becomes ``if``: the loop runs once at the most."""
    if isinstance(node, cst.While) and node.orelse is None:
        jumps = _Jumps()
        node.body.visit(jumps)
        if not jumps.found:
            yield Edit(place.start(node), place.start(node) + len("while"), "if")


@looks_at(cst.CompFor)
def drop_filter(node: cst.CSTNode, place: Place) -> Iterator[Edit]:
    """A comprehension loses one of its conditions."""
    if isinstance(node, cst.CompFor):
        behind = place.outer(node.iter)[1]
        for condition in node.ifs:
            end = place.outer(condition.test)[1]
            yield Edit(behind, end, "")
            behind = end


class _Jumps(cst.CSTVisitor):
    """Finds ``break`` and ``continue``."""

    def __init__(self) -> None:
        super().__init__()
        self.found = False

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.found = self.found or isinstance(node, cst.Break | cst.Continue)
        return not self.found


def _into(argument: cst.Arg, text: str, place: Place) -> Edit:
    return Edit(*place.outer(argument.value), text)
