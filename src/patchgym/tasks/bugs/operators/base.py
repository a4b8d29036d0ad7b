"""What operators are made of: a place in a source file, edits of it, and the shapes that several operators share."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import libcst as cst
from libcst.metadata import CodeSpan

_ATOMS = (cst.Name, cst.Call, cst.Attribute, cst.Subscript)
_LOOSE = (cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.UnaryOperation, cst.IfExp, cst.Lambda)
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

    def line_start(self, node: cst.CSTNode) -> int:
        """Offset of the first byte of the line that a node begins on."""
        return self.source.rfind(b"\n", 0, self.start(node)) + 1

    def indent(self, node: cst.CSTNode) -> str:
        """What stands before a node on its line."""
        return self.source[self.line_start(node) : self.start(node)].decode()


class Edit(NamedTuple):
    """Replace the source's bytes from ``start`` to ``end`` by ``text``. None removes their whole lines."""

    start: int
    end: int
    text: str | None


Propose = Callable[[cst.CSTNode, Place], Iterator[Edit]]


@dataclass(frozen=True)
class Operator:
    """One way to break code: ``propose`` looks at a node of one of these ``kinds`` and proposes small edits of it."""

    name: str
    kinds: tuple[type[cst.CSTNode], ...]
    propose: Propose


def looks_at(*kinds: type[cst.CSTNode]) -> Callable[[Propose], Operator]:
    """Make an operator of a function that proposes edits of nodes of exactly these ``kinds``."""

    def made(propose: Propose) -> Operator:
        return Operator(propose.__name__, kinds, propose)

    return made


def replace(node: cst.CSTNode, text: str | None, place: Place) -> Edit:
    """A node's text replaced; None removes its lines."""
    return Edit(place.start(node), place.end(node), text)


def token(node: cst.CSTNode, table: Mapping[type[cst.CSTNode], str], place: Place) -> Iterator[Edit]:
    """A token replaced by what ``table`` has for its kind."""
    text = table.get(type(node))
    if text is not None:
        yield replace(node, text, place)


def swap(left: cst.BaseExpression, right: cst.BaseExpression, place: Place) -> Edit:
    """Two expressions, of which ``left`` comes first, change places with the parentheses around them."""
    (start, left_end), (right_start, end) = place.outer(left), place.outer(right)
    first, between, last = (
        place.source[begin:until].decode()
        for begin, until in ((start, left_end), (left_end, right_start), (right_start, end))
    )
    return Edit(start, end, last + between + first)


def outer_text(node: cst.BaseExpression, place: Place) -> str:
    """An expression's text with the parentheses around it."""
    start, end = place.outer(node)
    return place.source[start:end].decode()


def kept_together(node: cst.BaseExpression, place: Place) -> str:
    """An expression's text as it can stand anywhere: what binds loosely is put in parentheses."""
    text = outer_text(node, place)
    return f"({text})" if isinstance(node, _LOOSE) and not node.lpar else text


def negated(test: cst.BaseExpression, place: Place) -> str:
    """The text of the opposite condition."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return outer_text(test.expression, place)
    return f"not {place.text(test)}" if isinstance(test, _ATOMS) else f"not ({place.text(test)})"


def without_item(items: list[tuple[int, int]], at: int) -> tuple[int, int]:
    """The offsets to remove so that item ``at`` of a list written with commas goes, with one comma; ``items`` are the
    offsets of all, of which there are at least two."""
    if at + 1 < len(items):
        return items[at][0], items[at + 1][0]
    return items[at - 1][1], items[at][1]


def name_called(node: cst.CSTNode) -> str:
    """The name of what a call calls: a plain name, or the last part of an attribute; empty for anything else."""
    match node:
        case cst.Call(func=cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name))):
            return name
        case _:
            return ""


def plain_arguments(node: cst.Call) -> list[cst.BaseExpression] | None:
    """The arguments of a call that has positional ones alone; None where it has others."""
    if any(argument.star or argument.keyword for argument in node.args):
        return None
    return [argument.value for argument in node.args]
