"""Outcomes by exact id, through the runner's pipe."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Environment, Outcome
from patchgym.sandbox.environments import build_environment
from patchgym.testrun import Built, TestRun, coverage_tool, run_tests, sandbox_spec
from tests.workshop import here, sandboxes, tree_of

EVERY_KIND = """\
import unittest

import pytest


def test_passes(): pass
def test_fails(): assert 1 == 2
@pytest.fixture
def broken(): raise RuntimeError("set-up")
def test_errors(broken): pass
@pytest.fixture
def leaky():
    yield
    raise RuntimeError("tear-down")
def test_passes_and_then_errors(leaky): pass
@pytest.mark.skip
def test_skipped(): pass
@pytest.mark.xfail
def test_expected_to_fail(): assert 0
@pytest.mark.xfail
def test_expected_to_fail_but_passes(): pass
@pytest.mark.parametrize("value", ["a b", "ä", "x::y", "[z]"])
def test_each(value): assert value != "ä"
class TestGroup(unittest.TestCase):
    def test_method(self): self.assertEqual(1, 1)
"""


def run(
    tmp_path: Path,
    files: Mapping[str, str],
    ids: Sequence[str] = (),
    roots: tuple[str, ...] = ("",),
    cover: Sequence[str] = (),
    timeout_s: float = 30,
    until_failure: bool = False,
    stressed: bool = False,
    tracebacks: int = 8,
) -> TestRun:
    objects = ObjectStore(tmp_path / "objects")
    environment = Environment(python="3.11", lock="", pythonpath=roots)

    async def ran() -> TestRun:
        with sandboxes(objects, tmp_path) as factory:
            tool = coverage_tool(environment, build_environment) if cover else None
            spec = sandbox_spec(tree_of(objects, files), environment, Built(here(environment)), coverage=tool)
            sandbox = await factory.create(spec)
            try:
                return await run_tests(
                    sandbox,
                    environment,
                    ids,
                    timeout_s=timeout_s,
                    cover=cover,
                    until_failure=until_failure,
                    stressed=stressed,
                    tracebacks=tracebacks,
                )
            finally:
                await sandbox.close()

    return asyncio.run(ran())


def test_a_run_can_end_with_the_first_test_that_fails(tmp_path: Path) -> None:
    text = "def test_a(): pass\ndef test_b(): assert 0\ndef test_c(): pass\n"
    ids = [f"test_x.py::test_{name}" for name in "abc"]
    found = run(tmp_path, {"test_x.py": text}, ids, until_failure=True)
    assert [found.outcomes[test] for test in ids] == [Outcome.PASSED, Outcome.FAILED, Outcome.MISSING]
    assert found.complete
    assert [run(tmp_path, {"test_x.py": text}, ids).outcomes[test] for test in ids][2] is Outcome.PASSED


IN_TIME = """
import subprocess, sys, threading, time, timeit
def test_limit(): assert timeit.timeit(lambda: time.sleep(0.1), number=1) < 1
def test_wall():
    start = time.time()
    time.sleep(0.1)
    assert time.time() - start < 1
def test_deadline():
    end = time.monotonic_ns() + 10**9
    time.sleep(0.1)
    assert time.monotonic_ns() < end
def test_ample():
    start = time.perf_counter()
    assert time.perf_counter() - start < 1
def test_process(): subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], check=True, timeout=3)
def test_thread():
    event = threading.Event()
    threading.Timer(0.1, event.set).start()
    assert event.wait(1)
