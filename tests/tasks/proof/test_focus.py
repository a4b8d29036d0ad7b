"""Which tests are run first: all that can notice a change, and no others where that can be told."""

from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.tasks.proof.focus import focus
from patchgym.testrun import Coverage
from tests.workshop import tree_of

HEALTHY = """\
LIMIT = 9


def clamp(value, low=0):
    if value < low:
        return low
    elif value > LIMIT:
        return LIMIT
    try:
        found = (
            value
            + 0
        )
    except ValueError:
        found = low
    return found


def other():
    return 1
"""
COVERAGE = Coverage(
    {
        "calc.py": {
            5: frozenset("abc"),
            6: frozenset("a"),
            7: frozenset("bc"),
            8: frozenset("b"),
            9: frozenset("c"),
            10: frozenset("c"),
            11: frozenset("c"),
            16: frozenset("c"),
            20: frozenset("d"),
        }
    }
)


def noticed(tmp_path: Path, broken: str, coverage: Coverage | None = COVERAGE, **more: str) -> set[str] | None:
    objects = ObjectStore(tmp_path)
    before = tree_of(objects, {"calc.py": broken, "test_calc.py": "new", **dict.fromkeys(more, "")})
    after = tree_of(objects, {"calc.py": HEALTHY, "test_calc.py": "", **more})
    found = focus(objects, before, after, coverage, lambda path: path.startswith("test_"))
    return None if found is None else set(found)


@pytest.mark.parametrize(
    ("old", "new", "tests"),
    [
        ("        return low\n    elif", "        return 0\n    elif", "a"),
        ("if value < low", "if value <= low", "abc"),
        ("elif value > LIMIT", "elif value >= LIMIT", "bc"),
        ("+ 0", "+ 1", "c"),
        ("return 1", "return 2", "d"),
        ("    return found\n", "    return found\n    return 1\n", "c"),
        ("    return found\n", "", "c"),
        ("except ValueError", "except TypeError", "abc"),
        ("found = low", "found = 1", "abc"),
        ("low=0", "low=1", "abc"),
    ],
)
def test_the_tests_of_a_changed_statement(tmp_path: Path, old: str, new: str, tests: str) -> None:
    assert HEALTHY.count(old) == 1
    found = noticed(tmp_path, HEALTHY.replace(old, new))
    assert found is not None
    assert set(tests) <= found
    assert "d" not in found or tests == "d"


def test_two_changes_are_noticed_by_the_tests_of_both(tmp_path: Path) -> None:
    assert noticed(tmp_path, HEALTHY.replace("return LIMIT", "return 0").replace("return 1", "return 2")) == set("bd")


def test_what_runs_on_import_may_be_noticed_by_every_test(tmp_path: Path) -> None:
    assert noticed(tmp_path, HEALTHY.replace("LIMIT = 9", "LIMIT = 8")) is None


def test_without_coverage_and_in_other_files_every_test_may_notice(tmp_path: Path) -> None:
    assert noticed(tmp_path, HEALTHY.replace("+ 0", "+ 1"), None) is None
    assert noticed(tmp_path, HEALTHY.replace("+ 0", "+ 1"), data="x\n") is None


def test_a_change_of_tests_alone_is_noticed_by_none(tmp_path: Path) -> None:
    assert noticed(tmp_path, HEALTHY) == set()
