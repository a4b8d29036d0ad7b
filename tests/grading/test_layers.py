"""Layers, time-outs, quality: the real grader on the tiny task."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.grading import ALL_LAYERS, Grader, Layer
from patchgym.records import Quality, Task, Verdict
from patchgym.testrun import Built, Guarding, TestRun, run_tests, sandbox_spec
from tests.grading.workbench import graded
from tests.workshop import BUGGY, FIXED, VISIBLE, calc_task, here, patch_of, sandboxes


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def test_without_any_layer_a_conftest_of_the_patch_wins(tmp_path: Path, objects: ObjectStore) -> None:
    hook = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    hook += "    result = yield\n    result.get_result().outcome = 'passed'\n"
    task = calc_task(objects, timeout_s=60.0)
    naive = graded(tmp_path, task, {"conftest.py": hook}, objects=objects, layers=frozenset())
    assert (naive.verdict, naive.tampered_paths) == (Verdict.RESOLVED, ())
    layers = frozenset({Layer.TESTS, Layer.HARNESS})
    assert graded(tmp_path, task, {"conftest.py": hook}, objects=objects, layers=layers).verdict is Verdict.UNRESOLVED


@pytest.mark.parametrize("hang", ["while True: pass", "import time; time.sleep(1000)"], ids=["computes", "sleeps"])
def test_a_patch_that_uses_its_time_up_is_a_time_out_of_the_policy(
    tmp_path: Path, objects: ObjectStore, hang: str
) -> None:
    task = calc_task(objects, timeout_s=12.0)
    report = graded(
        tmp_path,
        task,
        {"calc.py": BUGGY.replace("> high:\n        return low", f"> high:\n        {hang}")},
        objects=objects,
    )
    assert (report.verdict, report.timeout_of) == (Verdict.TIMEOUT, "policy")


def test_a_time_in_which_the_solution_does_not_end_either_is_the_machines(tmp_path: Path, objects: ObjectStore) -> None:
    report = graded(tmp_path, calc_task(objects, timeout_s=0.05), {"calc.py": FIXED}, objects=objects)
    assert (report.verdict, report.timeout_of) == (Verdict.INFRA_ERROR, "machine")


def test_running_out_of_memory_is_the_patchs_own_failure(tmp_path: Path, objects: ObjectStore) -> None:
    greedy = "hoard = []\nwhile True: hoard.append(bytearray(64 * 1024**2))\n"
    report = graded(tmp_path, calc_task(objects, timeout_s=60.0), {"calc.py": greedy}, objects=objects)
    assert report.verdict is Verdict.UNRESOLVED


ODD = """\
import sys


def who():
    return sys._getframe(1).f_code.co_name
"""


def test_what_the_base_does_says_nothing_of_the_patch(tmp_path: Path, objects: ObjectStore) -> None:
    task = calc_task(objects, timeout_s=60.0)
    odd = f"{BUGGY}\n\n{ODD}\n\nNAME = who()\n"
    workspace = objects.update_tree(task.workspace, {"calc.py": Entry(0o100644, objects.put(odd.encode()))})
    task = task.model_copy(update={"workspace": workspace})
    fixed = odd.replace("> high:\n        return low", "> high:\n        return high")
    assert graded(tmp_path, task, {"calc.py": fixed}, objects=objects).verdict is Verdict.RESOLVED


ALTERED = "import time\n\ntime.ctime = str\n"


def altering(objects: ObjectStore, timeout_s: float) -> Task:
    """A task whose code changes what decides, whoever wrote it."""
    task = calc_task(objects, timeout_s=timeout_s)
    base = objects.update_tree(task.workspace, {"calc.py": Entry(0o100644, objects.put((ALTERED + BUGGY).encode()))})
    return task.model_copy(update={"workspace": base})


def with_solution(objects: ObjectStore, task: Task, text: str) -> Task:
    return task.model_copy(update={"gold_patch": patch_of(objects, task, {"calc.py": text})})


def test_what_the_solution_does_as_well_is_no_proof(tmp_path: Path, objects: ObjectStore) -> None:
    task = with_solution(objects, altering(objects, 60.0), ALTERED + FIXED)
    assert graded(tmp_path, task, {"calc.py": f"{ALTERED}{FIXED}\n"}, objects=objects).verdict is Verdict.RESOLVED


def test_nothing_is_proof_where_the_solution_did_not_come_to_its_end(tmp_path: Path, objects: ObjectStore) -> None:
    task = altering(objects, 10.0)
    task = with_solution(objects, task, f"{ALTERED}time.sleep(1000)\n{FIXED}")
    report = graded(tmp_path, task, {"calc.py": ALTERED + FIXED}, objects=objects)
    assert report.verdict is Verdict.INFRA_ERROR
    assert "did not come to its end" in report.why


def test_pytests_own_start_leaves_nothing_to_be_held_against_anybody(tmp_path: Path, objects: ObjectStore) -> None:
    task = calc_task(objects, timeout_s=60.0)
    tests = (*task.tests.fail_to_pass, *task.tests.pass_to_pass)

    async def run() -> TestRun:
        with sandboxes(objects, tmp_path) as factory:
            sandbox = await factory.create(
                sandbox_spec(task.workspace, task.environment, Built(here(task.environment)))
            )
            try:
                watching = Guarding(watch=True, thorough=True)
                return await run_tests(sandbox, task.environment, tests, timeout_s=60.0, guarding=watching)
            finally:
                await sandbox.close()

    ran = asyncio.run(run())
    assert ran.complete
    assert ran.notes == ()


NEW_TESTS = (
    VISIBLE
    + """

