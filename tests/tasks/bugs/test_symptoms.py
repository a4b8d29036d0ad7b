"""Reading what went wrong out of short pytest tracebacks, real ones of this pytest."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.tasks.bugs.symptoms import Symptom, symptom_of

SOURCE = """\
def f(x):
    return x


class K:
    def m(self, x):
        return x


def secret_helper(x):
    raise KeyError(x)


def g(x):
    return secret_helper(x)


class Opaque:
    pass
"""
TESTS = """\
import unittest

import pytest

from pack import K, Opaque, f, g


def test_equal():
    assert f(3) == 4


def test_method():
    assert K().m([1, 2]) == [1, 3], "told by the test"


def test_expected_first():
    assert 4 == f(3)


def test_inside_a_builtin():
    assert len(f("abc")) == 2


def test_variable():
    value = [1]
    assert f(value) == 2


def test_raised():
    found = g("a")
    assert found == 1


def test_not_raised():
    with pytest.raises(ValueError):
        f(3)


def test_long():
    assert f(
        "abc"
    ) == "abd"


def test_falsy():
    assert f(0)


def test_address():
    assert f(Opaque()) == 1


def test_cut():
    made = {"a": "x" * 300, "b": 1, "c": "y" * 300}
    assert f(made) == {**made, "b": 2}


def test_cut_alike():
    assert f("x" * 300 + "abc" + "y" * 300) == "x" * 300 + "abd" + "y" * 300


def test_of_a_variable():
    made = K()
    assert made.m(3) == 4


def test_of_something_else():
    assert "a-b".replace("-", f("+")).startswith("a-")


def test_mentions_a_line():
    assert f("x.py:12 at line 3, column 4") == ""


class TestCase(unittest.TestCase):
    def test_equal(self):
        self.assertEqual(f(1), 2)

    def test_equal_turned(self):
        self.assertEqual(2, f(1))

    def test_not_raised(self):
        self.assertRaises(ValueError, f, 1)
"""
EXPECTED = {
    "test_equal": Symptom("value", "f", "f(3)", expected="4", got="3"),
    "test_method": Symptom("value", "K.m", "K().m([1, 2])", expected="[1, 3]", got="[1, 2]"),
    "test_expected_first": Symptom("value", "f", "f(3)", expected="4", got="3"),
    "test_inside_a_builtin": Symptom("value", "f", "f('abc')", expected="2", got="3"),
    "test_variable": Symptom("value", "f", "", expected="2", got="[1]"),
    "test_raised": Symptom("raised", "g", "g('a')", error="KeyError: 'a'"),
    "test_not_raised": Symptom("silent", "", "", error="ValueError"),
    "test_long": Symptom("value", "", "", expected="'abd'", got="'abc'"),
    "test_falsy": Symptom("check", "f", "f(0)", got="assert 0"),
    "test_address": Symptom("value", "f", "f(Opaque())", expected="1", got="<pack.Opaque>"),
    "TestCase.test_equal": Symptom("value", "f", "f(1)", expected="2", got="1"),
    "TestCase.test_equal_turned": Symptom("value", "f", "f(1)", expected="2", got="1"),
    "TestCase.test_not_raised": Symptom("silent", "", "", error="ValueError"),
}


@pytest.fixture(scope="module")
def tracebacks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Failures of the test file by test, as the runner reports them."""
    folder = tmp_path_factory.mktemp("failing")
    Path(folder, "pack.py").write_text(SOURCE)
    Path(folder, "test_pack.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "no:cacheprovider", "test_pack.py"]
    told = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout
    found: dict[str, str] = {}
    name = ""
    for line in told.splitlines(keepends=True):
        if line.startswith("___"):
            name = line.strip("_ \n")
        elif line.startswith("==="):
            name = ""
        elif name:
            found[name] = found.get(name, "") + line
    return found


def is_source(path: str) -> bool:
    """What is the package's own code there."""
    return path == "pack.py"


@pytest.mark.parametrize("test", list(EXPECTED))
def test_a_failure_is_told(tracebacks: dict[str, str], test: str) -> None:
    assert symptom_of(tracebacks[test], is_source) == EXPECTED[test]


def test_source_lines_in_a_traceback_are_not_told(tracebacks: dict[str, str]) -> None:
    assert "secret_helper" in tracebacks["test_raised"]
    assert "secret_helper" not in str(symptom_of(tracebacks["test_raised"], is_source))


def test_no_place_in_a_file_is_told(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_mentions_a_line"], is_source)
    assert found is not None
    assert "12" not in found.got
    assert "line" not in found.got


def test_of_what_pytest_cuts_the_difference_is_told(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_cut"], is_source)
    assert found == Symptom("value", "f", "", expected="{'b': 2}", got="{'b': 1}")


def test_what_looks_alike_is_not_told(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_cut_alike"], is_source)
    assert found is not None
    assert found.got == found.expected == "" or found.got != found.expected


def test_a_call_of_the_package_is_told_from_others_by_its_names(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_of_something_else"], is_source, names={"f", "K", "m", "pack"})
    assert found is not None
    assert (found.name, found.call) == ("f", "f('+')")


def test_a_variable_of_the_test_is_not_told(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_of_a_variable"], is_source, names={"f", "K", "m", "pack"})
    assert found == Symptom("value", "m", "", expected="4", got="3")


def test_a_known_name_stands_in_where_the_test_shows_none(tracebacks: dict[str, str]) -> None:
    found = symptom_of(tracebacks["test_not_raised"], is_source, exercised="pack.f")
    assert found is not None
    assert found.name == "pack.f"


def test_a_traceback_without_explanation_has_no_symptom() -> None:
    assert symptom_of("", is_source) is None
    assert symptom_of("Segmentation fault\n", is_source) is None


@given(
    st.text()
    | st.lists(st.sampled_from(["E   assert 1 ==", "E", "a.py:1: in f", "    f(", "x", "E  K: a"])).map("\n".join)
)
def test_any_text_can_be_read(text: str) -> None:
    found = symptom_of(text, is_source)
    assert found is None or all("\n" not in part for part in (found.name, found.call, found.got, found.error))
