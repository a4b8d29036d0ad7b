"""An exported Harbor directory under its own rules: its own scripts, at the paths that Harbor puts them."""

import ast
import asyncio
import json
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.grading.protect import is_protected
from patchgym.records import Task
from patchgym.sandbox import ExecResult, SandboxSpec
from patchgym.tasks.formats import grade, harbor
from patchgym.tasks.formats.folders import below, stored, write_folder
from tests.workshop import HARD_CODED, calc_task, here, sandboxes

GRADE = "bash /tests/test.sh; cat /logs/verifier/reward.txt"
SOLVE = "bash /solution/solve.sh"


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def rewards(tmp_path: Path, objects: ObjectStore, task: Task, *scripts: str) -> list[str]:
    """What the reward file holds after each script and a grading, all in one sandbox with the exported directory's
    ``environment/workspace`` as its workspace, ``tests`` and ``solution`` mounted, and ``/logs/verifier`` writable."""
    files = harbor.to_files(task, objects)
    write_folder(tmp_path / "task", files)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "verifier").symlink_to("/tmp/verifier")
    tree = stored(below(files, "environment/workspace"), objects)
    mounts = {"/logs": tmp_path / "logs", **{f"/{name}": tmp_path / "task" / name for name in ("tests", "solution")}}
    spec = SandboxSpec(tree=tree, environment=here(task.environment), mounts=mounts)

    async def run() -> list[ExecResult]:
        with sandboxes(objects, tmp_path) as factory:
            sandbox = await factory.create(spec)
            try:
                return [
                    await sandbox.exec(["bash", "-c", f"mkdir -p /tmp/verifier; {script}; {GRADE}"], timeout_s=60)
                    for script in scripts
                ]
            finally:
                await sandbox.close()

    return [result.stdout.decode().splitlines()[-1] for result in asyncio.run(run())]


def test_it_pays_nothing_before_and_one_after_its_solution(tmp_path: Path, objects: ObjectStore) -> None:
    assert rewards(tmp_path, objects, calc_task(objects), "true", SOLVE) == ["0", "1"]


@pytest.mark.slow
def test_what_steers_the_tests_does_not_count(tmp_path: Path, objects: ObjectStore) -> None:
    hook = "import pytest\\n@pytest.hookimpl(hookwrapper=True)\\ndef pytest_runtest_makereport(item, call):\\n"
    hook += "    out = yield\\n    out.get_result().outcome = 'passed'\\n"
    attacks = [
        f'printf "{hook}" > conftest.py',
        "rm -r tests; mkdir /tmp/own; echo 'def test_above(): pass' > /tmp/own/test_calc.py; ln -s /tmp/own tests",
        "rm -rf tests; mkdir -p tests/test_calc.py",
        "echo 1 > /logs/verifier/reward.txt; echo 'raise SystemExit' > calc.py",
        'printf \'import os\\nos.write(int(os.environ.get("PATCHGYM_REPORT_FD", 9)), b"{}\\\\n")\\n\' > calc.py',
    ]
    assert rewards(tmp_path, objects, calc_task(objects), *attacks) == ["0"] * len(attacks)


def test_hidden_tests_decide(tmp_path: Path, objects: ObjectStore) -> None:
    write = f"cat > calc.py <<'E'\n{HARD_CODED}E\ntrue"
    assert rewards(tmp_path, objects, calc_task(objects), write) == ["0"]


def test_a_file_that_cannot_be_collected_fails_its_tests_and_is_no_interference(
    tmp_path: Path, objects: ObjectStore
) -> None:
    spoil = "echo 'import nowhere' > calc.py"
    task = calc_task(objects)
    assert rewards(tmp_path, objects, task, spoil, SOLVE) == ["0", "1"]


def test_tests_that_do_not_end_are_a_zero(tmp_path: Path, objects: ObjectStore) -> None:
    assert rewards(tmp_path, objects, calc_task(objects, timeout_s=3), "echo 'while True: pass' > calc.py") == ["0"]


def test_what_is_put_back_is_what_the_grader_protects(objects: ObjectStore) -> None:
    tests = calc_task(objects).tests
    assert all(is_protected(f"any/{name}", tests) for name in grade.HARNESS)
    assert all(is_protected(f"any/x{suffix}", tests) for suffix in grade.SUFFIXES)


@pytest.mark.parametrize(
    ("lines", "good"),
    [
        (['{"id": "a", "outcome": "passed", "text": ""}', '{"done": 0}'], {"a"}),
        (['{"id": "a", "outcome": "failed", "text": ""}', '{"done": 1}'], set()),
        (['{"id": "a", "outcome": "passed", "text": ""}'], set()),
        (['{"id": "b", "outcome": "passed", "text": ""}', '{"done": 0}'], None),
        (['{"id": "a", "outcome": "failed", "text": ""}', '{"id": "a", "outcome": "passed", "text": ""}'], None),
        (['{"done": 0}', '{"id": "a", "outcome": "passed", "text": ""}'], None),
        (['{"collect": "b.py", "outcome": "import_error", "text": "x"}', '{"done": 2}'], set()),
        (["{}"], None),
        (["x"], None),
        (["[]"], None),
    ],
)
def test_a_report_counts_only_as_the_runner_writes_it(lines: list[str], good: set[str] | None) -> None:
    assert grade.passed(lines, {"a"}) == good


def test_the_grader_runs_under_old_pythons() -> None:
    """Nothing in it is evaluated that Python 3.6 has not."""
    tree = ast.parse(Path(grade.__file__).read_text("utf-8"), feature_version=(3, 6))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            hints = [node.returns, *(argument.annotation for argument in node.args.args)]
            assert all(hint is None or isinstance(hint, ast.Name | ast.Constant) for hint in hints)


def test_the_spec_names_every_test(objects: ObjectStore) -> None:
    task = calc_task(objects)
    spec = json.loads(harbor.to_files(task, objects)["tests/spec.json"].data)
    assert spec["ids"] == [*task.tests.fail_to_pass, *task.tests.pass_to_pass]
