"""Planted bugs: what each operator does, and what no operator may do."""

import ast
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, apply_patch, diff_trees, patch_scope
from patchgym.errors import DataError
from patchgym.tasks.bugs.mutation import Mutation, mutations
from patchgym.tasks.bugs.operators import OPERATORS
from patchgym.tasks.sources.candidates import changed_functions

EXAMPLES = [
    ("arithmetic", "return a + b", "return a - b"),
    ("arithmetic", "a *= 3", "a += 3"),
    ("bool_operator", "return a and b", "return a or b"),
    ("boundary", "return a  <  b", "return a  <=  b"),
    ("comparison", "return a is not b", "return a is b"),
    ("comparison", "return a in b", "return a not in b"),
    ("constant", "return a[3:]", "return a[4:]"),
    ("constant", "return g(flag=True)", "return g(flag=False)"),
    ("drop_statement", "a = a.strip()\n    return a", "return a"),
    ("loop_exit", "for x in a:\n        break", "for x in a:\n        continue"),
    ("narrow_except", "try:\n        g()\n    except (A, B):\n        g()", "except (A):"),
    ("negate_condition", "return 1 if (not a) else 2", "return 1 if (a) else 2"),
    ("negate_condition", "while a > b:\n        g()", "while not (a > b):"),
    ("remove_guard", "if a:  # why\n        return b\n    return a", "):\n    return a"),
    ("slice_edit", "return a[1:b]", "return a[1:]"),
    ("slice_edit", "return a[-1]", "return a[0]"),
    ("string", "return a + 'xyz'", "return a + 'xy'"),
    ("swap_arguments", "return g( a,  b )", "return g( b,  a )"),
    ("swap_arguments", "return g(a, ( 1, b ) )", "return g(( 1, b ), a )"),
    ("swap_branches", "return (a) if b else 2", "return 2 if b else (a)"),
    ("wrong_return", "return a, b", "return b, a"),
    ("wrong_return", "return a == b", "return not (a == b)"),
    ("wrong_return", "return g(a)", "return None"),
    ("wrong_variable", "return a.x + a", "return a.x + b"),
]

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
    return mutations(source, operators)


@pytest.mark.parametrize(("operator", "body", "expected"), EXAMPLES)
def test_each_operator_plants_its_bug(operator: str, body: str, expected: str) -> None:
    mutants = [mutation.new_source for mutation in found(function(body), operator)]
    assert any(expected in mutant for mutant in mutants), mutants


def test_a_default_argument_changes_in_the_signature() -> None:
    mutants = [mutation.new_source for mutation in found("def f(a, b=True, *, c=1): return a\n", "default_argument")]
    assert "def f(a, b=False, *, c=1): return a\n" in mutants
    assert "def f(a, b=True, *, c=2): return a\n" in mutants


def test_every_operator_has_an_example() -> None:
    assert {operator for operator, _, _ in EXAMPLES} | {"default_argument"} == set(OPERATORS)


def test_only_code_inside_functions_is_touched() -> None:
    assert found(UNTOUCHED) == []


def test_a_mutation_says_where_it_is() -> None:
    source = "class K:\n    def m(self, a):\n        def inner():\n            return a < 1\n        return inner\n"
    (mutation,) = found(source, "boundary")
    assert (mutation.operator, mutation.line, mutation.function) == ("boundary", 4, "K.m.inner")
    assert (mutation.old_snippet, mutation.new_snippet, mutation.function_lines) == ("<", "<=", 2)


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


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
@settings(max_examples=20, deadline=None)
@given(sources())
def test_a_mutant_is_another_program_that_differs_in_one_function(source: str) -> None:
    mutants = found(source)
    assert mutants == found(source)
    assert len({mutation.new_source for mutation in mutants}) == len(mutants)
    for mutation in mutants:
        compile(mutation.new_source, "mutant.py", "exec")
        assert ast.dump(ast.parse(mutation.new_source)) != ast.dump(ast.parse(source))
        assert changed_functions(source, mutation.new_source) == {mutation.function}


@settings(max_examples=15, deadline=None)
@given(source=sources(), pick=st.integers(0, 10_000))
def test_the_gold_patch_is_one_hunk_and_restores_the_source_byte_for_byte(
    tmp_path_factory: pytest.TempPathFactory, source: str, pick: int
) -> None:
    mutants = found(source)
    if not mutants:
        return
    objects = ObjectStore(tmp_path_factory.mktemp("objects"))
    mutation = mutants[pick % len(mutants)]
    broken, healthy = (
        objects.write_tree({"a.py": Entry(0o100644, objects.put(text.encode()))})
        for text in (mutation.new_source, source)
    )
    patch = diff_trees(objects, broken, healthy)
    assert patch_scope(patch).hunks == 1
    mended = apply_patch(objects, broken, patch)
    assert objects.get(objects.entries(mended)["a.py"].id) == source.encode()


def test_a_real_module_keeps_compiling_whatever_is_planted() -> None:
    source = (Path(__file__).parents[2] / "src" / "patchgym" / "content" / "objects.py").read_text()
    mutants = found(source)
    assert len(mutants) > 50
    assert len({mutation.operator for mutation in mutants}) >= 8
    for mutation in mutants[::5]:
        compile(mutation.new_source, "objects.py", "exec")
        assert len(changed_functions(source, mutation.new_source)) == 1
