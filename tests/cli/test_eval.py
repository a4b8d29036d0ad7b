"""Evaluations as a person and as a program meets them: measured, taken from logs, kept, compared."""

import json
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest
from dulwich import porcelain

from patchgym.content import ObjectStore
from patchgym.evaluate import EvalReport
from patchgym.evaluate.kept import read_evaluation
from patchgym.records import Environment, TaskSetManifest, Trajectory, Verdict
from patchgym.store import RunDirectory
from patchgym.tasks import TaskSet
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN, make_manifest, make_report, make_trajectory
from tests.workshop import BUGGY, FIXED, HARD_CODED, VISIBLE, calc_task, need_namespaces, patch_of


def patchgym(*arguments: str, cwd: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "patchgym", *arguments], capture_output=True, text=True, cwd=cwd, timeout=300
    )


def calc_repository(folder: Path) -> str:
    """A git clone of the tiny package, and its commit."""
    (folder / "tests").mkdir(parents=True)
    for name, text in (("calc.py", BUGGY), ("tests/test_calc.py", VISIBLE), ("README", "calc\n")):
        (folder / name).write_text(text)
    porcelain.init(str(folder))
    porcelain.add(str(folder), [str(folder / name) for name in ("calc.py", "tests/test_calc.py", "README")])
    return porcelain.commit(str(folder), message=b"calc", author=b"a <a@b>", committer=b"a <a@b>").decode()


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with clones, and a task set of one task that begins at the commit in them."""
    folder = tmp_path_factory.mktemp("eval")
    commit = calc_repository(folder / "clones" / "calc")
    objects = ObjectStore(folder / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    task = calc_task(objects)
    source = task.source.model_copy(update={"kind": "git", "repo": "acme/calc", "base_commit": commit})
    task = task.model_copy(
        update={"source": source, "environment": Environment(python=python, lock=lock), "split": "heldout"}
    )
    (folder / "set").mkdir()
    write_task_set(folder / "set", TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN), [task], objects)
    (folder / "commit").write_text(commit)
    return folder


def article_row(name: str, commit: str, patch: str | None, task: str = "", repo: str = "acme/calc") -> str:
    step = {
        "step": 0,
        "action": "run",
        "args": {"command": f"ls  # {name}"},
        "output_excerpt": "calc.py",
        "success": True,
    }
    row = {
        "task_id": task or name,
        "repo": repo,
        "base_commit": commit,
        "prompt": f"Mend clamp. {name}",
        "trajectory": [step],
    }
    return json.dumps({**row, **({"final_patch": patch} if patch is not None else {})}) + "\n"


@pytest.mark.network
def test_logs_of_another_agent_count_as_one_more_policys_attempts(workplace: Path, tmp_path: Path) -> None:
    need_namespaces()
    tasks, commit = TaskSet.load(workplace / "set"), (workplace / "commit").read_text()
    fixed, hard_coded = (patch_of(tasks.objects, tasks.tasks[0], {"calc.py": text}) for text in (FIXED, HARD_CODED))
    rows = [
        article_row("s1", commit, fixed),
        article_row("s2", commit[:10], hard_coded),
        article_row("s3", commit, "", task="calc-1"),
        article_row("s4", "0" * 40, fixed),
    ]
    (tmp_path / "logs.jsonl").write_text("".join(rows))
    assert patchgym("traces", "import", "article", "logs.jsonl", "--out", "imported", cwd=tmp_path).returncode == 0
    evaluate = ("eval", str(workplace / "set"), "--attempts", "imported", "--out", "taken", "--json")
    done = patchgym(*evaluate, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = EvalReport.model_validate_json(done.stdout)
    assert report.solved == {"calc-1": (True, False, False)}
    assert report.failures["gave_up"] == 1  # type: ignore[index]
    assert any("Left out, 1: trajectories that name no task" in note for note in report.notes)
    assert report.conditions["format"] == ("article",)
    assert (report.mean_tokens, report.conditions.get("temperature")) == (None, None)
    assert read_evaluation(tmp_path / "taken" / "eval" / "rollout.json") == report
    before = (tmp_path / "taken" / "trajectories.jsonl").read_bytes()
    again = patchgym(*evaluate, cwd=tmp_path)
    assert again.stdout == done.stdout
    assert (tmp_path / "taken" / "trajectories.jsonl").read_bytes() == before


@pytest.mark.network
def test_a_log_without_a_patch_is_replayed_on_its_repository_and_then_evaluated(
    workplace: Path, tmp_path: Path
) -> None:
    need_namespaces()
    commit = (workplace / "commit").read_text()
    edit = {
        "file_path": "/home/me/calc/calc.py",
        "old_string": "high:\n        return low",
        "new_string": "high:\n        return high",
    }
    told = {"type": "assistant", "uuid": "2", "parentUuid": "1", "sessionId": "demo", "cwd": "/home/me/calc"}
    call = {"type": "tool_use", "id": "c1", "name": "Edit", "input": edit}
    message = {"id": "m1", "role": "assistant", "model": "some-model", "content": [call]}
    result = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "updated", "is_error": False}],
    }
    lines = [
        {
            "type": "user",
            "uuid": "1",
            "parentUuid": None,
            "sessionId": "demo",
            "message": {"role": "user", "content": "?"},
        },
        {**told, "message": message},
        {"type": "user", "uuid": "3", "parentUuid": "2", "sessionId": "demo", "message": result},
    ]
    (tmp_path / "demo.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    imported = patchgym("traces", "import", "auto", "demo.jsonl", "--out", "imported", cwd=tmp_path)
    assert imported.returncode == 0, imported.stderr
    begun_at(tmp_path / "imported", "acme/calc", commit)
    plain = patchgym("eval", str(workplace / "set"), "--attempts", "imported", "--out", "plain", "--json", cwd=tmp_path)
    report = EvalReport.model_validate_json(plain.stdout)
    assert (report.ungraded, report.pass_at_1) == (1, None)
    assert any("no patch that could be graded" in note for note in report.notes)
    replay = ("replay", "imported", "--repos", str(workplace / "clones"), "--out", "replayed")
    assert patchgym(*replay, cwd=tmp_path).returncode == 0
    done = patchgym("eval", str(workplace / "set"), "--attempts", "replayed", "--out", "taken", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = EvalReport.model_validate_json(done.stdout)
    assert report.solved == {"calc-1": (True,)}
    assert report.policy_version == "some-model"


def begun_at(run: Path, repo: str, commit: str) -> None:
    """Say in an imported run where its logs began: sessions of this agent name no commit."""
    rows = [Trajectory.from_line(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    lines = [
        one.model_copy(update={"origin": one.origin.model_copy(update={"repo": repo, "base_commit": commit})}).to_line()
        for one in rows
        if one.origin is not None
    ]
    (run / "trajectories.jsonl").write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.network
def test_an_evaluation_is_shown_and_kept(workplace: Path, tmp_path: Path) -> None:
    need_namespaces()
    done = patchgym("eval", str(workplace / "set"), "--policy", "gold", "--out", "run", "--samples", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for part in ("pass@1", "pass@k", "2 of 2 attempts count", "2 repeats on 1 tasks", "Fewer than 30 tasks"):
        assert part in done.stdout
    kept = read_evaluation(tmp_path / "run" / "eval" / "rollout.json")
    assert kept.pass_at_k == {1: 1.0, 2: 1.0}
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if line[:1] in "┏┃┡│└")


@pytest.mark.parametrize("arguments", [(), ("--policy", "gold", "--attempts", "run")])
def test_either_a_policy_or_attempts_are_measured(workplace: Path, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = patchgym("eval", str(workplace / "set"), "--out", "new", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "--attempts" in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_run_without_an_attempt_at_these_tasks_is_refused_before_anything_is_made(
    workplace: Path, tmp_path: Path
) -> None:
    need_namespaces()
    made_run(tmp_path / "run", {"elsewhere-1": [True]})
    done = patchgym("eval", str(workplace / "set"), "--attempts", "run", "--out", "new", cwd=tmp_path)
    assert done.returncode == 2
    assert "No trajectory of run is an attempt" in done.stderr
    assert not (tmp_path / "new").exists()


def made_run(path: Path, outcomes: dict[str, list[bool]]) -> None:
    run = RunDirectory.open_for_writing(path, make_manifest())
    for task, row in outcomes.items():
        for sample, solved in enumerate(row):
            report = make_report(Verdict.RESOLVED if solved else Verdict.UNRESOLVED)
            run.append(make_trajectory(sample, task_id=task, phase="rollout", report=report, reward=float(solved)))
    run.close()


def test_finished_runs_are_compared_without_running_anything(tmp_path: Path) -> None:
    made_run(tmp_path / "old run", {f"t{task}": [False, False] for task in range(8)})
    made_run(tmp_path / "new[red]", {f"t{task}": [True, True] for task in range(8)})
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    done = patchgym("compare", "old run", "new[red]", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
    assert "new[red] solves more: +100.0 points" in done.stdout
    assert "p = 0.0078" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines() if line[:1] in "┏┃┡│└")


def test_a_comparison_as_json_holds_evaluations_and_comparisons(tmp_path: Path) -> None:
    for name, solved in (("a", False), ("b", True), ("c", False)):
        made_run(tmp_path / name, {f"t{task}": [solved] for task in range(3)})
    done = patchgym("compare", "a", "b", "c", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert list(found["evaluations"]) == ["a", "b", "c"]
    assert [(one["before"], one["after"], one["difference"]["value"]) for one in found["comparisons"]] == [
        ("a", "b", 1.0),
        ("a", "c", 0.0),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("absent",), "There is no evaluation at absent"),
        (("a", "absent"), "There is no evaluation at absent"),
        (("a", "a"), "is named twice"),
        (("a", "other"), "no task in common"),
        (("a", "broken.json"), "not JSON"),
        ((), "EVAL"),
    ],
)
def test_what_cannot_be_compared_is_named(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    made_run(tmp_path / "a", {"t1": [True]})
    made_run(tmp_path / "other", {"t2": [True]})
    (tmp_path / "broken.json").write_text("{")
    done = patchgym("compare", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
