"""Planting one bug: what a mutation may and may not touch, where it says that it is, what it comes to."""

import ast
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, apply_patch, diff_trees, patch_scope
from patchgym.errors import DataError
from patchgym.tasks.bugs.mutation import Mutation, makes_bug, plant, proposals
from patchgym.tasks.bugs.operators import OPERATORS, REMOVAL
from patchgym.tasks.sources.candidates import changed_functions
from tests.tasks.bugs.checked import mutations

ROOT = Path(__file__).parents[3]
EVERY = [*OPERATORS, REMOVAL.name]

UNTOUCHED = '''\
"""Module text with 1 < 2."""
from typing import TYPE_CHECKING, overload

__version__ = "1.0"
LIMIT = 3 < 4


@decorate(1, 2)
def documented(a: "list[1]", b: dict[str, 5]) -> "x < y":
    """Text with 1 < 2 and True."""
    "more text 1"
    if TYPE_CHECKING:
        a = 1 + 2
    count: "tuple[1, 2]"
    assert a < 1, "message 1"
    raise ValueError("message", 1 < 2)


@overload
def stub(a=1):
    return a + 1
'''

names = st.sampled_from(["a", "b", "left", "self"])
atoms = st.one_of(names, st.integers(0, 9).map(str), st.sampled_from(["True", "None", "'text'", '"é"', "f'{a}'", "[]"]))
expressions = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "-", "*", "//", "<", ">=", "==", "in", "is not", "and", "or"]), inner
        ).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda text: f"(not {text})"),
        st.tuples(inner, inner).map(lambda parts: f"call({parts[0]}, {parts[1]})"),
        st.tuples(names, inner, inner).map(lambda parts: f"{parts[0]}[{parts[1]}:{parts[2]}]"),
        st.tuples(inner, inner, inner).map(lambda parts: f"({parts[0]} if {parts[1]} else {parts[2]})"),
    ),
    max_leaves=6,
)
simple = st.one_of(
    st.sampled_from(
        [
            "left.append(a)",
            "super().last(a, b=b)",
            "a, b = b, left",
            "return sorted(list(a), key=b)",
            "b = [left for left in range(len(a)) if left]",
            "return f'{a!r} {b:>3}'",
            "yield left",
            "return True",
            "a = b.get(left, 'x').strip()",
        ]
    ),
    expressions.map(lambda text: f"a = {text}"),
    expressions.map(lambda text: f"return {text}"),
    expressions.map(lambda text: f"self.b += {text}  # note"),
    expressions.map(lambda text: f"call({text})"),
)


def block(statements: list[str]) -> str:
    """Statements, indented by four."""
    return "\n".join(f"    {line}" for statement in statements for line in statement.split("\n"))


statements = st.one_of(
    simple,
    st.tuples(expressions, st.lists(simple, min_size=1, max_size=3)).map(lambda it: f"if {it[0]}:\n{block(it[1])}"),
    st.tuples(expressions, st.lists(simple, min_size=1, max_size=2)).map(
        lambda it: f"for left in {it[0]}:\n{block([*it[1], 'break'])}"
    ),
    st.tuples(expressions, simple, simple).map(
        lambda it: f"while {it[0]}:\n{block([it[1]])}\nif a:\n{block([it[1], it[2]])}\nelif b:\n{block([it[2]])}"
    ),
    st.tuples(simple, simple).map(
        lambda it: (
            f"try:\n{block([it[0]])}\nexcept (KeyError, ValueError):\n{block([it[1], 'raise'])}\n"
            f"except OSError:\n{block([it[1]])}\nfinally:\n{block(['a.close()'])}"
        )
    ),
)
bodies = st.lists(statements, min_size=1, max_size=4).map(block)


@st.composite
def sources(draw: st.DrawFn) -> str:
    """A module of two functions and a class, with uneven formatting."""
    newline = draw(st.sampled_from(["\n", "\n", "\r\n"]))
    method = "\n".join(f"    {line}" for line in f"def method(self, a, b=1):\n{draw(bodies)}".split("\n"))
    text = f"# header\n\ndef first(a, b=2, *, left='x'):\n{draw(bodies)}\n\n\nclass Kind:\n{method}\n\n"
    text += f"def last( a,b ):\n{draw(bodies)}" + draw(st.sampled_from(["", "\n", "\n\n# end\n"]))
    return text.replace("\n", newline)


def function(body: str) -> str:
    """A function of two parameters."""
    return f"def f(a, b):\n    {body}\n"


def found(source: str, *operators: str) -> list[Mutation]:
    """All mutations; shorthand."""
    return mutations(source, operators or EVERY)