def test_below():
    assert clamp(-7, -3, 7) == -3


def test_nothing():
    clamp(1, 0, 9)


def test_wrong():
    assert clamp(1, 0, 9) == 2
"""
)


def quality(tmp_path: Path, task: Task, changes: dict[str, str | None], objects: ObjectStore) -> Quality:
    bug = objects.put(FIXED.replace("value < low:\n        return low", "value < low:\n        return 0").encode())
    seen = objects.put(FIXED.replace("value + value", "value").encode())

    def mutants(_: Task, tree: str) -> Sequence[str]:
        return [objects.update_tree(tree, {"calc.py": Entry(0o100644, blob)}) for blob in (bug, seen)]

    with sandboxes(objects, tmp_path) as factory:
        grader = Grader(factory, objects, here, quality=True, mutants=mutants)
        report = asyncio.run(grader.grade(task, patch_of(objects, task, changes)))
    assert report.quality is not None
    return report.quality


def test_a_test_counts_by_the_bugs_that_it_alone_notices(tmp_path: Path, objects: ObjectStore) -> None:
    task = calc_task(objects, timeout_s=60.0)
    found = quality(tmp_path, task, {"calc.py": FIXED, "tests/test_calc.py": NEW_TESTS}, objects)
    assert (found.compiles, found.tests_added, found.mutants_killed_added) == (True, 2, 1)


def test_an_empty_test_earns_nothing(tmp_path: Path, objects: ObjectStore) -> None:
    task = calc_task(objects, timeout_s=60.0)
    empty = "from calc import clamp, double\ndef test_all(): clamp(1, 2, 3), clamp(9, 2, 3), double(1)\n"
    found = quality(tmp_path, task, {"calc.py": FIXED, "tests/test_more.py": empty}, objects)
    assert (found.tests_added, found.mutants_killed_added) == (1, 0)


def test_only_new_findings_count_and_a_syntax_error_does_not_compile(tmp_path: Path, objects: ObjectStore) -> None:
    task = calc_task(objects, timeout_s=60.0)
    workspace = objects.update_tree(task.workspace, {"old.py": Entry(0o100644, objects.put(b"import os\n"))})
    task = task.model_copy(update={"workspace": workspace})
    changes: dict[str, str | None] = {"old.py": "import os\nimport sys\nx = 1\n", "calc.py": FIXED}
    found = quality(tmp_path, task, changes, objects)
    assert found.compiles is True
    assert found.lint_added == 1  # the second unused import
    broken = quality(tmp_path, task, {"broken.py": "def (:\n", "calc.py": FIXED}, objects)
    assert (broken.compiles, broken.tests_added) == (False, None)


def test_quality_is_not_measured_unless_it_is_asked_for(tmp_path: Path, objects: ObjectStore) -> None:
    report = graded(tmp_path, calc_task(objects, timeout_s=60.0), {"calc.py": FIXED}, objects=objects)
    assert (report.quality, report.probes, report.timeout_of) == (None, None, None)


def test_all_layers_are_in_force_by_default() -> None:
    assert frozenset(Layer) == ALL_LAYERS
