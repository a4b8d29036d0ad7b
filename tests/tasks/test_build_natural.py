"""What people changed, all the way to proved tasks: a repository's commits and logged sessions, through the command."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.sandbox import NamespaceSandboxes
from patchgym.tasks import TaskSet, TaskSetRecipe
from patchgym.tasks.build import build_task_set
from patchgym.tasks.sources.releases import ReleaseSource
from tests.tasks.sources.codebase import FLAT, MENDED, MODULE, NEW_TEST, TEST, Repo, Shelf
from tests.workshop import need_namespaces

MESSAGE = "Halves are whole numbers\n\nCalling half(5) gave 2.5, though callers count in whole things and expect 2."
PROMPT = "half(5) gives 2.5 in our order module, we need whole numbers: it should give 2."


def build(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "patchgym", "tasks", "build", "--out", "set", "--json", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=os.environ, timeout=600)


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    need_namespaces()
    made = Repo(tmp_path / "repos" / "acme" / "numbers")
    made.commit("Begin", dict(FLAT))
    return made


def only(folder: Path) -> tuple[Task, TaskSet]:
    tasks = TaskSet.load(folder / "set")
    (task,) = tasks.tasks
    return task, tasks


@pytest.mark.slow
@pytest.mark.network
def test_a_repositorys_fix_becomes_a_task_whose_only_test_is_hidden(repo: Repo, tmp_path: Path) -> None:
    repo.commit("Write more", {"README.md": "Numbers."})
    fix = repo.commit(MESSAGE, {"pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST})
    repo.commit("Only a comment", {"pkg/numbers.py": MENDED + "# the end\n", "tests/test_numbers.py": NEW_TEST + "\n"})
    done = build(tmp_path, "--git", str(repo.folder))
    assert done.returncode == 0, done.stderr
    manifest = json.loads(done.stdout)
    assert manifest["funnel"]["written"] == 1
    assert manifest["refused"] == {"docs_only": 1, "no_code_change": 1, "no_parent": 1}
    task, tasks = only(tmp_path)
    assert (task.source.kind, task.source.fix_commit, task.source.statement) == ("git", fix, "commit")
    assert "half(5) gave 2.5" in task.instruction
    assert task.tests.hidden == task.tests.fail_to_pass == ("tests/test_numbers.py::test_half",)
    assert task.view().failing_tests == ()
    seen = {path: tasks.objects.get(entry.id) for path, entry in tasks.objects.entries(task.workspace).items()}
    assert seen["tests/test_numbers.py"].decode().strip() == TEST.strip()
    assert task.validation is not None
    assert task.validation.proved


def session(repo: Repo, patch: str, **more: object) -> dict[str, object]:
    base = repo.git("rev-list", "--max-parents=0", "HEAD")
    return {"repo": "acme/numbers", "base_commit": base, "prompt": PROMPT, "final_patch": patch, **more}


def diff(repo: Repo, texts: Mapping[str, str | bytes | None]) -> str:
    """The patch that a commit of these texts would be; nothing is committed."""
    repo.write(texts)
    repo.git("add", "--all")
    patch = repo.git("diff", "--cached")
    repo.git("reset", "--quiet", "--hard")
    return patch + "\n"


@pytest.mark.slow
@pytest.mark.network
def test_sessions_become_tasks_where_tests_tell_and_stay_logs_where_none_does(repo: Repo, tmp_path: Path) -> None:
    tested = diff(repo, {"pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST})
    harmless = diff(repo, {"pkg/numbers.py": MODULE + "\n\ndef third(value):\n    return value / 3\n"})
    rows = [
        session(repo, tested, task_id="tested"),
        session(repo, harmless, task_id="nothing-to-tell"),
        session(repo, "", task_id="idle"),
        {**session(repo, tested, task_id="elsewhere"), "repo": "acme/gone"},
        session(repo, tested.replace("value / 2", "value / 9"), task_id="stale"),
    ]
    lines = [json.dumps(row) for row in rows]
    (tmp_path / "log.jsonl").write_text("\n".join([*lines, "{broken", '{"repo": "acme/numbers"}']) + "\n")
    done = build(tmp_path, "--log", "log.jsonl", "--repos", str(tmp_path / "repos"))
    assert done.returncode == 0, done.stderr
    tasks = TaskSet.load(tmp_path / "set")
    assert [task.source.change for task in tasks.tasks] == ["the patch of session tested"]
    assert "2.5 in our order module" in tasks.tasks[0].instruction
    logs = json.loads(done.stdout)["logs"]
    assert logs["nothing-to-tell"] == "survived"
    assert logs["idle"] == "no_change"
    assert logs["elsewhere"].startswith("no_repository")
    assert logs["stale"].startswith("does_not_apply")
    assert logs["log.jsonl:6"].startswith("bad_row")
    assert logs["log.jsonl:7"].startswith("bad_row")


@pytest.mark.network
def test_a_command_that_a_session_ran_becomes_its_check(repo: Repo, tmp_path: Path) -> None:
    patch = diff(repo, {"pkg/numbers.py": MENDED})
    command = "python -c 'from pkg import numbers; assert numbers.half(7) == 3'"
    steps = [{"step": 0, "action": "run_command", "args": {"command": command}, "success": True}]
    (tmp_path / "log.jsonl").write_text(json.dumps(session(repo, patch, task_id="made", trajectory=steps)) + "\n")
    done = build(tmp_path, "--log", "log.jsonl", "--repos", str(tmp_path / "repos"))
    assert done.returncode == 0, done.stderr
    task, _ = only(tmp_path)
    assert task.tests.fail_to_pass == ("tests/test_session_checks.py::test_command_1",)
    assert task.tests.hidden == task.tests.fail_to_pass
    assert set(task.tests.pass_to_pass) == {"tests/test_numbers.py::test_double"}


STRONG = (
    NEW_TEST.replace("== 2\n", "== 2\n    assert numbers.half(-4) == -2\n")
    + """

