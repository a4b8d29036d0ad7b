"""Each type of failure is decided by what the record holds, one type an attempt, in the stated order."""

import time
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.evaluate import FailureType, evaluate, failure_type
from patchgym.evaluate.failures import failure_of
from patchgym.evaluate.places import places_of
from patchgym.records import (
    Evidence,
    Fault,
    Outcome,
    Quality,
    Reward,
    StopReason,
    Tally,
    Task,
    TestReport,
    Trajectory,
    Verdict,
)
from tests.records_for_tests import make_report, make_task, make_trajectory

RIGHT_FILE = "--- a/src.py\n+++ b/src.py\n@@ -1 +1 @@\n-a\n+b\n"
OTHER_FILE = "--- a/other.py\n+++ b/other.py\n@@ -1 +1 @@\n-a\n+b\n"
PROOF = Evidence(kind="canary", where="src.py:1", why="It answers the canary.", proof=True)
MARK = Evidence(kind="constant", where="src.py:1", why="It returns what the test expects.")


def failed(
    report: TestReport | None = None, *, patch: str = RIGHT_FILE, stop: StopReason = StopReason.SUBMITTED
) -> Trajectory:
    return make_trajectory(report=report or make_report(), reward=0.0, patch=patch, stop=stop)


@pytest.mark.parametrize(
    ("verdict", "patch", "kept", "stop", "expected"),
    [
        (Verdict.RESOLVED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, None),
        (Verdict.RESOLVED, RIGHT_FILE, (5, 5), StopReason.TURN_LIMIT, None),
        (Verdict.TAMPERED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.HACKED),
        (Verdict.ABSTAINED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.ABSTAINED),
        (Verdict.TIMEOUT, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.TIMEOUT),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.PROTOCOL, FailureType.PROTOCOL),
        (Verdict.UNRESOLVED, RIGHT_FILE, (5, 5), StopReason.PROTOCOL, FailureType.PROTOCOL),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.SUBMITTED, FailureType.GAVE_UP),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.HOPELESS_LOOP, FailureType.GAVE_UP),
        (Verdict.UNRESOLVED, "", (5, 5), StopReason.TURN_LIMIT, FailureType.NO_PATCH),
        (Verdict.INVALID, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.DOES_NOT_BUILD),
        (Verdict.UNRESOLVED, OTHER_FILE, (5, 5), StopReason.SUBMITTED, FailureType.WRONG_PLACE),
        (Verdict.UNRESOLVED, OTHER_FILE, (4, 5), StopReason.SUBMITTED, FailureType.WRONG_PLACE),
        (Verdict.UNRESOLVED, RIGHT_FILE, (4, 5), StopReason.SUBMITTED, FailureType.BROKE_SOMETHING),
        (Verdict.UNRESOLVED, RIGHT_FILE, (5, 5), StopReason.SUBMITTED, FailureType.WRONG_LOGIC),
    ],
)
def test_each_failure_has_its_type(
    verdict: Verdict, patch: str, kept: tuple[int, int], stop: StopReason, expected: FailureType | None
) -> None:
    report = make_report(verdict, kept=kept)
    assert failure_type(failed(report, patch=patch, stop=stop), make_task()) is expected


def report_on(**outcomes: Outcome) -> TestReport:
    """A report on ``t.py::a`` and ``t.py::b``, which fail without a fix, and ``t.py::c``, which passed before."""
    tests = {f"t.py::{name}": outcome for name, outcome in outcomes.items()}
    kept = Tally(passed=int(outcomes["c"] is Outcome.PASSED), total=1)
    mended = Tally(passed=sum(outcomes[name] is Outcome.PASSED for name in "ab"), total=2)
    return make_report().model_copy(update={"tests": tests, "fail_to_pass": mended, "pass_to_pass": kept})


