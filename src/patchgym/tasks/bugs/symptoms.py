"""What went wrong in a failing test, as its short pytest traceback shows it, without looking at the source's own lines.

Only the test's statement and pytest's explanation are read: the lines of source files that a traceback quotes may be
those of the bug.
"""

import ast
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from patchgym.tasks.bugs.programs import parsed

SymptomKind = Literal["value", "raised", "silent", "check"]

_FRAME = re.compile(r"^(\S+\.py):\d+: in (.+)$")
_ADDRESS = re.compile(r"(?: object)? at 0x[0-9a-fA-F]+")
_PLACE = re.compile(r"(?<=\.py):\d+|\bline \d+(?:, column \d+)?|\bcolumn \d+")
_RAISED = re.compile(r"^((?:[A-Za-z_]\w*\.)*[A-Z]\w*)(?::\s*(.*))?$")
_SILENT = (re.compile(r"DID NOT RAISE (?:<class ')?([\w.]+)"), re.compile(r"\b([\w.]+) not raised\b"))
_CHARS = 160
_TESTING = frozenset({"pytest", "unittest", "mock"})
_BUILT_IN = frozenset(
    {"len", "list", "tuple", "dict", "set", "sorted", "str", "repr", "next", "iter", "all", "any", "sum", "isinstance"}
    | {"bool", "int", "float", "bytes", "type", "hasattr", "getattr", "frozenset", "max", "min", "abs", "print", "open"}
    | {"reversed", "enumerate", "range", "zip", "map", "filter", "id", "hash", "callable", "vars", "dir"}
)


@dataclass(frozen=True)
class Symptom:
    """One failing test, told without its name.

    ``value``: something came out as ``got`` and not as ``expected``; ``raised``: the exception ``error`` came;
    ``silent``: the exception ``error`` did not come; ``check``: a condition did not hold, as ``got`` says. ``name`` is
    what the test exercised (a dotted name), ``call`` how, where that can be said without the test's variables. Texts
    are empty where the traceback does not say.
    """

    kind: SymptomKind
    name: str = ""
    call: str = ""
    expected: str = ""
    got: str = ""
    error: str = ""


def symptom_of(
    traceback: str, is_source: Callable[[str], bool], *, names: Collection[str] = (), exercised: str = ""
) -> Symptom | None:
    """Read a short pytest traceback. None where it explains nothing.

    ``is_source`` says which paths are the package's own code; ``names`` are those of its functions, classes and
    modules, so that a test's call of them can be told from its other calls (without them any call counts);
    ``exercised`` is the name to tell where the test's statement shows none.
    """
    told = _explanation(traceback)
    if not told:
        return None
    statement = _test_statement(traceback, is_source)
    found = next(_calls(statement, names), None) if statement is not None else None
    name, call = (_name(found, names), _text(found, names)) if found is not None else ("", "")
    name = name or exercised
    for pattern in _SILENT:
        missing = pattern.search(told[0])
        if missing:
            return Symptom("silent", name, call, error=_short(missing[1]))
    compared = _compared(told, statement)
    if compared is not None:
        return Symptom("value", name, call, expected=_short(compared[1]), got=_short(compared[0]))
    raised = _RAISED.match(told[0])
    if raised and raised[1] not in ("AssertionError", "Failed"):
        return Symptom("raised", name, call, error=_short(told[0]))
    return Symptom("check", name, call, got=_short(told[0].removeprefix("AssertionError").removeprefix(":").strip()))


def _explanation(traceback: str) -> list[str]:
    """The lines of the last block of pytest's explanation, without its mark."""
    blocks = re.findall(r"(?:^E(?: .*)?(?:\n|$))+", traceback, re.MULTILINE)
    lines = [line[1:].strip() for line in blocks[-1].splitlines()] if blocks else []
    return [line for line in lines if line]


def _test_statement(traceback: str, is_source: Callable[[str], bool]) -> ast.stmt | None:
    """The test's own statement that was running: that of the innermost frame before the package's code."""
    text = ""
    lines = traceback.splitlines()
    for at, line in enumerate(lines):
        frame = _FRAME.match(line)
        if frame and is_source(frame[1]):
            break
        if frame and at + 1 < len(lines) and lines[at + 1].startswith("    "):
            text = lines[at + 1].strip()
    for candidate in (text, f"{text} pass", f"{text}\n    pass"):
        tree = parsed(candidate) if text else None
        if tree is not None and tree.body:
            found = tree.body[0]
            while isinstance(found, ast.FunctionDef | ast.With) and found.body and not _is_pass(found.body[0]):
                found = found.body[0]
            return found
    return None


