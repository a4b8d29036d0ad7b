"""The tasks of a run, each as the agent saw it and whole, with its attempts side by side."""

from collections.abc import Sequence
from typing import NamedTuple

from patchgym.errors import DataError, UsageError
from patchgym.records import Outcome, Task, Trajectory
from patchgym.view.diffs import StateDiff, patch_files
from patchgym.view.opened import OpenedRun
from patchgym.view.pages.step import tree_facts
from patchgym.view.query import Query
from patchgym.view.site import Site

_PAGE = 100
_BESIDE = 12
_TESTS = 80
_BESIDE_BYTES = 32 << 20
_ORDERS = {
    "": "first",
    "task": "task",
    "attempts": "attempts DESC",
    "solved": "solved",
    "reward": "reward",
    "apart": "apart DESC",
}


class Beside(NamedTuple):
    """An attempt beside the others at its task."""

    attempt: Trajectory
    patch: StateDiff | None
    actions: Sequence[tuple[str, int]]
    """Its tools with how often it used them."""


class TestRow(NamedTuple):
    """A test over the attempts."""

    name: str
    part: str
    outcomes: Sequence[Outcome | None]


def tasks_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """All tasks with what their attempts came to."""
    order = query.choice("sort", tuple(_ORDERS), "")
    text = f"""
        SELECT task, max(split) AS split, count(*) AS attempts, sum(solved) AS solved, count(solved) AS graded,
               avg(reward) AS reward, max(reward) - min(reward) AS apart, avg(steps) AS steps,
               sum(hacked) AS hacked, sum(marks > 0) AS marked, min(rowid) AS first
        FROM attempts WHERE instr(lower(task), lower(?)) GROUP BY task ORDER BY {_ORDERS[order]}
    """
    with run.index.open() as connection:
        rows = connection.execute(text, (query.text("q"),)).fetchall()
    tried = {row["task"] for row in rows}
    untried = [name for name in run.tasks if name not in tried and query.text("q").lower() in name.lower()]
    pages = max(1, -(-len(rows) // _PAGE))
    page = min(query.number("page", 1, 1), pages)
    return "tasks.html", {
        "rows": rows[_PAGE * (page - 1) : _PAGE * page],
        "total": len(rows),
        "untried": untried,
        "query": query,
        "sort": order,
        "page_number": page,
        "pages": pages,
    }


def task_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """One task. ``whole`` shows what the agent never saw."""
    name = query.needed("id")
    task = run.tasks.get(name)
    with run.index.open() as connection:
        rows = connection.execute(
            "SELECT id, bytes, phase FROM attempts WHERE task = ? ORDER BY phase, sample, rowid", (name,)
        ).fetchall()
        trees = connection.execute("SELECT * FROM trees WHERE task = ?", (name,)).fetchall()
    if task is None and not rows:
        raise UsageError(f"{run.name} holds no task {name}")
    first = min(query.number("first", 0), max(0, len(rows) - 1))
    beside = attempts_beside(run, [(row["id"], row["bytes"]) for row in rows[first : first + _BESIDE]])
    return "task.html", {
        "name": name,
        "task": task,
        "view": task.view() if task is not None else None,
        "whole": bool(query.text("whole")),
        "gold": patch_files(task.gold_patch) if task is not None else None,
        "beside": beside,
        "tests": test_rows(task, [one.attempt for one in beside])[:_TESTS],
        "first": first,
        "step_size": _BESIDE,
        "total": len(rows),
        "trees": trees,
        "query": query,
    }


def attempts_beside(run: OpenedRun, names: Sequence[tuple[str, int]]) -> list[Beside]:
    """Attempts as columns. What is too large together is left out from the end."""
    found: list[Beside] = []
    room = _BESIDE_BYTES
    for name, length in names:
        room -= length
        if found and room < 0:
            break
        one = run.trajectory(name)
        used: dict[str, int] = {}
        for step in one.steps:
            tool = step.action.tool if step.action is not None else "(unreadable)"
            used[tool] = used.get(tool, 0) + 1
        found.append(Beside(one, patch_files(one.final_patch) if one.final_patch else None, list(used.items())[:8]))
    return found


def test_rows(task: Task | None, attempts: Sequence[Trajectory]) -> list[TestRow]:
    """The tests over attempts: each that is to be fixed, then those that did not pass everywhere. Of the latter, those
    that came out alike share a row."""
    to_fix = list(task.tests.fail_to_pass) if task is not None else []
    hidden = set(task.tests.hidden) if task is not None else set()
    rows = []
    alike: dict[tuple[Outcome | None, ...], list[str]] = {}
    for name in _all_tests(task, attempts):
        outcomes = tuple(one.report.tests.get(name) if one.report is not None else None for one in attempts)
        if name in to_fix:
            rows.append(TestRow(name, "hidden" if name in hidden else "to be fixed", outcomes))
        elif {outcome for outcome in outcomes if outcome is not None} - {Outcome.PASSED}:
            alike.setdefault(outcomes, []).append(name)
    for outcomes, names in alike.items():
        more = f"{len(names)} tests that must stay passing" if len(names) > 1 else "must stay passing"
        rows.append(TestRow(names[0], more, outcomes))
    return rows


def _all_tests(task: Task | None, attempts: Sequence[Trajectory]) -> dict[str, None]:
    names: dict[str, None] = dict.fromkeys(task.tests.fail_to_pass) if task is not None else {}
    for one in attempts:
        if one.report is not None:
            names |= dict.fromkeys(one.report.tests)
    return names


def workspace_page(site: Site, run: OpenedRun, query: Query) -> tuple[str, dict[str, object]]:
    """The files that a task begins with."""
    task = run.tasks.get(query.needed("task"))
    if task is None:
        raise UsageError(f"{run.name} holds no task {query.text('task')}")
    if task.workspace not in run.objects:
        raise DataError(f"The workspace of {task.id} is not in the run", why="No attempt at it has begun here.")
    return "workspace.html", {"task": task, **tree_facts(run, task.workspace, query)}