def compiled(source: str) -> None:
    """Compile it, whatever its style."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compile(source, "mutant.py", "exec")


def test_only_code_inside_functions_is_touched() -> None:
    assert mutations(UNTOUCHED) == []


def test_a_mutation_says_where_it_is() -> None:
    source = "class K:\n    def m(self, a):\n        def inner():\n            return a < 1\n        return inner\n"
    (mutation,) = found(source, "boundary")
    assert (mutation.operator, mutation.line, mutation.function) == ("boundary", 4, "K.m.inner")
    assert (mutation.old_snippet, mutation.new_snippet, mutation.function_lines) == ("<", "<=", 2)


@pytest.mark.parametrize(
    ("operator", "source", "lines"),
    [
        ("constant", function("g(\n        1,\n        2,\n    )\n    h()"), [2, 3, 4, 5]),  # the whole statement
        ("negate_condition", function("if (a and\n            b):\n        g()\n    return a"), [2, 3]),  # its header
        ("remove_guard", function("g()\n    if a:\n        return b\n    return a"), [3, 4]),
        ("drop_else", function("if a:\n        g()\n    else:\n        h()\n    return a"), [4, 5]),
        ("swallow", function("try:\n        g()\n    except A:\n        h()\n        k()"), [5, 6]),
        ("default_argument", "def f(a=1):\n    g(a)\n    return a\n", [2, 3]),  # a default shows where it is used
        (REMOVAL.name, "def f(a):\n    'Text.'\n    g(a)\n    return a\n", [3, 4]),
    ],
)
def test_a_mutation_says_on_which_lines_it_acts(operator: str, source: str, lines: list[int]) -> None:
    assert list(found(source, operator)[0].lines) == lines


def test_several_mutations_are_planted_at_once() -> None:
    source = function("return a < b") + function("return a + b").replace("def f", "def g")
    less, plus = found(source, "boundary", "arithmetic")
    assert plant(source, plus, less) == source.replace("<", "<=").replace("+", "-")


def test_long_functions_are_left_alone_when_asked() -> None:
    source = function("a = 1\n    return a < b") + "\n\n" + function("return a < b")
    assert len(mutations(source, ["boundary"])) == 2
    (short,) = mutations(source, ["boundary"], max_function_lines=2)
    assert short.line == 7


def test_what_does_not_parse_and_unknown_operators_are_errors() -> None:
    with pytest.raises(DataError, match="does not parse"):
        found("def f(:\n")
    with pytest.raises(DataError, match="no operator boundry"):
        found("", "boundry")


def test_an_edit_that_changes_nothing_is_no_bug() -> None:
    source = function("return g(a, a)")
    (proposed,) = proposals(source, ["swap_arguments"])
    assert not makes_bug(source.encode(), proposed)
    assert found(source, "swap_arguments") == []


@settings(max_examples=8, deadline=None)
@given(sources())
def test_a_mutant_is_another_program_that_differs_in_one_function(source: str) -> None:
    mutants = found(source)
    assert mutants == found(source)
    assert len({plant(source, mutation) for mutation in mutants}) == len(mutants)
    for mutation in mutants:
        mutant = plant(source, mutation)
        compiled(mutant)
        assert ast.dump(ast.parse(mutant)) != ast.dump(ast.parse(source))
        assert changed_functions(source, mutant) == {mutation.function}


@settings(max_examples=12, deadline=None)
@given(sources())
def test_looking_at_a_statement_alone_finds_the_bugs_that_the_whole_file_shows(source: str) -> None:
    data = source.encode()
    for proposed in proposals(source, EVERY):
        try:
            differs = ast.dump(ast.parse(plant(source, proposed))) != ast.dump(ast.parse(source))
        except SyntaxError:
            differs = False
        assert makes_bug(data, proposed) == differs, proposed


@settings(max_examples=10, deadline=None)
@given(source=sources(), pick=st.integers(0, 10_000))
def test_the_gold_patch_is_one_hunk_and_restores_the_source_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, source: str, pick: int
) -> None:
    mutants = mutations(source)
    if not mutants:
        return
    objects = ObjectStore(tmp_path_factory.mktemp("objects"))
    mutation = mutants[pick % len(mutants)]
    broken, healthy = (
        objects.write_tree({"a.py": Entry(0o100644, objects.put(text.encode()))})
        for text in (plant(source, mutation), source)
    )
    patch = diff_trees(objects, broken, healthy)
    assert patch_scope(patch).hunks == 1
    mended = apply_patch(objects, broken, patch)
    assert objects.get(objects.entries(mended)["a.py"].id) == source.encode()


@pytest.mark.parametrize("path", ["content/objects.py", "sandbox/command.py", "policy/engine.py"])
def test_a_real_module_keeps_compiling_whatever_is_planted(path: str) -> None:
    source = (ROOT / "src" / "patchgym" / path).read_text()
    mutants = found(source)
    assert len(mutants) > 50
    assert len({mutation.operator for mutation in mutants}) >= 12
    for mutation in mutants[::9]:
        mutant = plant(source, mutation)
        compiled(mutant)
        names = changed_functions(source, mutant)
        assert mutation.function in names
        assert all(f"{mutation.function}.".startswith(f"{name}.") for name in names)