"""


def test_a_test_that_leans_on_a_quick_machine_does_not_pass_when_stressed(tmp_path: Path) -> None:
    at_ease, stressed = (run(tmp_path, {"test_m.py": IN_TIME}, stressed=one) for one in (False, True))
    assert set(at_ease.outcomes.values()) == {Outcome.PASSED}
    failed = {test.partition("::")[2] for test, outcome in stressed.outcomes.items() if outcome is Outcome.FAILED}
    assert failed == {"test_limit", "test_wall", "test_deadline"}


@pytest.mark.parametrize(("tracebacks", "with_frames"), [(2, 2), (5, 5)])
def test_only_so_many_failures_have_a_traceback_and_all_say_what_was_raised(
    tmp_path: Path, tracebacks: int, with_frames: int
) -> None:
    module = "def check(n): raise ValueError(f'no {n}')\n" + "".join(
        f"def test_{number}(): check({number})\n" for number in range(5)
    )
    ran = run(tmp_path, {"test_m.py": module}, tracebacks=tracebacks)
    assert [f"ValueError: no {number}" in ran.failures[f"test_m.py::test_{number}"] for number in range(5)] == [
        True
    ] * 5
    assert sum("test_m.py:1: in check" in text for text in ran.failures.values()) == with_frames


def test_every_kind_of_outcome_has_its_name(tmp_path: Path) -> None:
    found = run(tmp_path, {"test_x.py": EVERY_KIND})
    assert {test.removeprefix("test_x.py::"): outcome for test, outcome in found.outcomes.items()} == {
        "test_passes": Outcome.PASSED,
        "test_fails": Outcome.FAILED,
        "test_errors": Outcome.ERROR,
        "test_passes_and_then_errors": Outcome.ERROR,
        "test_skipped": Outcome.SKIPPED,
        "test_expected_to_fail": Outcome.XFAILED,
        "test_expected_to_fail_but_passes": Outcome.XPASSED,
        "test_each[a b]": Outcome.PASSED,
        "test_each[\\xe4]": Outcome.FAILED,
        "test_each[x::y]": Outcome.PASSED,
        "test_each[[z]]": Outcome.PASSED,
        "TestGroup::test_method": Outcome.PASSED,
    }
    assert "assert 1 == 2" in found.failures["test_x.py::test_fails"]
    assert found.complete
    assert found.evidence == ()


SUBTESTS = """\
import unittest
class TestParts(unittest.TestCase):
    def test_part_is_skipped(self):
        for number in range(3):
            with self.subTest(number=number):
                if number == 1: self.skipTest("not here")
    def test_part_fails(self):
        for number in range(3):
            with self.subTest(number=number):
                self.assertNotEqual(number, 1)
    def test_all_is_skipped(self): self.skipTest("not here")
"""


def test_a_part_that_is_skipped_does_not_skip_its_test(tmp_path: Path) -> None:
    found = run(tmp_path, {"test_x.py": SUBTESTS})
    assert {test.rpartition("::")[2]: outcome for test, outcome in found.outcomes.items()} == {
        "test_part_is_skipped": Outcome.PASSED,
        "test_part_fails": Outcome.FAILED,
        "test_all_is_skipped": Outcome.SKIPPED,
    }


def test_exactly_the_wanted_tests_run(tmp_path: Path) -> None:
    wanted = ["test_x.py::test_fails", "test_x.py::test_each[x::y]", "test_x.py::no_such", "gone.py::test_a"]
    assert run(tmp_path, {"test_x.py": EVERY_KIND}, wanted).outcomes == {
        wanted[0]: Outcome.FAILED,
        wanted[1]: Outcome.PASSED,
        wanted[2]: Outcome.MISSING,
        wanted[3]: Outcome.MISSING,
    }


def test_files_that_cannot_be_collected_are_outcomes_of_their_own_and_the_others_run(tmp_path: Path) -> None:
    files = {
        "test_a.py": "import no_such_module\ndef test_a(): pass\n",
        "test_b.py": "def test_b(): pass\n",
        "test_c.py": "raise RuntimeError('while collecting')\ndef test_c(): pass\n",
        "test_d.py": "def test_d(:\n",
    }
    found = run(tmp_path, files, [f"test_{name}.py::test_{name}" for name in "abcd"])
    assert found.outcomes == {
        "test_a.py::test_a": Outcome.IMPORT_ERROR,
        "test_b.py::test_b": Outcome.PASSED,
        "test_c.py::test_c": Outcome.NOT_COLLECTED,
        "test_d.py::test_d": Outcome.NOT_COLLECTED,
    }
    assert "no_such_module" in found.failures["test_a.py"]


def test_time_that_runs_out_says_nothing_of_the_tests_that_had_not_ended(tmp_path: Path) -> None:
    test = "import time\ndef test_a(): pass\ndef test_b(): time.sleep(60)\ndef test_c(): pass\n"
    found = run(tmp_path, {"test_x.py": test}, [f"test_x.py::test_{name}" for name in "abc"], timeout_s=3)
    assert list(found.outcomes.values()) == [Outcome.PASSED, Outcome.TIMED_OUT, Outcome.TIMED_OUT]
    assert not any(outcome.failing for outcome in found.outcomes.values())


@pytest.mark.network
def test_a_test_that_starts_processes_may_run_any_line(tmp_path: Path) -> None:
    test = "import subprocess, sys, os, thing\ndef test_in():\n    assert thing.one() == 1\ndef test_out():\n"
    test += "    subprocess.run([sys.executable, '-c', 'import thing; thing.one()'], check=True)\n"
    test += (
        "def test_fork():\n    child = os.fork()\n    if not child:\n        os._exit(0)\n    os.waitpid(child, 0)\n"
    )
    files = {"thing.py": "def one():\n    return 1\n", "test_x.py": test}
    found = run(tmp_path, files, cover=["thing.py"])
    assert found.coverage is not None
    assert found.coverage.unwatched == {"test_x.py::test_out", "test_x.py::test_fork"}
    assert found.coverage.only(frozenset({"test_x.py::test_out"}), frozenset({"x"})).unwatched == {
        "test_x.py::test_out",
        "x",
    }


def test_coverage_tells_which_tests_ran_a_line(tmp_path: Path) -> None:
    source = "def half(x):\n    if x % 2:\n        raise ValueError(x)\n    return x // 2\n\n\ndef unused(): return 1\n"
    test = "import pytest, thing\ndef test_even(): assert thing.half(4) == 2\n"
    test += "def test_odd():\n    with pytest.raises(ValueError): thing.half(3)\ndef test_other(): pass\n"
    found = run(tmp_path, {"src/thing.py": source, "test_x.py": test}, roots=("src",), cover=["src/thing.py"])
    even, odd = "test_x.py::test_even", "test_x.py::test_odd"
    assert found.coverage is not None
    assert found.coverage.lines == {
        "src/thing.py": {2: frozenset({even, odd}), 3: frozenset({odd}), 4: frozenset({even})}
    }
    assert found.coverage.tests("src/thing.py", range(3, 9)) == {even, odd}
    assert found.coverage.tests("src/thing.py", [8]) == found.coverage.tests("no.py", [1]) == frozenset()
    assert found.evidence == ()


def test_lines_that_nobody_asked_for_are_evidence_of_interference(tmp_path: Path) -> None:
    forged = """
