"""The weak-test score: planted in the solution, noticed or not."""

import asyncio
from pathlib import Path

import pytest

from patchgym.content import ObjectStore, diff_trees
from patchgym.records import Environment, MutantScore, Task
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.prove import prove_task
from tests.records_for_tests import make_task
from tests.workshop import here, sandboxes, tree_of

HEALTHY = """\
def clamp(value, low, high):
    if value < low:
        return low
    if value > high:
        return high
    return value
"""
BROKEN = HEALTHY.replace("if value > high", "if value > low")
STRONG = """\
from calc import clamp

def test_inside(): assert clamp(5, 0, 9) == 5
def test_above(): assert clamp(12, 0, 9) == 9
def test_edges(): assert [clamp(at, 0, 9) for at in (0, 9)] == [0, 9]
def test_below(): assert clamp(-1, 0, 9) == 0
"""
WEAK = """\
from calc import clamp

def test_inside(): assert clamp(5, 0, 9) == 5
def test_above(): assert clamp(12, 0, 9)
"""


def proved(tmp_path: Path, tests: str, failing: tuple[str, ...], passing: tuple[str, ...]) -> Task:
    objects = ObjectStore(tmp_path / "objects")
    before, after = (tree_of(objects, {"calc.py": text, "test_calc.py": tests}) for text in (BROKEN, HEALTHY))
    blob = objects.entries(before)["test_calc.py"].id
    task = make_task()
    named = [tuple(f"test_calc.py::test_{name}" for name in names) for names in (failing, passing)]
    task = task.model_copy(
        update={
            "workspace": before,
            "environment": Environment(python="3.11"),
            "gold_patch": diff_trees(objects, before, after),
            "key_files": ("calc.py",),
            "tests": task.tests.model_copy(
                update={
                    "fail_to_pass": named[0],
                    "pass_to_pass": named[1],
                    "hidden": (),
                    "visible_files": {"test_calc.py": blob},
                    "hidden_files": {},
                }
            ),
        }
    )

    def build(environment: Environment) -> Path:
        return build_environment(environment) if environment.lock else here(environment)

    async def found() -> Task:
        with sandboxes(objects, tmp_path) as factory:
            return await prove_task(task, Bench(factory, objects, build, 2), runs=1, mutants=4)

    return asyncio.run(found())


def score(task: Task) -> MutantScore:
    assert task.validation is not None
    assert task.validation.mutants is not None
    return task.validation.mutants


@pytest.mark.network
def test_strong_tests_notice_what_weak_ones_let_pass(tmp_path: Path) -> None:
    strong = score(proved(tmp_path / "strong", STRONG, ("inside",), ("above", "below", "edges")))
    weak = score(proved(tmp_path / "weak", WEAK, ("inside",), ("above",)))
    assert strong.killed + strong.survived == weak.killed + weak.survived == 4
    assert strong.share_killed is not None
    assert weak.share_killed is not None
    assert weak.share_killed < strong.share_killed
    assert strong.killed >= 3
