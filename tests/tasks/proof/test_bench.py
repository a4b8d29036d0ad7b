"""What is found out of a healthy suite."""

import asyncio
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.errors import EnvironmentBuildError
from patchgym.records import Environment, Outcome
from patchgym.sandbox import Sandbox, SandboxFactory, SandboxSpec
from patchgym.sandbox.environments import build_environment
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.healthy import Healthy, Suites
from tests.workshop import here, sandboxes, tree_of

SOURCE = "def half(x):\n    return x // 2\n"
TESTS = """\
import random, sys
import calc

def test_half(): assert calc.half(4) == 2
def test_flaky(): assert random.random() < 0.5
def test_fails(): assert calc.half(4) == 3
"""


def healthy(tmp_path: Path, tests: str, runs: int) -> Healthy:
    objects = ObjectStore(tmp_path / "objects")
    tree = tree_of(objects, {"calc.py": SOURCE, "test_calc.py": tests})

    def build(environment: Environment) -> Path:
        return build_environment(environment) if environment.lock else here(environment)

    async def found() -> Healthy:
        with sandboxes(objects, tmp_path) as factory:
            bench = Bench(factory, objects, build, concurrency=2)
            environment = Environment(python="3.11")
            return await bench.healthy(tree, environment, lambda path: path.startswith("test_"), runs)

    return asyncio.run(found())


@pytest.mark.network
def test_flaky_tests_are_told_from_those_that_pass_and_those_that_fail(tmp_path: Path) -> None:
    found = healthy(tmp_path, TESTS, runs=12)  # all twelve agree once in two thousand times
    assert found.passed == {"test_calc.py::test_half"}
    assert list(found.flaky) == ["test_calc.py::test_flaky"]
    assert set(found.flaky["test_calc.py::test_flaky"]) == {Outcome.PASSED, Outcome.FAILED}
    assert found.failing == 1
    assert found.coverage is not None
    assert "test_calc.py::test_half" in found.coverage.tests("calc.py", [2])


@pytest.mark.network
def test_a_test_that_leans_on_one_before_it_is_flaky(tmp_path: Path) -> None:
    leaning = "import calc\nstate = []\ndef test_first(): state.append(calc.half(4))\n"
    leaning += "def test_leans(): assert state == [2]\n"
    found = healthy(tmp_path, leaning, runs=2)
    assert found.passed == {"test_calc.py::test_first"}
    assert found.flaky == {"test_calc.py::test_leans": (Outcome.PASSED, Outcome.FAILED)}


@pytest.mark.network
def test_tests_that_watching_disturbs_may_notice_anything(tmp_path: Path) -> None:
    traced = "import calc, sys\ndef test_half(): assert calc.half(4) == 2\n"
    traced += "def test_untraced(): assert sys.gettrace() is None\n"
    found = healthy(tmp_path, traced, runs=1)
    assert len(found.passed) == 2
    assert found.coverage is not None
    assert found.coverage.tests("calc.py", [2]) == {"test_calc.py::test_half"}
    assert found.coverage.unwatched == {"test_calc.py::test_untraced"}


@pytest.mark.network
def test_a_suite_that_is_kept_is_not_run_again(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    tree = tree_of(objects, {"calc.py": SOURCE, "test_calc.py": TESTS})
    created = 0

    class Counting:
        """Sandboxes, counted."""

        def __init__(self, inner: SandboxFactory) -> None:
            self._inner, self.kind = inner, inner.kind

        async def create(self, spec: SandboxSpec) -> Sandbox:
            nonlocal created
            created += 1
            return await self._inner.create(spec)

    def build(environment: Environment) -> Path:
        return build_environment(environment) if environment.lock else here(environment)

    def found(python: str, runs: int) -> Healthy:
        with sandboxes(objects, tmp_path) as factory:
            bench = Bench(Counting(factory), objects, build, 2, Suites(tmp_path / "suites"))
            environment = Environment(python=python)
            return asyncio.run(bench.healthy(tree, environment, lambda path: path.startswith("test_"), runs))

    first = found("3.11", 2)
    assert (created, first.coverage is not None) == (3, True)
    assert found("3.11", 2) == first
    assert created == 3
    found("3.11", 1)
    assert created == 5


@pytest.mark.network
def test_a_suite_that_watching_disturbs_has_no_coverage(tmp_path: Path) -> None:
    found = healthy(tmp_path, "import calc, sys\ndef test_untraced(): assert sys.gettrace() is None\n", runs=1)
    assert len(found.passed) == 1
    assert found.coverage is None


@pytest.mark.network
def test_only_tests_that_decide_are_seen_to_run_lines(tmp_path: Path) -> None:
    skipping = "import calc, pytest\ndef test_half(): assert calc.half(4) == 2\n"
    skipping += "def test_skips():\n    calc.half(2)\n    pytest.skip('no more')\n"
    found = healthy(tmp_path, skipping, runs=1)
    assert found.coverage is not None
    assert found.coverage.tests("calc.py", [2]) == {"test_calc.py::test_half"}


@pytest.mark.network
def test_a_suite_of_which_nothing_passes_is_named(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentBuildError, match="does not pass"):
        healthy(tmp_path, "import calc\ndef test_half(): assert calc.half(4) == 3\n", runs=1)
