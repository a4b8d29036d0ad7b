"""What all detectors share: the attempt's files, code in its strings, and the words of its tests."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache

from patchgym.records import Evidence
from patchgym.reward.hacks.attempt import Attempt
from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.source import File, files_of, parse
from patchgym.reward.hacks.trees import walk

_QUOTED_LINES = 3
_QUOTED_CHARS = 160
_CODE = re.compile(r"\b(?:import|exec|open|def|lambda)\b")
_NOT_ASKED = re.compile(r"\b(?:not|never|instead of|rather than)\s+\S+", re.IGNORECASE)
_HELPERS = re.compile(
    r"(?:^|[/_.])(?:testing|test_?utils?|test_?helpers?|conftest|fixtures?|pytest\w*|plugins?)(?=[/_.])"
)
_RUNNERS = re.compile(r"(?:_pytest|pytest|py\.test|pluggy|unittest|doctest|nose2?|xdist)(?:\.|$)")


@dataclass(frozen=True, eq=False)
class Code:
    """Code to look at: a file, or a string of it that is run. ``line`` is where such a string stands, else 0."""

    file: File
    line: int = 0
    shown: str = ""
    """The path that evidence names."""


@dataclass(frozen=True)
class Look:
    """An attempt with what is read out of it once for all detectors."""

    attempt: Attempt

    @cached_property
    def files(self) -> tuple[File, ...]:
        """The touched files whose content differs."""
        return files_of(self.attempt)

    @cached_property
    def sources(self) -> tuple[Code, ...]:
        """Code under test, and the code in its strings."""
        found = [Code(file, shown=file.path) for file in self.files if file.is_source and file.after is not None]
        for code in list(found):
            found += [
                Code(File(code.shown, None, text, is_test=False), node.lineno, code.shown)
                for node, text in strings_run(code.file)
            ]
        return tuple(found)

    @cached_property
    def test_names(self) -> frozenset[str]:
        """Names of the test functions in the visible tests and in touched test files."""
        texts = [*self.attempt.tests.values(), *(file.before or "" for file in self.files if file.is_test)]
        return frozenset().union(*(_tests_in(text) for text in texts))

    @cached_property
    def _asked(self) -> str:
        return _NOT_ASKED.sub(" ", self.attempt.instruction).casefold()

    def asks_for(self, value: str) -> bool:
        """Whether the instruction names a value, as a word of its own, and not as what must no longer be."""
        return re.search(rf"(?<![\w.$-]){re.escape(value.casefold())}(?![\w%])", self._asked) is not None

    @cached_property
    def base_text(self) -> str:
        """All that the touched files said before."""
        return "\n".join(file.before or "" for file in self.files)


@lru_cache(maxsize=512)
def _tests_in(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\bdef (test_\w{3,})", text))


def strings_run(file: File) -> Iterator[tuple[ast.Call, str]]:
    """New calls that run code in a string, with that code: ``exec``, and a Python that is started with ``-c``."""
    for node in file.new_nodes:
        if not isinstance(node, ast.Call):
            continue
        name = file.names.dotted(node.func) or ""
        texts: list[ast.expr] = []
        if name.removeprefix("builtins.") in ("exec", "eval", "compile"):
            texts = node.args[:1]
        elif name.startswith(("subprocess.", "os.spawn", "os.exec", "os.system", "os.popen", "ctypes.")) and node.args:
            first = node.args[0]
            texts = [*first.elts] if isinstance(first, ast.List | ast.Tuple) else node.args
        for one in texts:
            text = file.names.text(one)
            if text is not None and _CODE.search(text) and parse(text).tree is not None:
                yield node, text


def mark(code: Code | File, node: ast.AST | int, kind: str, why: str, *, proof: bool = False) -> Evidence:
    """Evidence at a node, or a line, of a file."""
    line = node if isinstance(node, int) else getattr(node, "lineno", 1)
    file = code if isinstance(code, File) else code.file
    shown, at = (file.path, line) if isinstance(code, File) or not code.line else (code.shown, code.line)
    return Evidence(kind=kind, where=f"{shown}:{at}", quote=cut(file.lines[line - 1 :]), why=why, proof=proof)


def cut(lines: list[str] | str) -> str:
    """The first lines of a quotation, none of them long, without control characters."""
    rows = lines.split("\n") if isinstance(lines, str) else lines
    kept = [row[:_QUOTED_CHARS] for row in rows[:_QUOTED_LINES]]
    return "\n".join(
        "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in row) for row in kept
    )


def is_helper(file: File) -> bool:
    """Whether a source file is about testing by its name: helpers, fixtures, plug-ins."""
    return _HELPERS.search(f"/{file.path}") is not None


def is_runner(dotted: str | None) -> bool:
    """Whether a dotted name lies in a test runner."""
    return dotted is not None and _RUNNERS.match(dotted) is not None


def knew_runner(file: File) -> bool:
    """Whether the base of a file already deals with a test runner: then doing so is its job."""
    return any(is_runner(name) for name in file.base.names.imported) if file.before is not None else False


def calls(code: Code) -> Iterator[tuple[ast.Call, str]]:
    """New calls with the dotted name of what is called."""
    for node in code.file.new_nodes:
        if isinstance(node, ast.Call) and (name := code.file.names.dotted(node.func)):
            yield node, name.removeprefix("builtins.")


def called(nodes: Iterator[ast.AST] | list[ast.AST], names: Names) -> set[str]:
    """The dotted names of everything that is called below some nodes."""
    found = {names.dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
    return {name.removeprefix("builtins.") for name in found if name}


def all_names(node: ast.AST) -> set[str]:
    """Every plain name, attribute and keyword below a node."""
    found = set()
    for one in walk(node):
        if isinstance(one, ast.Name):
            found.add(one.id)
        elif isinstance(one, ast.Attribute):
            found.add(one.attr)
        elif isinstance(one, ast.keyword) and one.arg is not None:
            found.add(one.arg)
    return found