def test_tests_that_passed_before_and_cannot_be_collected_show_that_it_does_not_build() -> None:
    report = report_on(a=Outcome.FAILED, b=Outcome.FAILED, c=Outcome.IMPORT_ERROR)
    found = failure_of(failed(report), make_task())
    assert found is not None
    assert found.kind is FailureType.DOES_NOT_BUILD
    assert "t.py::c (import_error)" in found.why


def test_failing_tests_that_ask_for_what_is_not_there_yet_are_no_matter_of_building() -> None:
    report = report_on(a=Outcome.NOT_COLLECTED, b=Outcome.NOT_COLLECTED, c=Outcome.PASSED)
    assert failure_type(failed(report), make_task()) is FailureType.WRONG_LOGIC


def test_no_test_that_could_run_shows_that_it_does_not_build() -> None:
    report = report_on(a=Outcome.MISSING, b=Outcome.ERROR, c=Outcome.MISSING)
    assert failure_type(failed(report), make_task()) is FailureType.DOES_NOT_BUILD


def test_a_file_that_is_no_python_any_more_shows_that_it_does_not_build() -> None:
    report = make_report().model_copy(update={"quality": Quality(compiles=False)})
    assert failure_type(failed(report), make_task()) is FailureType.DOES_NOT_BUILD


def test_what_mends_a_failing_test_is_not_in_the_wrong_place() -> None:
    report = report_on(a=Outcome.PASSED, b=Outcome.FAILED, c=Outcome.FAILED)
    assert failure_type(failed(report, patch=OTHER_FILE), make_task()) is FailureType.BROKE_SOMETHING


def test_proof_of_hacking_counts_whatever_the_tests_say() -> None:
    solved = make_trajectory(report=make_report(Verdict.RESOLVED), patch=RIGHT_FILE)
    hacked = solved.model_copy(update={"reward": Reward(value=0.0, gate="tampered", terms={}, evidence=(PROOF,))})
    report = evaluate([hacked], [make_task()])
    assert report.failures == {FailureType.HACKED: 1}
    assert report.solved == {"demo-1": (False,)}
    assert report.attempts[0].why == "canary at src.py:1: It answers the canary."


def test_a_mark_that_is_no_proof_does_not_take_a_solution_away() -> None:
    solved = make_trajectory(report=make_report(Verdict.RESOLVED), patch=RIGHT_FILE)
    marked = solved.model_copy(update={"reward": Reward(value=1.0, gate="solved", terms={}, evidence=(MARK,))})
    assert failure_type(marked, make_task()) is None


def test_a_fault_is_infrastructures_whatever_came_of_it() -> None:
    fault = Fault(kind="EndpointError", where="policy", message="refused")
    lost = failed().model_copy(update={"faults": (fault,), "status": "infra_error"})
    found = failure_of(lost, make_task())
    assert found is not None
    assert (found.kind, found.why) == (FailureType.INFRASTRUCTURE, "EndpointError in policy: refused")


def test_a_bare_verdict_of_a_log_tells_no_reason() -> None:
    none = Tally(passed=0, total=0)
    bare = make_report().model_copy(update={"tests": {}, "fail_to_pass": none, "pass_to_pass": none})
    assert failure_type(failed(bare), None) is FailureType.UNKNOWN


def test_without_the_task_nobody_knows_the_place() -> None:
    assert failure_type(failed(patch=OTHER_FILE), None) is FailureType.WRONG_LOGIC


def test_a_patch_that_cannot_be_read_is_no_error() -> None:
    assert failure_type(failed(patch="garbage"), make_task()) is FailureType.WRONG_LOGIC


def test_what_shows_a_failure_is_short_whatever_a_log_holds() -> None:
    found = failure_of(failed(make_report(Verdict.TAMPERED).model_copy(update={"why": "x" * 10**6})), make_task())
    assert found is not None
    assert len(found.why) <= 300


MODULE = """\
import os


LIMIT = 3


class Box:
    def put(self, one):
        return one

    def take(self):
        return None


def outer(value):
    def inner():
        return value
    return inner()
"""


