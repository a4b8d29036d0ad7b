"""Planting one small bug in a source file.

The file is parsed by libcst, the edits of ``operators`` are collected function by function, and each is spliced into
the source's bytes, so that a mutant differs from its source in nothing else. Collecting is cheap; whether an edit makes
another program is found out for each where it is needed.
"""

import hashlib
from bisect import bisect_right
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from patchgym.errors import DataError
from patchgym.tasks.bugs.operators import OPERATORS, Edit, Operator, Place, operator_named
from patchgym.tasks.bugs.programs import says

_UNTOUCHED = (cst.Annotation, cst.Decorator, cst.Parameters, cst.Raise, cst.Assert)
_STUBS = frozenset({"overload", "abstractmethod"})
_HEADED = (cst.BaseCompoundStatement, cst.Else, cst.ExceptHandler, cst.ExceptStarHandler, cst.Finally, cst.MatchCase)
_STATEMENTS = (*_HEADED, cst.SimpleStatementLine)
_WHITESPACE = (
    cst.BaseParenthesizableWhitespace,
    cst.TrailingWhitespace,
    cst.EmptyLine,
    cst.Comma,
    cst.Dot,
    cst.Newline,
)
_SKIPPED = (*_WHITESPACE, *_UNTOUCHED)


@dataclass(frozen=True)
class Mutation:
    """One bug that can be planted.

    ``function`` is the qualified name of the innermost function around it, which spans ``function_lines`` lines;
    ``line`` counts from 1. ``lines`` are those on which the bug acts: the statement or the header of a block that it
    changes, whole; for a default, the function's body. The snippets are the source text at the edit before and after;
    ``start`` is the edit's byte offset. ``unit`` are the offsets of the statement or function that holds the edit.
    """

    operator: str
    line: int
    lines: range
    function: str
    function_lines: int
    old_snippet: str
    new_snippet: str
    start: int
    unit: tuple[int, int]

    @property
    def end(self) -> int:
        """The byte offset behind what the edit replaces."""
        return self.start + len(self.old_snippet.encode())


def plant(source: str, *planted: Mutation) -> str:
    """``source`` with these mutations of it, whose edits must not overlap."""
    data = source.encode()
    for each in sorted(planted, key=lambda found: found.start, reverse=True):
        data = data[: each.start] + each.new_snippet.encode() + data[each.end :]
    return data.decode()


def makes_bug(source: bytes, mutation: Mutation) -> bool:
    """Whether a mutation of ``source`` (in UTF-8) leaves a program, and another one. Only the statement or function
    that holds the edit is looked at: the rest is as it was."""
    start, end = mutation.unit
    after = source[start : mutation.start] + mutation.new_snippet.encode() + source[mutation.end : end]
    new = says(after)
    return new is not None and new != _known(source[start:end])


def proposals(source: str, operators: Collection[str] = (), *, max_function_lines: int = 0) -> list[Mutation]:
    """Every edit that ``operators`` (none: all) propose in ``source``, in order of place, then operator; only in
    functions of at most ``max_function_lines`` lines (0: any).

    Each lies inside one function, and no two give the same text. Some may leave no program, or the same one
    (``makes_bug``). Docstrings, annotations, decorators, ``raise`` and ``assert`` statements, ``if TYPE_CHECKING`` and
    code outside functions stay as they are.

    Raises:
        DataError: ``source`` does not parse, or there is no such operator.
    """
    chosen: list[Operator] = []
    for name in sorted(operators) or list(OPERATORS):
        operator = operator_named(name)
        if operator is None:
            raise DataError(f"There is no operator {name}", why=f"Operators: {', '.join(OPERATORS)}.")
        chosen.append(operator)
    try:
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    except (cst.ParserSyntaxError, RecursionError) as error:
        raise DataError("The source does not parse", why=str(error)) from error
    data = source.encode()
    walk = _Walk(data, wrapper.resolve(ByteSpanPositionProvider), chosen, max_function_lines)
    wrapper.module.visit(walk)
    distinct = {_result(data, *each): each[0] for each in reversed(walk.found)}  # of equal mutants the first counts
    return sorted(distinct.values(), key=lambda found: (found.line, found.operator, found.start, found.new_snippet))


def _result(source: bytes, found: Mutation, function: tuple[int, int]) -> tuple[int, bytes]:
    """A short name of what a function's text becomes."""
    text = source[function[0] : found.start] + found.new_snippet.encode() + source[found.end : function[1]]
    return function[0], hashlib.blake2b(text, digest_size=16).digest()


