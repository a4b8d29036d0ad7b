"""Planting one small bug in a source file.

The file is parsed by libcst, the edits of ``operators.py`` are collected function by function, and each is spliced into
the source's bytes, so that a mutant differs from its source in nothing else.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, CodeSpan, MetadataWrapper

from patchgym.errors import DataError
from patchgym.tasks.bugs.operators import OPERATORS, Edit, Place

_UNTOUCHED = (cst.Annotation, cst.Decorator, cst.Parameters, cst.Raise, cst.Assert)
_STUBS = frozenset({"overload", "abstractmethod"})


@dataclass(frozen=True)
class Mutation:
    """One planted bug. ``line`` counts from 1; ``function`` is the qualified name of the innermost function around it,
    which spans ``function_lines`` lines; the snippets are the source text at the edit before and after."""

    operator: str
    line: int
    function: str
    function_lines: int
    old_snippet: str
    new_snippet: str
    new_source: str


def mutations(source: str, operators: Collection[str] = (), *, max_function_lines: int = 0) -> list[Mutation]:
    """Every bug that ``operators`` (none: all) can plant in ``source``, in order of place, then operator; only in
    functions of at most ``max_function_lines`` lines (0: any).

    Each result parses and differs from the source as a program, inside one function. Docstrings, annotations,
    decorators, ``raise`` and ``assert`` statements, ``if TYPE_CHECKING`` and code outside functions stay as they are.

    Raises:
        DataError: ``source`` does not parse, or there is no such operator.
    """
    unknown = sorted(set(operators) - OPERATORS.keys())
    if unknown:
        raise DataError(f"There is no operator {unknown[0]}", why=f"Operators: {', '.join(OPERATORS)}.")
    try:
        wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    except cst.ParserSyntaxError as error:
        raise DataError("The source does not parse", why=str(error)) from error
    spans = wrapper.resolve(ByteSpanPositionProvider)
    walk = _Walk(source.encode(), spans, sorted(operators) or list(OPERATORS), max_function_lines)
    wrapper.module.visit(walk)
    distinct = {found.new_source: found for found in reversed(walk.found)}  # of equal mutants the first counts
    kept = [found for found in walk.found if distinct[found.new_source] is found]
    return sorted(kept, key=lambda found: (found.line, found.operator, found.new_snippet))


class _Walk(cst.CSTVisitor):
    """Visits every node inside a function and keeps the edits that make a different program."""

    def __init__(
        self, source: bytes, spans: Mapping[cst.CSTNode, CodeSpan], operators: list[str], longest: int
    ) -> None:
        super().__init__()
        self._longest = longest
        self.found: list[Mutation] = []
        self._source, self._spans = source, spans
        self._operators = {name: OPERATORS[name] for name in operators}
        self._names: list[str] = []
        self._functions: list[tuple[str, cst.FunctionDef, Place]] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        if isinstance(node, _UNTOUCHED) or _is_text(node) or _is_typing_branch(node):
            return False
        if isinstance(node, cst.FunctionDef | cst.ClassDef):
            self._names.append(node.name.value)
        if isinstance(node, cst.FunctionDef):
            place = Place(_parameters(node), self._source, self._spans)
            self._functions.append((".".join(self._names), node, place))
            if _is_stub(node):
                return False
        if self._functions:
            name, function, place = self._functions[-1]
            for operator, propose in self._operators.items():
                for edit in propose(node, place):
                    self.found += self._mutant(operator, name, function, edit)
        return True

    def on_leave(self, original_node: cst.CSTNode) -> None:
        if isinstance(original_node, cst.FunctionDef | cst.ClassDef):
            self._names.pop()
        if isinstance(original_node, cst.FunctionDef):
            self._functions.pop()

    def _mutant(self, operator: str, name: str, function: cst.FunctionDef, edit: Edit) -> Iterator[Mutation]:
        """The edit's mutant, if it is another program that parses."""
        source, place = self._source, self._functions[-1][2]
        start, end = edit.start, edit.end
        new = (edit.text or "").encode()
        if edit.text is None:  # whole lines: from the indentation to behind the line's end
            start = source.rfind(b"\n", 0, start) + 1
            end = source.find(b"\n", end) + 1 or len(source)
        head = source.rfind(b"\n", 0, place.start(function)) + 1
        tail = max(place.end(function), end)
        before, after = source[head:tail], source[head:start] + new + source[end:tail]
        lines = before.rstrip().count(b"\n") + 1
        if (self._longest and lines > self._longest) or _program(after) in (None, _program(before)):
            return
        yield Mutation(
            operator=operator,
            line=source.count(b"\n", 0, start) + 1,
            function=name,
            function_lines=lines,
            old_snippet=source[start:end].decode(),
            new_snippet=new.decode(),
            new_source=(source[:start] + new + source[end:]).decode(),
        )


@lru_cache(maxsize=64)
def _program(function: bytes) -> str | None:
    """What a function's source (with its indentation) says to Python; None where it is no Python."""
    try:
        return ast.dump(ast.parse(b"if True:\n" + function if function[:1].isspace() else function))
    except SyntaxError:
        return None


def _parameters(function: cst.FunctionDef) -> tuple[str, ...]:
    found = (*function.params.posonly_params, *function.params.params, *function.params.kwonly_params)
    return tuple(sorted({parameter.name.value for parameter in found} - {"self", "cls"}))


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