def _is_pass(node: ast.stmt) -> bool:
    return isinstance(node, ast.Pass)


def _calls(node: ast.AST, names: Collection[str]) -> Iterator[ast.Call]:
    """The calls of a statement that exercise something, outermost and leftmost first."""
    for child in ast.walk(node):
        name = _dotted(child.func) if isinstance(child, ast.Call) else ""
        if isinstance(child, ast.Call) and name:
            first, last = name.split(".")[0], name.rpartition(".")[2]
            helps = first in _TESTING or name in _BUILT_IN or name.startswith("self.assert") or _is_exception(last)
            if not helps and (not names or last in names):
                yield child


def _is_exception(name: str) -> bool:
    return name.endswith(("Error", "Exception", "Warning"))


def _name(call: ast.Call, names: Collection[str]) -> str:
    """The name of what is called, without the test's own variable before it."""
    name = _dotted(call.func).removeprefix("self.")
    first, _, rest = name.partition(".")
    return rest if rest and names and first not in names else name


def _text(call: ast.Call, names: Collection[str]) -> str:
    """A call as it can be told without knowing the test's variables; empty where it cannot."""
    inside = [node for node in ast.walk(call) if isinstance(node, ast.Name)]
    functions = {id(part) for inner in ast.walk(call) if isinstance(inner, ast.Call) for part in ast.walk(inner.func)}
    known = {node.id for node in inside if id(node) in functions}
    if any(id(node) not in functions for node in inside) or "self" in known:
        return ""
    if names and not known <= {*names, *_BUILT_IN}:
        return ""
    return _short(ast.unparse(call))


def _dotted(node: ast.expr) -> str:
    """``a.b.c``; calls in between are left out; empty for anything that has no name."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return _dotted(node.func) if isinstance(node, ast.Call) else ""


def _compared(told: list[str], statement: ast.stmt | None) -> tuple[str, str] | None:
    """What came out and what should have, of an equality that did not hold. Where pytest cuts both sides so that they
    look alike, what it names as the difference; empty texts where it names none."""
    for at, line in enumerate(told):
        text = line.removeprefix("AssertionError:").strip()
        sides = _sides(text.removeprefix("assert "), " == " if text.startswith("assert ") else " != ")
        if sides is not None:
            if "..." in sides[0] and "..." in sides[1]:
                sides = _difference(told[at + 1 :]) or (sides if sides[0] != sides[1] else ("", ""))
            return sides[::-1] if _is_expected_first(statement) else sides
        if line.startswith(("AssertionError: assert ", "assert ")):
            return None
    return None


def _difference(told: list[str]) -> tuple[str, str] | None:
    """The first differing items that pytest names."""
    for before, line in pairwise(told):
        if before == "Differing items:":
            return _sides(line, " != ")
    return None


def _sides(text: str, sign: str) -> tuple[str, str] | None:
    """The two sides of ``text``, read as Python where it is that, else split where ``sign`` stands once."""
    tree = parsed(text)
    match tree.body if tree is not None else []:
        case [ast.Expr(value=ast.Compare(left=left, ops=[ast.Eq() | ast.NotEq() as how], comparators=[right]))]:
            if isinstance(how, ast.Eq) == (sign == " == "):
                return ast.unparse(left), ast.unparse(right)
        case _ if text.count(sign) == 1:
            left_text, _, right_text = text.partition(sign)
            return left_text.strip(), right_text.split(" : ")[0].strip()
    return None


def _is_expected_first(statement: ast.stmt | None) -> bool:
    """Whether a test writes what it expects before what it calls."""
    match statement:
        case ast.Assert(test=ast.Compare(left=left, comparators=[right])):
            pass
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="assertEqual"), args=[left, right, *_])):
            pass
        case _:
            return False
    return not any(True for _ in _calls(left, ())) and any(True for _ in _calls(right, ()))


def _short(text: str) -> str:
    """One line of bounded length, without what differs from run to run and without places in files."""
    line = " ".join(_PLACE.sub("", _ADDRESS.sub("", text)).split())
    return line if len(line) <= _CHARS else line[: _CHARS - 3].rstrip() + "..."
