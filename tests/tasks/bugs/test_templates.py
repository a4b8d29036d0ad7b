"""Statements from templates: what they hold, and what they never hold."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.errors import DataError
from patchgym.tasks.bugs.survey import functions_of
from patchgym.tasks.bugs.symptoms import Symptom
from patchgym.tasks.bugs.templates import from_diff, removal_statement, symptom_statement, touched_functions

WRONG = Symptom("value", "clamp", "clamp(12, 0, 9)", expected="9", got="0")
RAISED = Symptom("raised", "clamp", "clamp(1)", error="TypeError: too few")
SILENT = Symptom("silent", "clamp", error="ValueError")
CHECK = Symptom("check", "", got="assert 0")
BEFORE = {
    "calc.py": '''\
def clamp(value, low, high):
    """Value, kept between low and high.

    Both ends count.
    """
    if value > high:
        return low
    return _plain(value)


def _plain(value):
    return value


def other(value):
    """Not touched."""
    return value
'''
}
AFTER = {
    "calc.py": BEFORE["calc.py"].replace("return low", "return high_secret(high)").replace("Both ends", "All ends")
    + '\n\ndef high_secret(high):\n    """The upper end."""\n    return high\n'
}
texts = st.text(min_size=1, max_size=60)
symptoms = st.builds(
    Symptom,
    kind=st.sampled_from(["value", "raised", "silent", "check"]),
    name=texts | st.just(""),
    call=texts | st.just(""),
    expected=texts,
    got=texts,
    error=texts,
)


@pytest.mark.parametrize(
    ("symptom", "parts"),
    [
        (WRONG, ["`clamp(12, 0, 9)`", "`9`", "`0`"]),
        (RAISED, ["`clamp(1)`", "`TypeError: too few`"]),
        (SILENT, ["`clamp`", "`ValueError`"]),
        (CHECK, ["`assert 0`"]),
    ],
)
def test_a_statement_tells_the_package_and_what_was_seen(symptom: Symptom, parts: list[str]) -> None:
    for seed in range(12):  # whatever wording is drawn
        statement = symptom_statement("calc", [symptom], str(seed))
        assert "calc" in statement
        assert all(part in statement for part in parts), statement


def test_the_seed_chooses_the_wording() -> None:
    statements = {symptom_statement("calc", [WRONG], str(seed)) for seed in range(40)}
    assert len(statements) > 10
    assert symptom_statement("calc", [WRONG], "1") == symptom_statement("calc", [WRONG], "1")


def test_the_most_telling_symptoms_are_told_and_none_twice() -> None:
    many = [CHECK, *[Symptom("value", "f", f"f({n})", expected="1", got=f"{n}") for n in range(5)], WRONG, WRONG]
    statement = symptom_statement("calc", many, "0")
    assert "assert 0" not in statement
    assert "`f(0)`" in statement
    assert "`f(4)`" not in statement


def test_without_a_symptom_there_is_no_statement() -> None:
    with pytest.raises(DataError, match="no symptom"):
        symptom_statement("calc", [], "0")
    with pytest.raises(DataError, match="no symptom"):
        symptom_statement("calc", [Symptom("value", "f")], "0")


@given(st.lists(symptoms, min_size=1, max_size=4), st.integers(0, 50))
def test_values_go_in_as_data(found: list[Symptom], seed: int) -> None:
    statement = symptom_statement("calc", found, str(seed))
    assert statement.count("\n") == 1
    shown = [" ".join(part.split()) for each in found for part in (each.got, each.error)]
    assert any(part in statement for part in shown)


def test_braces_and_backticks_in_a_value_mean_nothing() -> None:
    statement = symptom_statement("calc", [Symptom("value", "f", "f()", expected="{call}", got="a `b` ``c``")], "3")
    assert "`{call}`" in statement
    assert "``` a `b` ``c`` ```" in statement


def test_touched_functions_keep_their_docstring_from_before() -> None:
    found = {each.name: each for each in touched_functions(BEFORE, AFTER)}
    assert found.keys() == {"clamp", "high_secret"}
    assert found["clamp"].docstring == "Value, kept between low and high.\n\nBoth ends count."
    assert (found["clamp"].missing, found["high_secret"].missing) == (False, True)


def test_a_change_is_told_by_behaviour() -> None:
    statement = from_diff("calc", BEFORE, AFTER, [WRONG], "0")
    assert "`clamp`" in statement
    assert "> Value, kept between low and high." in statement
    assert "`clamp(12, 0, 9)`" in statement
    assert "`high_secret`" in statement
    assert "> The upper end." in statement


def test_functions_belong_together_only_where_there_are_several() -> None:
    after = {"calc.py": BEFORE["calc.py"].replace("return low", "return high")}
    for seed in range(6):
        assert "`clamp`, `high_secret`" in from_diff("calc", BEFORE, AFTER, [], str(seed))
        assert from_diff("calc", BEFORE, after, [], str(seed)).count("`clamp`") == 1


def test_a_change_is_told_without_its_text() -> None:
    after = {"calc.py": BEFORE["calc.py"].replace("return low", "return max(low, high)").replace("Both ends", "All")}
    for seed in range(20):
        statement = from_diff("calc", BEFORE, after, [], str(seed))
        for line in ("return low", "return max(low, high)", "All count", "if value > high"):
            assert line not in statement
        assert not re.search(r"\bline \d|\.py:\d", statement)


def test_private_functions_are_not_told() -> None:
    after = {
        "calc.py": BEFORE["calc.py"].replace("def _plain(value):\n    return value", "def _plain(value):\n    return 0")
    }
    assert "_plain" not in from_diff("calc", BEFORE, after, [WRONG], "0")
    with pytest.raises(DataError, match="nothing to tell"):
        from_diff("calc", BEFORE, after, [], "0")


def test_a_long_docstring_is_cut_at_a_paragraph() -> None:
    text = "First.\n\n    " + "Second paragraph goes on. " * 30
    (facts,) = functions_of("a.py", f'def f():\n    """{text}"""\n    return 1\n')
    statement = removal_statement("calc", facts, "0")
    assert statement.endswith("> First.")
    assert "`f`" in statement
