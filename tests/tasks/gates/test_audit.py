"""Every check of the audit finds what is planted for it, and a whole task gives nothing; the command's answers."""

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.grading import GRADER_VERSION
from patchgym.records import Environment, Source, Task, TaskSetManifest, Validation
from patchgym.tasks.flakes import Flake, note_flakes
from patchgym.tasks.gates.audit import (
    Attacker,
    AuditReport,
    Subject,
    audit,
    check_description,
    check_gold,
    check_hidden,
    check_licence,
    check_priority,
    check_proof,
    check_statement,
)
from patchgym.tasks.gates.findings import Finding, one_line
from patchgym.tasks.gates.priority import PrioritySettings
from patchgym.tasks.gates.settings import GateSettings
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.tasks.gates.planting import HIDDEN, bare_environment, task_with
from tests.workshop import VISIBLE, WHOLE, calc_task, patch_of, sandboxes

PROOF = Validation(
    runs=3, base_failed=3, noop_failed=3, gold_passed=3, test_seconds=1.0, grader_version="1", validated_at=THEN
)


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def whole_task(objects: ObjectStore) -> Task:
    """A task that nothing is wrong with."""
    source = Source(kind="synthetic", repo="calc", license="MIT")
    return calc_task(objects).model_copy(update={"validation": PROOF, "source": source})


def kinds(found: Iterable[Finding]) -> list[str]:
    return [one.kind for one in found]


def run(tasks: Sequence[Task], objects: ObjectStore, attacker: Attacker | None = None) -> AuditReport:
    return asyncio.run(audit(tasks, objects, GateSettings(), attacker))


def test_a_whole_task_gives_nothing(objects: ObjectStore, tmp_path: Path) -> None:
    environment = bare_environment(tmp_path / "env")
    with sandboxes(objects, tmp_path) as factory:
        report = run([whole_task(objects)], objects, Attacker(factory, lambda wanted: environment))
    assert report.findings == ()
    assert (report.tasks, report.attacked) == (1, 1)


@pytest.mark.parametrize(
    ("text", "kind"), [("Line 6 of calc.py is wrong.", "line_number"), ("Fix: replace low with high.", "edit")]
)
def test_a_leaking_statement_is_found(objects: ObjectStore, text: str, kind: str) -> None:
    task = whole_task(objects).model_copy(update={"instruction": text})
    assert kind in kinds(check_statement(Subject(task, objects)))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "empty"),
        ("Fix it.", "empty"),
        ("Please improve the code quality here.", "vague"),
        ("优化性能和体验", "vague"),
    ],
)
def test_an_empty_or_vague_instruction_is_found(objects: ObjectStore, text: str, kind: str) -> None:
    task = whole_task(objects).model_copy(update={"instruction": text})
    assert kinds(check_description(Subject(task, objects))) == [kind]


def test_what_is_not_proved_is_found(objects: ObjectStore) -> None:
    task = whole_task(objects)
    without = task.model_copy(update={"validation": None})
    failed = task.model_copy(update={"validation": PROOF.model_copy(update={"gold_passed": 2})})
    empty = task.tests.model_copy(update={"fail_to_pass": ()})
    assert kinds(check_proof(Subject(without, objects))) == ["missing"]
    assert kinds(check_proof(Subject(failed, objects))) == ["not_proved"]
    assert kinds(check_proof(Subject(task.model_copy(update={"tests": empty}), objects))) == [
        "no_tests",
        "hidden_decides_nothing",
    ]


def test_a_gold_patch_that_touches_tests_or_does_not_apply_is_found(objects: ObjectStore) -> None:
    task = whole_task(objects)
    tests = patch_of(objects, task, {"tests/test_calc.py": "x = 1\n"})
    assert kinds(check_gold(Subject(task.model_copy(update={"gold_patch": tests}), objects))) == ["touches_tests"]
    other = task.gold_patch.replace("return low", "return nothing")
    assert kinds(check_gold(Subject(task.model_copy(update={"gold_patch": other}), objects))) == ["does_not_apply"]
    assert kinds(check_gold(Subject(task.model_copy(update={"gold_patch": ""}), objects))) == ["empty"]


def test_key_files_that_are_missing_are_found(objects: ObjectStore) -> None:
    for files in ((), ("calc.py", "gone.py")):
        task = whole_task(objects).model_copy(update={"key_files": files})
        assert kinds(check_gold(Subject(task, objects))) == ["key_file_missing"]


def test_a_hidden_test_in_the_workspace_is_found_without_a_sandbox(objects: ObjectStore) -> None:
    assert kinds(check_hidden(Subject(whole_task(objects), objects))) == []
    leaking = task_with(objects, {"docs/later.txt": ("Later:\n" + HIDDEN).encode()})
    found = list(check_hidden(Subject(leaking, objects)))
    assert [(one.kind, one.where) for one in found] == [("readable", "docs/later.txt")]


@pytest.mark.parametrize(
    ("stated", "text", "kind"),
    [
        ("MIT", "", None),
        ("GPL-3.0-only", "", "not_allowed"),
        ("Some License", "", "not_allowed"),
        (None, "", "unknown"),
        (None, "Redistributions of source code must retain. Redistributions in binary form must reproduce", None),
        ("MIT", "Redistributions of source code must retain. Redistributions in binary form must reproduce", "differs"),
        (None, "GNU GENERAL PUBLIC LICENSE Version 3, 29 June 2007", "not_allowed"),
    ],
)
def test_licences_are_checked(objects: ObjectStore, stated: str | None, text: str, kind: str | None) -> None:
    task = whole_task(objects)
    tree = objects.update_tree(task.workspace, {"LICENSE": Entry(0o100644, objects.put(text.encode()))} if text else {})
    source = task.source.model_copy(update={"license": stated})
    task = task.model_copy(update={"workspace": tree, "source": source})
    assert kinds(check_licence(Subject(task, objects))) == ([kind] if kind else [])


