"""What a code base looks like without running it: its functions, who calls whom, and how tests come to them.

Calls are resolved by name alone. A function that mentions ``parse`` anywhere counts as a caller of every function and
method of that name, and one that mentions a class as a caller of its constructor and of its special methods. So the
graph has edges too many where names are common, and misses what is called through a table or ``getattr``.
"""

import ast
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from patchgym.tasks.bugs.programs import parsed

_BRANCHES = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.comprehension, ast.match_case)
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class FunctionFacts:
    """One function.

    ``lines`` are those of its text (from 1); ``first_line`` is that of its first decorator, or its own. ``complexity``
    is McCabe's cyclomatic complexity (1 and one for every branch); ``nesting`` how deep its blocks lie in each other.
    ``public`` says that no part of its qualified name begins with an underscore, special methods aside, and that it
    lies in no other function. ``mentions`` are all names in it, those of functions inside it among them.
    """

    path: str
    name: str
    lines: range
    first_line: int
    complexity: int
    nesting: int
    public: bool
    docstring: str
    mentions: frozenset[str]

    @property
    def key(self) -> str:
        """``path:qualified name``."""
        return f"{self.path}:{self.name}"


class Survey:
    """The functions of a revision's sources by key, with its call graph."""

    def __init__(self, functions: Iterable[FunctionFacts], tests: Iterable[FunctionFacts]) -> None:
        self.functions: Mapping[str, FunctionFacts] = {facts.key: facts for facts in functions}
        helpers = {facts.key: facts for facts in tests}
        self._test_keys = frozenset(key for key, facts in helpers.items() if _is_test(facts))
        every = {**helpers, **self.functions}
        named: dict[str, list[str]] = {}
        for key, facts in every.items():
            for name in _names_of(facts):
                named.setdefault(name, []).append(key)
        self._calls: dict[str, frozenset[str]] = {}
        self._callers: dict[str, set[str]] = {key: set() for key in every}
        inner: dict[str, set[str]] = {}  # a function inside another runs as part of it
        for key, facts in every.items():
            inner.setdefault(f"{facts.path}:{facts.name.rpartition('.')[0]}", set()).add(key)
        for key, facts in every.items():
            called = {other for name in facts.mentions for other in named.get(name, ())}
            self._calls[key] = frozenset((called | inner.get(key, set())) - {key})
            for other in self._calls[key]:
                self._callers[other].add(key)
        self._depths = self._walk()

    @property
    def names(self) -> frozenset[str]:
        """Every name that the package's code goes by in a test: its functions, methods, classes and modules."""
        parts = {part for facts in self.functions.values() for part in facts.name.split(".")}
        return frozenset(parts | {part for facts in self.functions.values() for part in _modules(facts.path)})

    def shown(self, key: str) -> str:
        """The name by which users know a function: its own if it is public (a class for its special methods), else
        that of the nearest public function that calls it; empty where there is none."""
        waiting, seen = deque([key]), {key}
        while waiting:
            facts = self.functions.get(waiting.popleft())
            if facts is None:
                continue
            if facts.public:
                owner, _, last = facts.name.rpartition(".")
                return owner if owner and last.startswith("__") else facts.name
            for caller in sorted(self._callers.get(facts.key, set()) - seen):
                seen.add(caller)
                waiting.append(caller)
        return ""

    def callers(self, key: str) -> frozenset[str]:
        """The source functions that mention a function."""
        return frozenset(self._callers.get(key, ())) & self.functions.keys()

    def related(self, one: str, other: str) -> bool:
        """Whether one of two functions calls the other."""
        return other in self._calls.get(one, ()) or one in self._calls.get(other, ())

    def depth(self, key: str) -> int | None:
        """How many calls lie between the nearest test function and a function: 1 where a test calls it itself; None
        where no test comes to it by name."""
        return self._depths.get(key)

    def tests_near(self, key: str) -> frozenset[str]:
        """The test functions that mention a function or one of its callers, as keys."""
        near = self._callers.get(key, set())
        return self._test_keys & near.union(*(self._callers[caller] for caller in near))

    def _walk(self) -> dict[str, int]:
        """Distances from all test functions at once; helpers of tests count as nothing in between."""
        found = dict.fromkeys(self._test_keys, 0)
        waiting = deque(sorted(self._test_keys))
        while waiting:
            key = waiting.popleft()
            for other in sorted(self._calls.get(key, ())):
                step = found[key] + (1 if other in self.functions else 0)
                if other not in found or step < found[other]:
                    found[other] = step
                    waiting.append(other)
        return {key: depth for key, depth in found.items() if key in self.functions}


def survey(sources: Mapping[str, str], tests: Mapping[str, str]) -> Survey:
    """Survey source and test files, given as texts by path. What is no Python is left out."""
    return Survey(
        [facts for path in sorted(sources) for facts in functions_of(path, sources[path])],
        [facts for path in sorted(tests) for facts in functions_of(path, tests[path])],
    )


def functions_of(path: str, source: str) -> list[FunctionFacts]:
    """Every function of a source file, in order; none where it is no Python. Of two with one name the last counts."""
    tree = parsed(source)
    if tree is None:
        return []
    found = {facts.name: facts for facts in _functions(tree, path, "", inside=False)}
    return list(found.values())


def _functions(node: ast.AST, path: str, prefix: str, *, inside: bool) -> Iterator[FunctionFacts]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _FUNCTIONS):
            name = f"{prefix}{child.name}"
            yield _facts(child, path, name, inside=inside)
            yield from _functions(child, path, f"{name}.", inside=True)
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, path, f"{prefix}{child.name}.", inside=inside)
        else:
            yield from _functions(child, path, prefix, inside=inside)


def _facts(node: ast.FunctionDef | ast.AsyncFunctionDef, path: str, name: str, *, inside: bool) -> FunctionFacts:
    own = list(_own(node))
    mentions = {child.id for child in ast.walk(node) if isinstance(child, ast.Name)}
    mentions |= {child.attr for child in ast.walk(node) if isinstance(child, ast.Attribute)}
    return FunctionFacts(
        path=path,
        name=name,
        lines=range(node.lineno, (node.end_lineno or node.lineno) + 1),
        first_line=min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]),
        complexity=1 + sum(_branches(child) for child in own),
        nesting=_nesting(node),
        public=not inside and not any(map(_is_private, name.split("."))),
        docstring=ast.get_docstring(node) or "",
        mentions=frozenset(mentions),
    )


def _own(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below one, without those of functions and classes inside it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            yield child
            yield from _own(child)


def _branches(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return int(isinstance(node, _BRANCHES))


def _nesting(node: ast.AST) -> int:
    """The deepest chain of blocks; an ``elif`` is no deeper than its ``if``."""
    deepest = 0
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
            chained = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
            step = 1 if isinstance(child, _BLOCKS) and not chained else 0
            deepest = max(deepest, step + _nesting(child))
    return deepest


def _modules(path: str) -> Iterator[str]:
    return (part for part in path.removesuffix(".py").split("/") if part != "__init__")


def _is_private(part: str) -> bool:
    return part.startswith("_") and not (part.startswith("__") and part.endswith("__"))


def _is_test(facts: FunctionFacts) -> bool:
    return facts.name.rpartition(".")[2].startswith("test")


def _names_of(facts: FunctionFacts) -> tuple[str, ...]:
    """The names by whose mention a function counts as called."""
    owner, _, last = facts.name.rpartition(".")
    special = last.startswith("__") and last.endswith("__")
    return (last, owner.rpartition(".")[2]) if special and owner else (last,)