import os
def test_a():
    for channel in range(3, 64):
        try:
            os.write(channel, b'{"covered": "x", "lines": {}}\\n')
        except OSError:
            pass
"""
    assert run(tmp_path, {"test_a.py": forged}).evidence


def test_code_comes_from_the_stated_roots_also_in_subprocesses(tmp_path: Path) -> None:
    test = "import subprocess, sys, thing\ndef test_a():\n    assert thing.X == 7\n"
    test += "    assert subprocess.run([sys.executable, '-c', 'import thing; assert thing.X == 7']).returncode == 0\n"
    found = run(tmp_path, {"src/thing.py": "X = 7\n", "tests/test_a.py": test}, roots=("src",))
    assert found.outcomes == {"tests/test_a.py::test_a": Outcome.PASSED}


def test_the_projects_own_options_do_not_change_how_tests_run(tmp_path: Path) -> None:
    ini = "[pytest]\naddopts = --no-such-option -k nothing\n"
    assert run(tmp_path, {"pytest.ini": ini, "test_a.py": "def test_a(): pass\n"}).outcomes == {
        "test_a.py::test_a": Outcome.PASSED
    }


def test_a_plug_in_planted_in_the_workspace_is_not_loaded(tmp_path: Path) -> None:
    files = {
        "evil.py": "def pytest_runtest_setup(item):\n    raise SystemExit('loaded')\n",
        "evil-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1\n",
        "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
        "test_a.py": "def test_a(): pass\n",
    }
    assert run(tmp_path, files).outcomes == {"test_a.py::test_a": Outcome.PASSED}


def test_a_crash_loses_only_what_had_not_run(tmp_path: Path) -> None:
    test = "import os\ndef test_a(): pass\ndef test_b(): os.kill(os.getpid(), 11)\ndef test_c(): pass\n"
    ids = [f"test_a.py::test_{name}" for name in "abc"]
    found = run(tmp_path, {"test_a.py": test}, ids)
    assert list(found.outcomes.values()) == [Outcome.PASSED, Outcome.MISSING, Outcome.MISSING]
    assert not found.complete
    assert found.process.signal == 11
