"""Chances of bugs: what raises and what lowers them."""

from patchgym.tasks.bugs.chances import Chances, Witnesses, kill_rate, subtlety
from patchgym.tasks.bugs.survey import survey
from patchgym.testrun import Coverage

CHANCES = Chances(survey({}, {}), None, least_functions=2, most_failing=40)


def seen(count: int, operators: tuple[str, ...] = ("boundary",), cases: int = 1) -> float:
    """The chance under so many test functions of so many cases each."""
    functions = frozenset(f"t.py:test_{at}" for at in range(count))
    tests = frozenset(f"{function}[{case}]" for function in functions for case in range(cases))
    return CHANCES.seen_by(Witnesses(tests, functions), operators)


def test_fewer_test_functions_than_asked_for_are_no_chance() -> None:
    assert seen(1, cases=9) == 0.0
    assert 0.0 < seen(2) < kill_rate("boundary")


def test_a_test_function_that_several_classes_take_over_counts_once() -> None:
    tests = frozenset({"t.py::TestPlain::test_read", "t.py::TestTimed::test_read", "u.py::TestTimed::test_read[1]"})
    chances = Chances(survey({}, {}), Coverage({"a.py": {1: tests}}), least_functions=2, most_failing=40)
    found = chances.witnesses("a.py", "read", range(1, 2))
    assert found.tests == tests
    assert found.functions == {"test_read"}


def test_more_test_functions_raise_it() -> None:
    assert seen(2) < seen(3) < seen(20)


def test_several_bugs_at_once_show_sooner() -> None:
    assert seen(5, ("boundary", "constant")) > max(seen(5, ("boundary",)), seen(5, ("constant",)))


def test_more_tests_than_may_fail_lower_it() -> None:
    assert seen(20, cases=2) > seen(20, cases=3) > seen(20, cases=10)


def test_a_loud_operator_fails_too_many_tests_sooner_than_a_quiet_one() -> None:
    loud, quiet = ("wrong_return",), ("boundary",)
    assert (subtlety("wrong_return") or 1) < (subtlety("boundary") or 0)
    assert seen(20, loud, cases=4) / seen(20, loud) < seen(20, quiet, cases=4) / seen(20, quiet)


def test_an_operator_that_is_not_known_is_middling() -> None:
    assert kill_rate("model:x") == 0.5
    assert subtlety("model:x") is None