def test_half_of_zero():
    assert numbers.half(0) == 0


def test_half_is_whole():
    assert isinstance(numbers.half(9), int)


def test_double_of_odd():
    assert numbers.double(3) == 6
"""
)


@pytest.mark.network
def test_bugs_are_planted_in_a_release_that_is_not_pinned(tmp_path: Path) -> None:
    need_namespaces()
    shelf = Shelf(tmp_path / "shelf")
    shelf.add("2.0", {**FLAT, "pkg/numbers.py": MENDED, "tests/test_numbers.py": STRONG})
    recipe = TaskSetRecipe(train=("pkg==2.0", "untested==1.0"), train_per_release=1, proof_runs=1)
    bare = Shelf(tmp_path / "bare")
    bare.add("1.0", {"pkg/__init__.py": "", "pkg/numbers.py": MENDED})
    factories: list[NamespaceSandboxes] = []

    def factory_for(objects: ObjectStore) -> NamespaceSandboxes:
        factories.append(NamespaceSandboxes(objects, cache=tmp_path / "cache"))
        return factories[-1]

    def releases(requirement: str) -> ReleaseSource:
        return (shelf if requirement.startswith("pkg") else bare).source(requirement)

    try:
        manifest = asyncio.run(build_task_set(recipe, tmp_path / "set", factory_for=factory_for, releases=releases))
    finally:
        factories[0].close()
    task, _ = only(tmp_path)
    assert (task.source.kind, task.source.repo, task.source.version) == ("synthetic", "pkg", "2.0")
    assert task.source.created_at is not None
    assert manifest.sources["pkg==2.0"] == shelf.files[0].sha256
    assert manifest.refused == {"no_tests": 1}


@pytest.mark.network
def test_bugs_are_planted_in_a_repository(repo: Repo, tmp_path: Path) -> None:
    repo.commit("Write more", {"pkg/numbers.py": MENDED, "tests/test_numbers.py": STRONG})
    head = repo.git("rev-parse", "HEAD")
    done = build(tmp_path, "--plant", str(repo.folder), "--set", "tasks.train_per_release=1")
    assert done.returncode == 0, done.stderr
    task, _ = only(tmp_path)
    assert (task.source.kind, task.source.repo, task.source.version) == ("synthetic", "numbers", head)
    assert json.loads(done.stdout)["sources"] == {"numbers": head}


@pytest.mark.network
def test_the_issue_that_a_commit_closes_is_told_and_lines_that_are_none_are_counted(repo: Repo, tmp_path: Path) -> None:
    repo.commit("Whole halves (fixes #7)", {"pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST})
    issue = {"number": 7, "title": "Orders of 2.5 things", "body": "half(5) gives 2.5 where we count whole things."}
    (tmp_path / "issues.jsonl").write_text(f"{json.dumps(issue)}\n{{broken\n")
    done = build(tmp_path, "--git", str(repo.folder), "--issues", "issues.jsonl")
    assert done.returncode == 0, done.stderr
    task, _ = only(tmp_path)
    assert task.source.statement == "issue"
    assert "Orders of 2.5 things" in task.instruction
    assert json.loads(done.stdout)["refused"]["bad_issue"] == 1


@pytest.mark.network
def test_what_a_first_code_base_lacks_is_told(repo: Repo, tmp_path: Path) -> None:
    asks = '[project]\nname = "pkg"\ndependencies = ["no-such-package-anywhere==1", "own @ file:///own"]\n'
    repo.commit("Ask for much", {"pyproject.toml": asks})
    done = build(tmp_path, "--plant", str(repo.folder))
    assert done.returncode == 2
    assert "resolver: numbers: " in done.stderr


def test_issues_are_of_one_repository(tmp_path: Path) -> None:
    done = build(tmp_path, "--issues", "issues.jsonl")
    assert done.returncode == 2
    assert "--issues are of one --git" in done.stderr


@pytest.mark.parametrize("place", ["pkg", "", "pkg==1==2"])
def test_bugs_are_planted_in_a_release_or_a_place(place: str, tmp_path: Path) -> None:
    done = build(tmp_path, "--plant", place)
    assert done.returncode == 2
    assert "train.0" in done.stderr


def test_a_log_needs_its_repositories(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text("")
    done = build(tmp_path, "--log", "log.jsonl")
    assert done.returncode == 2
    assert "--log needs --repos" in done.stderr
