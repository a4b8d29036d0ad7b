"""``patchgym grade``: what it makes of a file of patches, and of one that is none."""

import json
import shutil
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from patchgym.cli.grade import _flakes, _Graded, command
from patchgym.content import ObjectStore
from patchgym.errors import DataError, PatchgymError, UsageError
from patchgym.records import Environment, Outcome, Tally, TaskSetManifest, TestReport, Verdict
from patchgym.tasks import TaskSet
from patchgym.tasks.flakes import read_flakes
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.workshop import FIXED, calc_task, need_namespaces, patch_of

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tasksets")
    objects = ObjectStore(folder / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    task = calc_task(objects).model_copy(update={"environment": Environment(python=python, lock=lock)})
    (folder / "set").mkdir()
    write_task_set(folder / "set", TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN), [task], objects)
    return folder / "set"


def row(patch: str) -> bytes:
    return json.dumps({"task_id": "calc-1", "patch": patch}).encode() + b"\n"


def grade(folder: Path, taskset: Path, text: bytes, *more: str) -> Result:
    (folder / "patches.jsonl").write_bytes(text)
    return CliRunner().invoke(command, [str(taskset), "--patches", str(folder / "patches.jsonl"), *more])


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (b"not json\n", DataError, "line 1: not JSON"),
        (b"[" * 100_000, DataError, "not JSON"),
        (b"\n\n[1]\n", DataError, "line 3: not an object"),
        (b'{"task_id": "calc-1"}\n', DataError, "not an object with task_id and patch"),
        (b'{"task_id": "calc-1", "patch": 7}\n', DataError, "both text"),
        (b'{"task_id": "calc-1", "patch": "\xff"}\n', DataError, "not JSON"),
        (b"\0\n", DataError, "not JSON"),
        (b'{"task_id": "calc-2", "patch": ""}\n', UsageError, "no task 'calc-2'"),
    ],
)
def test_a_line_that_is_no_patch_is_named(
    tmp_path: Path, taskset: Path, text: bytes, error: type[PatchgymError], said: str
) -> None:
    done = grade(tmp_path, taskset, text)
    assert isinstance(done.exception, error)
    assert said in str(done.exception)


def test_an_unknown_task_is_told_with_the_nearest_one(tmp_path: Path, taskset: Path) -> None:
    done = grade(tmp_path, taskset, b'{"task_id": "clac-1", "patch": ""}\n')
    assert "Did you mean calc-1?" in str(done.exception)


@pytest.mark.network
def test_patches_that_cannot_be_graded_are_invalid_and_the_others_are_graded(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    tasks = TaskSet.load(taskset)
    fixed = patch_of(tasks.objects, tasks.tasks[0], {"calc.py": FIXED})
    new = "diff --git a/{0} b/{0}\nnew file mode 100644\n--- /dev/null\n+++ b/{0}\n@@ -0,0 +1 @@\n+x\n"
    bad = [
        "nonsense",
        fixed.replace("\n", "\r\n"),
        new.format("../../etc/passwd"),
        new.format("a\0b"),
        fixed.replace("-        return low", "-        return nothing"),
        "Binary files a/x and b/x differ\n",
        "x" * (20 * 1024**2),
        "\ud800",
    ]
    text = b"".join(map(row, bad)) + b"\n" + row(fixed)
    done = grade(tmp_path, taskset, text, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [report["verdict"] for report in found["reports"]] == ["invalid"] * len(bad) + ["resolved"]
    assert all(report["why"] for report in found["reports"][:-1])
    assert found["reports"][-1]["line"] == len(bad) + 2


@pytest.mark.network
def test_a_patch_that_is_graded_twice_gets_the_same_verdict(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    tasks = TaskSet.load(taskset)
    fixed = patch_of(tasks.objects, tasks.tasks[0], {"calc.py": FIXED})
    done = grade(tmp_path, taskset, row(fixed), "--repeat", "2", "--quality", "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["graded"], found["repeat"], found["resolved"]) == (0, 1, 2, 2)
    assert found["flakes"] == []
    assert {report["quality"]["compiles"] for report in found["reports"]} == {True}


def report(verdict: Verdict, **tests: Outcome) -> TestReport:
    none = Tally(passed=0, total=0)
    return TestReport(
        verdict=verdict,
        tests=tests,
        fail_to_pass=none,
        pass_to_pass=none,
        hidden=none,
        seconds=1.0,
        grader_version="2",
    )


def test_gradings_that_do_not_agree_are_flakes_by_test(tmp_path: Path) -> None:
    task = calc_task(ObjectStore(tmp_path))
    good = report(Verdict.RESOLVED, a=Outcome.PASSED, b=Outcome.PASSED)
    bad = report(Verdict.UNRESOLVED, a=Outcome.PASSED, b=Outcome.FAILED)
    lost = report(Verdict.INFRA_ERROR)
    doubt = good.model_copy(update={"verdict": Verdict.ABSTAINED})

    def seen(*reports: TestReport) -> list[tuple[str | None, tuple[str, ...]]]:
        return [(one.flake.test, one.flake.seen) for one in _flakes([_Graded(1, task, reports)])]

    assert seen(good, bad) == [("b", ("passed", "failed"))]
    assert seen(good, doubt) == [(None, ("resolved", "abstained"))]
    assert seen(good, lost, good) == []


def test_what_does_not_agree_is_noted_in_the_task_set(
    tmp_path: Path, taskset: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = shutil.copytree(taskset, tmp_path / "set")
    task = TaskSet.load(copied).tasks[0]
    good = report(Verdict.RESOLVED, a=Outcome.PASSED, b=Outcome.PASSED)
    bad = report(Verdict.UNRESOLVED, a=Outcome.PASSED, b=Outcome.FAILED)
    graded = [_Graded(1, task, (good, bad))]
    monkeypatch.setattr("patchgym.cli.grade._grade", lambda *_: graded)
    assert grade(tmp_path, copied, row(""), "--repeat", "2").exit_code == 1
    assert [(one.task_id, one.test, one.seen) for one in read_flakes(copied)] == [("calc-1", "b", ("passed", "failed"))]
    assert grade(tmp_path, copied, row(""), "--repeat", "2").exit_code == 1
    assert len(read_flakes(copied)) == 2
    graded[0] = _Graded(1, task, (good, good))
    assert grade(tmp_path, copied, row(""), "--repeat", "2").exit_code == 0
    assert len(read_flakes(copied)) == 2
