"""Which lines an agent is told of beforehand."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.agent import Ranking, brief, shown, tells
from patchgym.agent.briefing import suspicious
from patchgym.content import ObjectStore
from patchgym.sandbox.environments import build_environment
from patchgym.testrun import Built, Coverage, coverage_tool, sandbox_spec
from tests.workshop import calc_task, here, sandboxes


def seen(lines: dict[int, str], path: str = "a.py") -> Coverage:
    """Coverage of one file: each line with the names of the tests that ran it, a letter each."""
    return Coverage({path: {line: frozenset(tests) for line, tests in lines.items()}})


@pytest.mark.parametrize(
    ("lines", "wanted", "found"),
    [
        ({1: "fp", 2: "f", 3: "p"}, 1, [2]),  # 1/sqrt(2) and 1; a line without a failing test never
        ({1: "fp", 2: "f", 3: "p"}, 9, [1, 2]),
        ({1: "f", 2: "fg", 3: "fgpq"}, 2, [1, 2]),  # 1/sqrt(2), 1 and 2/sqrt(8): equal ones in the order of the file
        ({1: "fgpqr", 2: "g"}, 1, [2]),  # 2/sqrt(10) = 0.63, 1/sqrt(2) = 0.71
    ],
)
def test_lines_are_ranked_by_ochiai(lines: dict[int, str], wanted: int, found: list[int]) -> None:
    failing = set("fg") if any("g" in tests for tests in lines.values()) else set("f")
    assert [line for _, line in suspicious(seen(lines), failing, set("pqr"), wanted)] == found


@given(st.dictionaries(st.integers(1, 30), st.text("fgpq"), max_size=20), st.integers(0, 8))
def test_no_more_lines_than_asked_for_in_the_order_of_the_file(lines: dict[int, str], wanted: int) -> None:
    found = suspicious(seen(lines), set("fg"), set("pq"), wanted)
    assert found == sorted(found)
    assert len(found) == min(wanted, sum(bool(set("fg") & set(tests)) for tests in lines.values()))


def test_the_wrong_line_stands_among_the_few_that_are_told(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects)

    async def briefed(lines: int) -> str:
        with sandboxes(objects, tmp_path) as factory:
            tool = coverage_tool(task.environment, build_environment)
            spec = sandbox_spec(task.workspace, task.environment, Built(here(task.environment)), coverage=tool)
            sandbox = await factory.create(spec)
            try:
                return await brief(sandbox, task.view(), objects, lines)
            finally:
                await sandbox.close()

    assert asyncio.run(briefed(1)) == "calc.py:\n6:         return low"
    assert asyncio.run(briefed(3)).splitlines()[0] == "calc.py:"
    hidden = task.model_copy(update={"tests": task.tests.model_copy(update={"hidden": task.tests.fail_to_pass})})
    assert hidden.view().failing_tests == ()
    task = hidden
    assert asyncio.run(briefed(3)) == ""


@pytest.mark.parametrize(
    ("path", "line", "told"),
    [("a.py", 3, True), ("a.py", 30, False), ("b.py", 3, False), ("b.py", 7, True), ("c.py", 7, False)],
)
def test_a_text_tells_of_the_lines_that_stand_in_its_briefing(path: str, line: int, told: bool) -> None:
    text = "This fails:\n- test_a.py::test_one: 7: no\nLines:\na.py:\n3:     return low\n4: b.py:\nb.py:\n7: x = 3: y"
    assert tells(text, path, line) is told


def test_lines_are_told_in_the_order_of_their_ranking_under_the_names_of_their_files(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    view = calc_task(objects).view()
    ranking = Ranking(places=(("calc.py", 6), ("tests/test_calc.py", 1), ("calc.py", 4), ("calc.py", 3)))
    wanted = "calc.py:\n6:         return low\ntests/test_calc.py:\n1: from calc import clamp, double\ncalc.py:\n4: "
    assert shown(ranking, view, objects, 3) == f"{wanted}        return low"
