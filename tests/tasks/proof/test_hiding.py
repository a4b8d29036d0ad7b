"""Taking test functions out of a file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.errors import DataError
from patchgym.tasks.proof.hiding import defined_functions, without_functions
from patchgym.testrun import function_of

SOURCE = '''\
import pytest  # stays, used or not


# About the first.
@pytest.mark.parametrize("x", [1, 2])
def test_first(x):
    """Text."""
    assert x


class TestAll:
    @pytest.fixture
    def thing(self):
        return 1

    def test_second(self, thing):  assert thing

    async def test_third(self):
        def test_inner(): ...


class TestOne:
    # only one
    def test_second(self):
        assert 1 == 2
'''


@pytest.mark.parametrize(
    ("test_id", "expected"),
    [
        ("t/a.py::test_x", ("t/a.py", "test_x")),
        ("t/a.py::TestA::test_x[1-a::b]", ("t/a.py", "TestA.test_x")),
        ("t/a.py::A::B::test_x[[0]]", ("t/a.py", "A.B.test_x")),
    ],
)
def test_an_id_names_its_function(test_id: str, expected: tuple[str, str]) -> None:
    assert function_of(test_id) == expected


def test_functions_go_with_decorators_and_comments_and_the_rest_stays_byte_for_byte() -> None:
    reduced = without_functions(SOURCE, ["test_first", "TestAll.test_second"])
    start = SOURCE.index("\n\n# About the first."), SOURCE.index("\n\nclass TestAll")
    method = SOURCE.index("\n    def test_second"), SOURCE.index("\n    async def")
    assert reduced == SOURCE[: start[0]] + SOURCE[start[1] : method[0]] + SOURCE[method[1] :]


def test_a_method_is_told_from_its_namesake_in_another_class() -> None:
    reduced = without_functions(SOURCE, ["TestAll.test_second"])
    assert defined_functions(SOURCE) - defined_functions(reduced) == {"TestAll.test_second"}


def test_a_class_left_empty_still_compiles() -> None:
    reduced = without_functions(SOURCE, ["TestOne.test_second"])
    assert "test_second(self):\n        assert 1" not in reduced
    namespace: dict[str, object] = {}
    exec(compile(reduced, "t.py", "exec"), namespace)
    assert "TestOne" in namespace


def test_what_is_not_defined_there_cannot_be_hidden() -> None:
    with pytest.raises(DataError, match="no test function TestOne"):
        without_functions(SOURCE, ["TestOne.test_inherited"])
    with pytest.raises(DataError, match="does not parse"):
        without_functions("def (", ["x"])
    assert defined_functions("def (") == frozenset()


@given(st.sets(st.sampled_from(["test_first", "TestAll.test_second", "TestAll.test_third", "TestOne.test_second"])))
def test_exactly_the_named_functions_go(names: set[str]) -> None:
    reduced = without_functions(SOURCE, names)
    compile(reduced, "t.py", "exec")
    assert defined_functions(SOURCE) - defined_functions(reduced) == names
