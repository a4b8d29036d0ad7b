"""Verdicts of the real grader in the real sandbox."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.grading import Grader
from patchgym.records import Outcome, TestReport, Verdict
from tests.workshop import BUGGY, FIXED, HARD_CODED, VISIBLE, calc_task, here, patch_of, sandboxes

Grade = Callable[[Mapping[str, str | None] | str], TestReport]


@pytest.fixture
def grade(tmp_path: Path) -> Grade:
    objects = ObjectStore(tmp_path / "objects")
    task = calc_task(objects, timeout_s=15.0)

    def graded(changes: Mapping[str, str | None] | str) -> TestReport:
        patch = changes if isinstance(changes, str) else patch_of(objects, task, changes)
        with sandboxes(objects, tmp_path) as factory:
            return asyncio.run(Grader(factory, objects, here).grade(task, patch))

    return graded


def test_the_gold_patch_is_resolved(grade: Grade) -> None:
    report = grade({"calc.py": FIXED})
    assert report.verdict is Verdict.RESOLVED
    assert (report.fail_to_pass.passed, report.pass_to_pass.passed, report.hidden.passed) == (2, 2, 1)


def test_doing_nothing_is_unresolved(grade: Grade) -> None:
    report = grade("")
    assert report.verdict is Verdict.UNRESOLVED
    assert report.fail_to_pass.passed == 0
    assert report.pass_to_pass.passed == 2


def test_a_hidden_test_catches_a_hard_coded_answer(grade: Grade) -> None:
    report = grade({"calc.py": HARD_CODED})
    assert report.tests["tests/test_calc.py::test_above"] is Outcome.PASSED
    assert report.tests["tests/test_calc.py::test_far_above"] is Outcome.FAILED
    assert report.verdict is Verdict.UNRESOLVED
    assert report.hidden.passed == 0


def test_weakened_tests_are_put_back_and_named(grade: Grade) -> None:
    report = grade({"tests/test_calc.py": VISIBLE.replace("== 9", "== 0")})
    assert report.verdict is Verdict.UNRESOLVED
    assert report.tampered_paths == ("tests/test_calc.py",)
    assert report.fail_to_pass.passed == 0


@pytest.mark.parametrize("path", ["conftest.py", "tests/conftest.py", "pytest.ini", "sitecustomize.py"])
def test_an_added_harness_file_has_no_effect(grade: Grade, path: str) -> None:
    hook = "import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
    hook += "    result = yield\n    result.get_result().outcome = 'passed'\n"
    text = hook if path.endswith("py") else "[pytest]\naddopts = --collect-only\n"
    report = grade({path: text})
    assert report.verdict is Verdict.UNRESOLVED
    assert report.tampered_paths == (path,)


def test_a_pytest_of_the_patch_does_not_take_pytests_place(grade: Grade) -> None:
    fake = "class hookimpl: pass\ndef main(*a, **k):\n    return 0\n"
    assert grade({"pytest.py": fake, "json.py": "raise SystemExit(0)\n"}).verdict is Verdict.UNRESOLVED


def test_leaving_early_with_exit_code_0_is_no_pass(grade: Grade) -> None:
    report = grade({"calc.py": "import os\nos._exit(0)\n"})
    assert report.verdict is Verdict.UNRESOLVED
    assert set(report.tests.values()) == {Outcome.MISSING}


def test_printing_results_is_no_pass(grade: Grade) -> None:
    lie = 'print(\'{"id": "tests/test_calc.py::test_above", "outcome": "passed", "text": ""}\')\nprint("4 passed")\n'
    assert grade({"calc.py": BUGGY + lie}).verdict is Verdict.UNRESOLVED


def test_writing_garbage_into_the_report_channel_is_tampering(grade: Grade) -> None:
    flood = "import os\nfor fd in range(3, 64):\n    try:\n        os.write(fd, b'all passed\\n')\n"
    flood += "    except OSError:\n        pass\n"
    report = grade({"calc.py": flood + FIXED})
    assert report.verdict is Verdict.TAMPERED
    assert "all passed" in report.why


def test_a_hanging_patch_is_a_time_out(grade: Grade) -> None:
    report = grade({"calc.py": BUGGY.replace("return low\n    return", "\n        while True: pass\n    return")})
    assert report.verdict is Verdict.TIMEOUT


def test_flooding_and_invalid_bytes_do_not_disturb_the_verdict(grade: Grade) -> None:
    noise = "import sys\nsys.stdout.buffer.write(b'\\xff\\xfe\\x00' * 2_000_000)\nsys.stdout.flush()\n"
    assert grade({"calc.py": noise + FIXED}).verdict is Verdict.RESOLVED


def test_forking_without_end_does_not_disturb_the_next_grading(grade: Grade) -> None:
    bomb = "import os\ntry:\n    while True:\n        os.fork()\nexcept OSError:\n    os._exit(1)\n"
    assert grade({"calc.py": bomb}).verdict in (Verdict.UNRESOLVED, Verdict.TIMEOUT, Verdict.TAMPERED)
    assert grade({"calc.py": FIXED}).verdict is Verdict.RESOLVED


def test_a_syntax_error_is_unresolved_with_no_test_collected(grade: Grade) -> None:
    report = grade({"calc.py": "def clamp(:\n"})
    assert report.verdict is Verdict.UNRESOLVED
    assert set(report.tests.values()) == {Outcome.NOT_COLLECTED}


def test_a_skipped_test_is_no_pass(grade: Grade) -> None:
    skip = "import pytest\ndef clamp(*a):\n    pytest.skip('later')\ndouble = clamp\n"
    report = grade({"calc.py": skip})
    assert report.verdict is Verdict.UNRESOLVED
    assert report.tests["tests/test_calc.py::test_above"] is Outcome.SKIPPED


@pytest.mark.parametrize("patch", ["nonsense", "--- a/calc.py\n+++ b/calc.py\n@@ -1 +1 @@\n-no such line\n+x\n"])
def test_a_patch_that_does_not_apply_is_invalid(grade: Grade, patch: str) -> None:
    assert grade(patch).verdict is Verdict.INVALID


def test_the_same_patch_gets_the_same_verdict_twice(grade: Grade) -> None:
    first, second = grade({"calc.py": HARD_CODED}), grade({"calc.py": HARD_CODED})
    assert (first.verdict, first.tests) == (second.verdict, second.tests)