class _Walk(cst.CSTVisitor):
    """Visits every node inside a function and gathers the edits that are proposed there."""

    def __init__(
        self, source: bytes, spans: Mapping[cst.CSTNode, CodeSpan], operators: Collection[Operator], longest: int
    ) -> None:
        super().__init__()
        self.found: list[tuple[Mutation, tuple[int, int]]] = []
        self._source, self._spans, self._longest = source, spans, longest
        self._proposers: dict[type[cst.CSTNode], list[Operator]] = {}
        for operator in operators:
            for kind in operator.kinds:
                self._proposers.setdefault(kind, []).append(operator)
        self._breaks = [at for at, byte in enumerate(source) if byte == 10]
        self._names: list[str] = []
        self._functions: list[_Function] = []
        self._statements: list[_Statement] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if _is_skipped(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        if isinstance(node, _HEADED):
            self._statements.append(_Statement(self._spans[node].start, self._body(node) - 1, False))
        elif isinstance(node, cst.SimpleStatementLine):
            self._statements.append(_Statement(self._spans[node].start, self._end(node), True))
        if isinstance(node, cst.FunctionDef):
            self._functions.append(self._function(node))
            if _is_stub(node):
                return False
        if self._functions:
            for operator in self._proposers.get(type(node), ()):
                for edit in operator.propose(node, self._functions[-1].place):
                    self._keep(operator.name, node, edit)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if _is_skipped(original_node):
            return
        if isinstance(original_node, _STATEMENTS):
            self._statements.pop()
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()
        if isinstance(original_node, cst.FunctionDef):
            self._functions.pop()

    def _end(self, node: cst.CSTNode) -> int:
        return self._spans[node].start + self._spans[node].length

    def _body(self, node: cst.CSTNode) -> int:
        """Where the body below a header begins, from the start of its line."""
        body = next((child for child in node.children if isinstance(child, cst.BaseSuite)), node)
        if not isinstance(body, cst.IndentedBlock) or not body.body:
            return self._end(node)
        return self._source.rfind(b"\n", 0, self._spans[body].start) + 1

    def _function(self, node: cst.FunctionDef) -> "_Function":
        head = self._source.rfind(b"\n", 0, self._spans[node].start) + 1
        end = self._end(node)
        place = Place(_parameters(node), self._source, self._spans)
        lines = self._source[head:end].rstrip().count(b"\n") + 1
        body = self._line(self._spans[node.body].start), self._line(end - 1)
        return _Function(".".join(self._names), (head, end), lines, range(body[0], body[1] + 1), place)

    def _line(self, offset: int) -> int:
        return bisect_right(self._breaks, offset - 1) + 1

    def _keep(self, operator: str, node: cst.CSTNode, edit: Edit) -> None:
        source, function = self._source, self._functions[-1]
        if self._longest and function.lines > self._longest:
            return
        start, end = edit.start, edit.end
        if edit.text is None:  # whole lines: from the indentation to behind the line's end
            start = source.rfind(b"\n", 0, start) + 1
            end = source.find(b"\n", end) + 1 or len(source)
        around = self._statements[-1]
        inside = around.start <= start and end <= around.end
        if isinstance(node, cst.FunctionDef) and inside:
            lines = function.body
        elif inside:
            lines = self._lines(around.start, around.end)
        else:
            lines = self._lines(start, end)
        whole = function.span[0], max(function.span[1], end)
        head = source.rfind(b"\n", 0, around.start) + 1
        found = Mutation(
            operator=operator,
            line=self._line(start),
            lines=lines,
            function=function.name,
            function_lines=function.lines,
            old_snippet=source[start:end].decode(),
            new_snippet=edit.text or "",
            start=start,
            unit=(head, around.end) if inside and around.simple else whole,
        )
        self.found.append((found, whole))

    def _lines(self, start: int, end: int) -> range:
        return range(self._line(start), self._line(max(start, end - 1)) + 1)


@dataclass(frozen=True)
class _Function:
    """A function under way: its qualified name, the offsets of its text, its length and the lines of its body."""

    name: str
    span: tuple[int, int]
    lines: int
    body: range
    place: Place


class _Statement(NamedTuple):
    """The offsets of a simple statement, or of the header of a compound one."""

    start: int
    end: int
    simple: bool


@lru_cache(maxsize=64)
def _known(unit: bytes) -> str | None:
    return says(unit)


def _parameters(function: cst.FunctionDef) -> tuple[str, ...]:
    found = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
    return tuple(sorted({parameter.name.value for parameter in found} - {"self", "cls"}))


def _is_skipped(node: cst.CSTNode) -> bool:
    """Whether a node and all below it stay as they are."""
    if isinstance(node, cst.Expr):
        return _is_text(node)
    return isinstance(node, _SKIPPED) or (isinstance(node, cst.If) and _is_typing_branch(node))


def _is_text(node: cst.CSTNode) -> bool:
    """Docstrings, and strings that stand alone as comments."""
    match node:
        case cst.Expr(value=cst.SimpleString() | cst.ConcatenatedString()):
            return True
        case _:
            return False


def _is_typing_branch(node: cst.CSTNode) -> bool:
    match node:
        case cst.If(test=cst.Name(value="TYPE_CHECKING") | cst.Attribute(attr=cst.Name(value="TYPE_CHECKING"))):
            return True
        case _:
            return False


def _is_stub(function: cst.FunctionDef) -> bool:
    """Whether a decorator says that this function's body does not run."""
    for decorator in function.decorators:
        match decorator.decorator:
            case cst.Name(value=name) | cst.Attribute(attr=cst.Name(value=name)) if name in _STUBS:
                return True
            case _:
                pass
    return False