def test_a_priority_below_the_threshold_is_found(objects: ObjectStore) -> None:
    strict = GateSettings(priority=PrioritySettings(least_points=20))
    assert kinds(check_priority(Subject(whole_task(objects), objects, strict))) == ["below_threshold"]
    assert kinds(check_priority(Subject(whole_task(objects), objects))) == []


def test_a_patch_that_does_not_parse_is_a_finding_of_every_check_that_needs_it(objects: ObjectStore) -> None:
    task = whole_task(objects).model_copy(update={"gold_patch": "no patch"})
    report = run([task], objects)
    assert report.counts() == {"gold/does_not_apply": 1, "statement/not_checked": 1}


def test_a_container_task_is_not_called_searched(objects: ObjectStore, tmp_path: Path) -> None:
    task = whole_task(objects).model_copy(update={"environment": Environment(image="x@sha256:0")})
    with sandboxes(objects, tmp_path) as factory:
        report = run([task], objects, Attacker(factory, lambda wanted: tmp_path))
    assert report.attacked == 0
    assert kinds(report.findings) == ["no_sandbox"]


def test_more_checks_of_tasks_and_sets_plug_in(objects: ObjectStore) -> None:
    def every(subject: Subject) -> list[Finding]:
        return [subject.finding("mine", "kind", "told", "mend")]

    def whole(tasks: Sequence[Task], store: ObjectStore) -> list[Finding]:
        return [Finding(task="", check="twins", kind="pair", where="", evidence=str(len(tasks)), mend="")]

    tasks = [whole_task(objects)]
    done = asyncio.run(audit(tasks, objects, GateSettings(), task_checks=(every,), set_checks=(whole,)))
    assert [(one.task, one.check) for one in done.findings] == [("calc-1", "mine"), ("", "twins")]


def test_foreign_text_is_shown_on_one_line() -> None:
    assert one_line("a\n\x1b[31mb\tc") == "a [31mb c"
    assert len(one_line("x" * 5000)) == 240


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two task sets: ``good``, and ``bad`` whose statement leaks."""
    folder = tmp_path_factory.mktemp("sets")
    objects = ObjectStore(folder / "objects")
    good = whole_task(objects)
    bad = good.model_copy(update={"instruction": "[bold]Line 6[/bold]"})
    for name, task in (("good", good), ("bad", bad)):
        (folder / name).mkdir()
        manifest = TaskSetManifest(name=name, recipe={}, funnel={}, created_at=THEN)
        write_task_set(folder / name, manifest, [task], objects)
    return folder


def command(*arguments: str) -> "subprocess.CompletedProcess[str]":
    line = [sys.executable, "-m", "patchgym", "tasks", "audit", *arguments]
    return subprocess.run(line, capture_output=True, text=True, timeout=120)


def test_the_command_says_that_nothing_was_found(sets: Path) -> None:
    done = command(str(sets / "good"), "--no-workspace")
    assert done.returncode == 0
    assert done.stdout == "good: nothing found in 1 tasks (workspaces not searched).\n"


def test_the_command_shows_findings_and_exits_with_1(sets: Path) -> None:
    done = command(str(sets / "bad"), "--no-workspace")
    assert done.returncode == 1
    assert "statement/line_number" in done.stdout
    assert "[bold]" in done.stdout
    assert "bad: " in done.stdout.splitlines()[-1]


def test_gradings_that_did_not_agree_are_found_as_long_as_the_grader_is_the_same(sets: Path, tmp_path: Path) -> None:
    taskset = shutil.copytree(sets / "good", tmp_path / "good")
    seen = Flake(task_id="calc-1", test="t", seen=("passed", "failed"), grader_version="0", at=THEN)
    note_flakes(taskset, [seen])
    assert command(str(taskset), "--no-workspace").returncode == 0
    note_flakes(taskset, [seen.model_copy(update={"grader_version": GRADER_VERSION})])
    found = json.loads(command(str(taskset), "--no-workspace", "--json").stdout)
    assert [(one["check"], one["kind"], one["where"]) for one in found["findings"]] == [("ledger", "flaky", "t")]
    with (taskset / "flakes.jsonl").open("ab") as ledger:
        ledger.write(b"{}\n")
    broken = command(str(taskset), "--no-workspace")
    assert broken.returncode == 2
    assert "flakes.jsonl" in broken.stderr


def test_the_command_prints_one_json_document(sets: Path) -> None:
    done = command(str(sets / "bad"), "--no-workspace", "--json")
    found = json.loads(done.stdout)
    assert {one["task"] for one in found["findings"]} == {"calc-1"}
    assert found["counts"]["statement/line_number"] == 1


@pytest.mark.parametrize("arguments", [("--task", "none"), ("--allow", "MIT License"), ("--allow", "MIT OR ISC")])
def test_bad_arguments_are_an_error_with_a_mend(sets: Path, arguments: tuple[str, str]) -> None:
    done = command(str(sets / "good"), "--no-workspace", *arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert arguments[1] in done.stderr


def test_the_hidden_part_of_the_test_file_is_what_is_planted() -> None:
    assert VISIBLE + HIDDEN == WHOLE