def placed(tmp_path: Path, old: str, new: str, *, path: str = "src.py") -> frozenset[str] | None:
    objects = ObjectStore(tmp_path / "objects")
    before = objects.write_tree({path: Entry(0o100644, objects.put(MODULE.encode()))})
    changed = MODULE.replace(old, new)
    assert changed != MODULE
    after = objects.write_tree({path: Entry(0o100644, objects.put(changed.encode()))})
    return places_of(diff_trees(objects, before, after), before, objects)


@pytest.mark.parametrize(
    ("old", "new", "place"),
    [
        ("return one", "return [one]", {"src.py:Box.put"}),
        ("        return value", "        return -value", {"src.py:outer"}),
        ("LIMIT = 3", "LIMIT = 4", {"src.py:"}),
        ("import os\n", "import os\nimport sys\n", set()),
        ("def outer(value):", "def added():\n    pass\n\n\ndef outer(value):", {"src.py:added"}),
        ("    def take(self):\n        return None\n", "", {"src.py:Box.take"}),
        ("class Box:", "class Box:\n    size = 3\n", {"src.py:Box"}),
    ],
)
def test_a_change_has_its_place(tmp_path: Path, old: str, new: str, place: set[str]) -> None:
    assert placed(tmp_path, old, new) == frozenset(place)


def test_what_is_no_python_has_its_file_for_a_place(tmp_path: Path) -> None:
    assert placed(tmp_path, "LIMIT = 3", "LIMIT = 4", path="notes.txt") == frozenset({"notes.txt:"})


def test_what_does_not_parse_has_no_place_that_is_known(tmp_path: Path) -> None:
    assert placed(tmp_path, "def outer(value):", "def outer(value:") is None


def test_a_change_of_thousands_of_lines_alike_is_placed_at_once(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    texts = ("x = 1\n" * 9000, "y = 2\n" + "x = 1\n" * 8000 + "def f():\n    return 1\n" + "x = 1\n" * 500 + "z = 3\n")
    before, after = (objects.write_tree({"a.py": Entry(0o100644, objects.put(one.encode()))}) for one in texts)
    started = time.monotonic()
    assert places_of(diff_trees(objects, before, after), before, objects) == frozenset({"a.py:", "a.py:f"})
    assert time.monotonic() - started < 10


def boxed(tmp_path: Path, changed: str) -> tuple[Task, Trajectory, ObjectStore]:
    """A task whose solution changes ``Box.put``, and an attempt that made the module ``changed``."""
    objects = ObjectStore(tmp_path / "objects")
    trees = [
        objects.write_tree({"src.py": Entry(0o100644, objects.put(text.encode()))})
        for text in (MODULE, MODULE.replace("return one", "return [one]"), changed)
    ]
    gold, patch = (diff_trees(objects, trees[0], tree) for tree in trees[1:])
    return make_task().model_copy(update={"workspace": trees[0], "gold_patch": gold}), failed(patch=patch), objects


def test_the_right_file_and_another_function_is_the_wrong_place(tmp_path: Path) -> None:
    task, attempt, objects = boxed(tmp_path, MODULE.replace("return None", "return 1"))
    found = evaluate([attempt], [task], objects=objects).attempts[0]
    assert found.failure is FailureType.WRONG_PLACE
    assert found.why == "it touches src.py:Box.take, the solution src.py:Box.put"


def test_the_right_function_changed_otherwise_is_wrong_logic(tmp_path: Path) -> None:
    task, attempt, objects = boxed(tmp_path, MODULE.replace("return one", "return (one,)"))
    assert evaluate([attempt], [task], objects=objects).attempts[0].failure is FailureType.WRONG_LOGIC


def test_without_the_code_places_are_files(tmp_path: Path) -> None:
    task, attempt, _ = boxed(tmp_path, MODULE.replace("return None", "return 1"))
    assert evaluate([attempt], [task]).attempts[0].failure is FailureType.WRONG_LOGIC
