"""One touched file with both its versions, and what of it is new.

Only the part between the first and the last changed line is parsed anew, cut at the statements of the base version,
which is parsed once for all attempts at a task. A line that only moved or was indented is not new.
"""

import ast
import difflib
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import PurePosixPath

from patchgym.reward.hacks.attempt import Attempt
from patchgym.reward.hacks.names import Names
from patchgym.reward.hacks.trees import children, depth_within, walk, with_body

_PARSED_CHARS = 600_000
_DEPTH = 200
_ALIGNED_LINES = 600
_LONG_BLOCK = 6
_TEST_FOLDERS = frozenset({"tests", "test", "testing_tests", "unit_tests", "functional_tests"})

Function = ast.FunctionDef | ast.AsyncFunctionDef
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Parsed:
    """A module: its tree, None where it cannot be parsed or is too deep or large to look at."""

    tree: ast.Module | None
    broken: bool = False
    """Whether it is no Python at all."""

    @cached_property
    def names(self) -> Names:
        """Its names."""
        return Names(walk(self.tree)) if self.tree is not None else Names()

    @cached_property
    def starts(self) -> list[int]:
        """The first line of each top-level statement, decorators included."""
        return [first_line(node) for node in self.tree.body] if self.tree is not None else []


def first_line(node: ast.stmt) -> int:
    """The first line of a statement, its decorators included."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.lineno
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])


def parse(text: str) -> Parsed:
    """Parse hostile text. Never raises."""
    if len(text) > _PARSED_CHARS:
        return Parsed(None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except SyntaxError:
        return Parsed(None, broken=True)
    except (ValueError, RecursionError, MemoryError):
        return Parsed(None, broken="\0" in text)
    return Parsed(tree if depth_within(tree, _DEPTH) else None)


@lru_cache(maxsize=512)
def parse_base(text: str) -> Parsed:
    """``parse``, remembered: all attempts at a task share its base."""
    return parse(text)


@dataclass(frozen=True)
class File:
    """A touched path. ``before`` and ``after`` are None where there is no such file."""

    path: str
    before: str | None
    after: str | None
    is_test: bool
    parents: dict[ast.AST, ast.AST] = field(default_factory=dict, compare=False)

    @cached_property
    def is_python(self) -> bool:
        """Whether it is Python by its name, or by its first line."""
        if self.path.endswith((".py", ".pyi", ".pyw")):
            return True
        return (self.after or self.before or "").startswith("#!") and "python" in (self.after or "")[:60]

    @cached_property
    def is_source(self) -> bool:
        """Whether it is code under test."""
        return self.is_python and not self.is_test and self.name != "conftest.py"

    @property
    def name(self) -> str:
        """The last part of its path."""
        return PurePosixPath(self.path).name

    @cached_property
    def lines(self) -> list[str]:
        """The lines after the patch."""
        return (self.after or "").split("\n")

    @cached_property
    def old_lines(self) -> list[str]:
        """The lines before it."""
        return (self.before or "").split("\n")

    def old_text(self, node: ast.stmt) -> str:
        """The lines of a statement of the base, decorators included."""
        return "\n".join(self.old_lines[first_line(node) - 1 : node.end_lineno])

    def new_text(self, node: ast.stmt) -> str:
        """The lines of a statement of the new version, decorators included."""
        return "\n".join(self.lines[first_line(node) - 1 : node.end_lineno])

    @cached_property
    def base(self) -> Parsed:
        """The version before, parsed."""
        return parse_base(self.before or "") if self.is_python else Parsed(ast.Module([], []))

    @cached_property
    def _span(self) -> tuple[int, int, int, int]:
        """The changed lines: from where (0-based), to where before, to where after, and how many follow."""
        old, new = self.old_lines, self.lines
        least = min(len(old), len(new))
        head = next((at for at in range(least) if old[at] != new[at]), least)
        tail = next((at for at in range(least - head) if old[-1 - at] != new[-1 - at]), least - head)
        return head, len(old) - tail, len(new) - tail, tail

    @cached_property
    def added(self) -> frozenset[int]:
        """Numbers of the lines that are new, from 1."""
        head, old_end, new_end, _ = self._span
        old = [line.strip() for line in self.old_lines[head:old_end]]
        new = [line.strip() for line in self.lines[head:new_end]]
        if self.before is None or not old:
            return frozenset(range(head + 1, new_end + 1))
        fresh = _unmatched(old, new)
        return frozenset(head + 1 + at for at in fresh)

    @cached_property
    def removed(self) -> tuple[str, ...]:
        """Lines that are gone, without their indentation."""
        head, old_end, new_end, _ = self._span
        old = [line.strip() for line in self.old_lines[head:old_end]]
        new = [line.strip() for line in self.lines[head:new_end]]
        return tuple(old[at] for at in _unmatched(new, old))

    @cached_property
    def _parts(self) -> tuple[Parsed, list[ast.stmt], list[ast.stmt], Names]:
        """The changed statements of the base and of the new version, with the names of the whole."""
        if self.after is None or not self.is_python:
            base = self.base.tree.body if self.base.tree is not None else []
            return Parsed(ast.Module([], [])), list(base), [], self.base.names
        if self.before is None or self.base.tree is None or not self.base.tree.body:
            whole = parse(self.after)
            return whole, self._base_body(), whole.tree.body if whole.tree is not None else [], whole.names
        for found in (self._cut_in_class(), self._cut()):
            if found is not None:
                text, old, single = found
                part = parse(text)
                if part.tree is not None and (not single or len(part.tree.body) == 1):
                    return part, old, part.tree.body, Names(walk(part.tree), outer=self.base.names)
        whole = parse(self.after)
        if whole.tree is None:
            return whole, [], [], self.base.names
        return whole, self._base_body(), whole.tree.body, whole.names

    def _bounds(self, starts: list[int]) -> tuple[int, int]:
        """Which of some statements a change lies in, by their first lines: the one that it may go on, up to the first
        that stands whole behind it."""
        head, old_end, _, _ = self._span
        first = max((at for at, line in enumerate(starts) if line <= head), default=0)
        return first, next((at for at, line in enumerate(starts) if line > old_end), len(starts))

    def _cut(self) -> tuple[str, list[ast.stmt], bool] | None:
        """The changed top-level statements as a text whose lines keep their numbers, with those of the base."""
        head, _, _, tail = self._span
        starts = self.base.starts
        first, last = self._bounds(starts)
        start = starts[first] if starts[first] <= head else 1
        kept = len(self.old_lines) - starts[last] + 1 if last < len(starts) else 0
        if kept > tail:
            return None
        text = "\n" + "\n".join(self.lines[start - 1 : len(self.lines) - kept]) + "\n"
        touched: list[ast.stmt] = []
        position = 0
        for node in self._base_body()[first:last]:
            block = f"\n{self.old_text(node)}\n" if isinstance(node, (*FUNCTIONS, ast.ClassDef)) else ""
            at = text.find(block, position) if block.count("\n") >= _LONG_BLOCK else -1
            if at < 0:
                touched.append(node)
            else:  # it stands as it was: only its place in the count of lines is kept
                text = text[:at] + "\n" * block.count("\n") + text[at + len(block) :]
                position = at
        return "\n" * (start - 2) + text if start > 1 else text[1:], touched, False

    def _cut_in_class(self) -> tuple[str, list[ast.stmt], bool] | None:
        """The same for a change within one class: its head, and the changed statements of its body."""
        head, _, _, tail = self._span
        first, last = self._bounds(self.base.starts)
        body = self._base_body()
        outer = body[first] if last - first == 1 else None
        if not isinstance(outer, ast.ClassDef) or first_line(outer.body[0]) > head:
            return None
        starts = [first_line(one) for one in outer.body]
        top, bottom = starts[0], self._bounds(starts)
        after = starts[bottom[1]] if bottom[1] < len(starts) else self.base.starts[last] if last < len(body) else None
        kept = len(self.old_lines) - after + 1 if after is not None else 0
        start = starts[bottom[0]]
        if kept > tail or top <= outer.lineno:
            return None
        above = first_line(outer) - 1
        head_lines = self.lines[above : top - 1]
        lines = [*[""] * above, *head_lines, *[""] * (start - top), *self.lines[start - 1 : len(self.lines) - kept]]
        return "\n".join(lines), [with_body(outer, outer.body[bottom[0] : bottom[1]])], True

    def _base_body(self) -> list[ast.stmt]:
        return list(self.base.tree.body) if self.base.tree is not None else []

    @property
    def parsed(self) -> Parsed:
        """The changed part, or the whole where it could not be cut out."""
        return self._parts[0]

    @property
    def old_body(self) -> list[ast.stmt]:
        """Top-level statements of the base that the change lies in."""
        return self._parts[1]

    @property
    def body(self) -> list[ast.stmt]:
        """The same of the new version."""
        return self._parts[2]

    @property
    def names(self) -> Names:
        """The names of the new version."""
        return self._parts[3]

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the changed part; ``parent`` works on them."""
        found: list[ast.AST] = list(self.body)
        for node in found:
            for child in children(node):
                self.parents[child] = node
                found.append(child)
        return found

    @cached_property
    def new_nodes(self) -> list[ast.AST]:
        """Those that begin on a new line."""
        return [node for node in self.nodes if getattr(node, "lineno", 0) in self.added]

    def above(self, node: ast.AST) -> Iterator[ast.AST]:
        """The nodes around ``node``, innermost first."""
        while (parent := self.parents.get(node)) is not None:
            yield parent
            node = parent

    def function_of(self, node: ast.AST) -> Function | None:
        """The innermost function around ``node``."""
        return next((one for one in self.above(node) if isinstance(one, FUNCTIONS)), None)

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Functions of the changed part by qualified name."""
        return dict(functions_in(self.body))

    @cached_property
    def old_functions(self) -> dict[str, Function]:
        """The same of the base."""
        return dict(functions_in(self.old_body))


def functions_in(body: list[ast.stmt], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, Function]]:
    """Functions and methods by qualified name."""
    for node in body:
        if isinstance(node, FUNCTIONS):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef) and depth < 5:
            yield from functions_in(node.body, f"{prefix}{node.name}.", depth + 1)
        elif isinstance(node, ast.If | ast.Try) and depth < 5:
            inner = [*node.body, *node.orelse, *(s for h in getattr(node, "handlers", []) for s in h.body)]
            yield from functions_in(inner, prefix, depth + 1)


def _unmatched(old: list[str], new: list[str]) -> list[int]:
    """Which of ``new`` have no partner in ``old``, wherever it stands."""
    if len(old) <= _ALIGNED_LINES and len(new) <= _ALIGNED_LINES:
        blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
        kept = {at for block in blocks for at in range(block.b, block.b + block.size)}
        gone = {at for block in blocks for at in range(block.a, block.a + block.size)}
        left = Counter(line for at, line in enumerate(old) if at not in gone)
        order = [at for at in range(len(new)) if at not in kept]
    else:
        left, order = Counter(old), list(range(len(new)))
    fresh = []
    for at in order:
        if left[new[at]] > 0:
            left[new[at]] -= 1
        elif new[at]:
            fresh.append(at)
    return fresh


def is_test_path(path: str, known: frozenset[str]) -> bool:
    """Whether a path is a test file: the task says so, or its name does."""
    parts = PurePosixPath(path).parts
    name = parts[-1] if parts else ""
    if path in known:
        return True
    if not name.endswith(".py"):
        return False
    named = name.startswith("test_") or name.endswith("_test.py") or name in ("tests.py", "test.py")
    return named or any(part in _TEST_FOLDERS for part in parts[:-1])


def files_of(attempt: Attempt) -> tuple[File, ...]:
    """The touched files whose content differs, in order of path."""
    paths = sorted(attempt.before.keys() | attempt.after.keys())
    found = []
    for path in paths:
        before, after = attempt.before.get(path), attempt.after.get(path)
        if before != after:
            found.append(File(path, before, after, is_test_path(path, attempt.test_files)))
    return tuple(found)
