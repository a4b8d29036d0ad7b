"""Functions in the text of a source file: where they are, what they say without docstrings, which of them a change
touches."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from patchgym.records import Record
from patchgym.tasks.overlap.changes import HunkText

_ALONE = re.compile(r"""(?:^|[:;])\s*[A-Za-z]{0,2}["']""", re.MULTILINE)  # no string stands alone without it
OUTSIDE = "<module>"
_SECTION = re.compile(r"\b(?:def|class|function|func|fn)\s+(\w+)")


class Function(Record):
    """One function that a change touches: ``path``, qualified ``name``, and its text ``before`` and ``after``, empty
    where it does not exist. What lies outside functions is named ``<module>``; of a file whose functions cannot be
    told, its hunks stand for them, named after what git wrote behind the ``@@``, in ``<...>``."""

    path: str
    name: str
    before: str = ""
    after: str = ""


def functions_in(source: str) -> dict[str, str] | None:
    """The text of every function of Python source by qualified name, decorators included; None where it does not
    parse. Of two functions with one name the last counts, as in Python."""
    read = _read(source)
    return dict(read.functions) if read is not None else None


def touched_functions(path: str, before: str, after: str, hunks: Sequence[HunkText]) -> list[Function]:
    """The functions of one file that differ between two versions of it in more than comments and whitespace, innermost
    only, in order of name; with what changes outside of any function as one more. ``hunks`` stand in where the file is
    no Python that parses."""
    reads = [_read(text) if path.endswith(".py") else None for text in (before, after)]
    if reads[0] is None or reads[1] is None:
        return hunk_functions(hunks)
    old, new = reads[0].functions, reads[1].functions
    differing = {name for name in old.keys() | new.keys() if _differ(old.get(name), new.get(name))}
    inner = [name for name in differing if not any(other.startswith(f"{name}.") for other in differing)]
    found = [
        Function(path=path, name=name, before=old.get(name, ""), after=new.get(name, "")) for name in sorted(inner)
    ]
    rest = reads[0].outside, reads[1].outside
    if rest[0] != rest[1]:
        kept = [set(side) for side in rest]
        sides = ("\n".join(line for line in rest[at] if line not in kept[1 - at]) for at in (0, 1))
        found.append(Function(path=path, name=OUTSIDE, before=next(sides), after=next(sides)))
    return found


def hunk_functions(hunks: Sequence[HunkText]) -> list[Function]:
    """The hunks themselves as functions: the old side with its context, and the new one."""
    found: dict[tuple[str, str], list[HunkText]] = {}
    for hunk in hunks:
        match = _SECTION.search(hunk.section)
        found.setdefault((hunk.path, f"<{match[1] if match else ''}>"), []).append(hunk)
    return [
        Function(
            path=path,
            name=name,
            before="\n".join(line for hunk in part for line in hunk.old),
            after="\n".join(line for hunk in part for line in hunk.new),
        )
        for (path, name), part in found.items()
    ]


def without_docstrings(source: str) -> str:
    """A function's text (at any indentation) without the docstrings in it; unchanged where it does not parse."""
    tree, shift = _block(source) if _ALONE.search(source) else None, int(source[:1].isspace())
    if tree is None:
        return source
    lines: list[str | None] = list(source.split("\n"))
    for text in _docstring_nodes(tree):
        first, last = text.lineno - 1 - shift, (text.end_lineno or text.lineno) - 1 - shift
        lines[first : last + 1] = [None] * (last + 1 - first)
    return "\n".join(line for line in lines if line is not None)


def docstrings(source: str) -> list[str]:
    """The docstrings of a function's text, its own first; none where it does not parse."""
    tree = _block(source)
    found = _docstring_nodes(tree) if tree is not None else []
    return [
        text.value.value for text in found if isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    ]


def _docstring_nodes(tree: ast.Module) -> list[ast.Expr]:
    """Strings that stand alone, in order of place: docstrings, and those used as comments."""
    found: list[ast.Expr] = []
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            found.append(node)
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):  # statements are only in these
            inner = getattr(node, name, None)
            if isinstance(inner, list):
                waiting += inner
    return sorted(found, key=lambda node: (node.lineno, node.col_offset))


@dataclass(frozen=True)
class _Read:
    """A source file: its functions, and its lines in no function without empty ones, comments and docstrings."""

    functions: dict[str, str]
    outside: tuple[str, ...]


@lru_cache(maxsize=64)  # one file's healthy version stands in many tasks
def _read(source: str) -> _Read | None:
    tree = _parsed(source)
    if tree is None:
        return None
    lines = source.split("\n")
    functions: dict[str, str] = {}
    left_out: set[int] = set()

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                name = f"{prefix}{child.name}"
                if not isinstance(child, ast.ClassDef):
                    first = min([child.lineno, *(decorator.lineno for decorator in child.decorator_list)])
                    functions[name] = "\n".join(lines[first - 1 : child.end_lineno])
                    left_out.update(range(first, (child.end_lineno or first) + 1))
                visit(child, f"{name}.")
            elif not isinstance(child, ast.expr):
                visit(child, prefix)

    visit(tree, "")
    for text in _docstring_nodes(tree):
        left_out.update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    kept = (line.strip() for number, line in enumerate(lines, start=1) if number not in left_out)
    return _Read(functions, tuple(line for line in kept if line and not line.startswith("#")))


def _differ(old: str | None, new: str | None) -> bool:
    """Whether two versions of a function differ as programs, docstrings aside."""
    return old != new and (old is None or new is None or _program(old) != _program(new))


def _program(source: str) -> str:
    tree = _block(source)
    if tree is None:
        return source
    for text in _docstring_nodes(tree):
        text.value = ast.Constant("")
    return ast.dump(tree)


def _block(source: str) -> ast.Module | None:
    """A function's text parsed, whatever its indentation; line numbers are one too high where it is indented."""
    return _parsed(f"if True:\n{source}") if source[:1].isspace() else _parsed(source)


def _parsed(source: str) -> ast.Module | None:
    try:
        return ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested beyond what the parser bears
        return None
