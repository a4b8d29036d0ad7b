"""The command line as a person and as a program meets it: real processes, exit codes, three-line errors."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib import resources
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.records import Environment, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.sandbox.box import processes_with
from tests.workshop import FIXED, calc_task, need_namespaces, patch_of


def patchgym(*arguments: str, cwd: Path | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "patchgym", *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **variables},
        timeout=300,
    )


@pytest.fixture(scope="module")
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task set of one task, whose environment is the pinned pytest."""
    folder = tmp_path_factory.mktemp("tasksets")
    objects = ObjectStore(folder / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    task = calc_task(objects).model_copy(
        update={"environment": Environment(python=python, lock=lock), "split": "heldout"}
    )
    (folder / "set").mkdir()
    write_task_set(folder / "set", TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN), [task], objects)
    return folder / "set"


def test_help_is_quick_quiet_and_names_every_command() -> None:
    patchgym("--help")
    started = time.monotonic()
    done = patchgym("--help")
    assert time.monotonic() - started < 5
    assert done.returncode == 0
    assert done.stderr == ""
    for command in ("loop", "tasks", "validate", "rollout", "grade", "eval", "doctor"):
        assert f"  {command} " in done.stdout


def test_help_loads_nothing_heavy() -> None:
    code = "import sys\nsys.argv[1:] = ['--help']\nfrom patchgym.cli import main\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass\n"
    code += "heavy = ('torch', 'transformers', 'pydantic', 'libcst', 'httpx2', 'rich')\n"
    code += "print([name for name in heavy if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_importing_the_package_prints_and_creates_nothing(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OPENAI_API_KEY=never-read\n")
    code = (
        "import os, patchgym, patchgym.cli, patchgym.rollout, patchgym.tasks\nassert 'OPENAI_API_KEY' not in os.environ"
    )
    variables = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**variables, "PATCHGYM_CACHE": str(tmp_path / "cache")},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.iterdir()] == [".env"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["nonsense"], 2, "No such command"),
        (["rollout"], 2, "TASKSET"),
        (["rollout", "absent", "--policy", "gold", "--out", "run"], 2, "There is no task set"),
        (["loop", "defautl"], 2, "Did you mean default?"),
        (["loop", "absent.toml"], 2, "no recipe file"),
        (["loop", "--set", "rolout.temperature=1"], 2, "Did you mean rollout?"),
        (["loop", "--set", "rollout.temprature=1"], 2, "Did you mean rollout.temperature?"),
        (["loop", "--set", "rollout.temperature=warm"], 2, "rollout.temperature"),
        (["loop", "--set", "samples"], 2, "has no value"),
        (["loop", "--set", "policy=gold"], 2, "cannot train"),
    ],
)
def test_wrong_usage_is_named_with_its_mend(tmp_path: Path, arguments: list[str], code: int, said: str) -> None:
    done = patchgym(*arguments, cwd=tmp_path)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) <= 4
    assert list(tmp_path.iterdir()) == []


def test_a_misspelt_key_in_a_recipe_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[rollout]\nconcurency = 4\n")
    done = patchgym("loop", "mine.toml", cwd=tmp_path)
    assert done.returncode == 2
    assert "rollout.concurency" in done.stderr
    assert "Did you mean rollout.concurrency?" in done.stderr


def test_a_model_that_is_not_there_stops_before_anything_is_made(tmp_path: Path, taskset: Path) -> None:
    done = patchgym("rollout", str(taskset), "--policy", "local:no/such/model", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "no/such/model" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_an_endpoint_that_refuses_stops_before_anything_is_made(tmp_path: Path, taskset: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    arguments = ("rollout", str(taskset), "--policy", "openai:some", "--base-url", url, "--out", "run")
    done = patchgym(*arguments, cwd=tmp_path, OPENAI_API_KEY="secret-key-value")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "secret-key-value" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_broken_line_in_a_task_set_is_named(tmp_path: Path, taskset: Path) -> None:
    (tmp_path / "set").mkdir()
    for name in ("taskset.json", "tasks.jsonl"):
        (tmp_path / "set" / name).write_bytes((taskset / name).read_bytes())
    (tmp_path / "set" / "objects").symlink_to(taskset / "objects")
    with (tmp_path / "set" / "tasks.jsonl").open("a") as file:
        file.write('{"schema_version": 1, "id": \n')
    done = patchgym("rollout", "set", "--policy", "gold", "--out", "run", cwd=tmp_path)
    assert done.returncode == 2
    assert "tasks.jsonl:2" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.network
def test_gold_and_noop_counts_as_json(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    for policy, resolved in (("gold", 2), ("noop", 0)):
        done = patchgym(
            "rollout", str(taskset), "--policy", policy, "--out", policy, "--samples", "2", "--json", cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        counts = json.loads(done.stdout)
        assert (counts["tasks"], counts["trajectories"], counts["resolved"]) == (1, 2, resolved)
        assert {"unresolved", "tampered", "invalid", "timeout", "infra_error"} <= counts.keys()


@pytest.mark.network
def test_a_finished_run_is_not_run_again_and_another_configuration_is_refused(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    arguments = ("rollout", str(taskset), "--policy", "gold", "--out", "run", "--json")
    first = patchgym(*arguments, cwd=tmp_path)
    before = (tmp_path / "run" / "trajectories.jsonl").read_bytes()
    second = patchgym(*arguments, cwd=tmp_path)
    assert json.loads(first.stdout) == json.loads(second.stdout)
    assert (tmp_path / "run" / "trajectories.jsonl").read_bytes() == before
    other = patchgym(*arguments, "--temperature", "0.5", cwd=tmp_path)
    assert other.returncode == 2
    assert "config.rollout.temperature" in other.stderr


@pytest.mark.network
def test_the_figures_of_a_set_as_a_table_and_as_json(taskset: Path) -> None:
    table, as_json = patchgym("tasks", "stats", str(taskset)), patchgym("tasks", "stats", str(taskset), "--json")
    assert (table.returncode, as_json.returncode) == (0, 0)
    figures = json.loads(as_json.stdout)
    assert (figures["tasks"], figures["proved"], figures["duplicates"]) == (1, 0, 0)
    assert figures["split"] == {"heldout": 1}
    assert figures["source"] == {"synthetic": 1}
    assert figures["scope"] == {"one file, up to 2 lines": 1}
    for part in ("heldout", "synthetic", "calc", "unknown"):
        assert part in table.stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("ignored", [False, True], ids=["foreground", "background"])
def test_a_signal_ends_a_run_cleanly_also_in_a_shells_background(
    tmp_path: Path, taskset: Path, number: signal.Signals, ignored: bool
) -> None:
    need_namespaces()
    sleep = {"tool": "run_command", "arguments": {"command": f"sleep 61  # {tmp_path.name}"}}
    (tmp_path / "script.json").write_text(json.dumps({"*": [sleep]}))
    command = [sys.executable, "-m", "patchgym", "rollout", str(taskset), "--policy", "scripted:script.json"]
    shell = ["sh", "-c", f"trap '{'' if ignored else '-'}' INT; exec \"$@\"", "sh", *command, "--out", "run"]
    process = subprocess.Popen(shell, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not processes_with(tmp_path.name) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Interrupted." in said
    assert "Traceback" not in said
    assert processes_with(tmp_path.name) == []


def test_grading_patches_from_a_file(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    tasks = TaskSet.load(taskset)
    fixed = patch_of(tasks.objects, tasks.tasks[0], {"calc.py": FIXED})
    rows = [
        {"task_id": "calc-1", "patch": fixed},
        {"task_id": "calc-1", "patch": ""},
        {"task_id": "calc-1", "patch": "?"},
    ]
    (tmp_path / "patches.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = patchgym("grade", str(taskset), "--patches", "patches.jsonl", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [report["verdict"] for report in json.loads(done.stdout)["reports"]] == ["resolved", "unresolved", "invalid"]


@pytest.mark.network
def test_validation_proves_and_disproves(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    done = patchgym("validate", str(taskset), "--runs", "2", "--mutants", "2", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["tasks"], found["runs"], found["proved"], found["failed"]) == (1, 2, 1, {})
    assert found["flaky"] == {}
    assert found["mutants"]["planted"] == 2
    tasks = TaskSet.load(taskset)
    wrong = tasks.tasks[0].model_copy(update={"gold_patch": ""})
    (tmp_path / "set").mkdir()
    write_task_set(tmp_path / "set", tasks.manifest, [wrong], tasks.objects)
    done = patchgym("validate", str(tmp_path / "set"), "--runs", "1", "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["failed"] == {"calc-1": "gold_fails"}


@pytest.mark.network
def test_an_evaluation_reports_pass_at_1_with_its_interval(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    done = patchgym("eval", str(taskset), "--policy", "gold", "--out", "run", "--samples", "2", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["pass_at_1"] == {"value": 1.0, "low": pytest.approx(0.025), "high": 1.0, "tasks": 1}
    assert report["pass_at_k"] == {"1": 1.0, "2": 1.0}


@pytest.mark.network
def test_a_shown_task_keeps_its_secrets_unless_asked(taskset: Path) -> None:
    plain, whole = (
        patchgym("tasks", "show", str(taskset), "calc-1"),
        patchgym("tasks", "show", str(taskset), "calc-1", "--whole"),
    )
    as_json = patchgym("tasks", "show", str(taskset), "--json")
    for text in (plain.stdout, as_json.stdout):
        assert "test_above" in text
        assert "far_above" not in text
        assert "return high" not in text
    assert "far_above" in whole.stdout
    assert "return high" in whole.stdout


def test_the_doctor_names_what_is_missing() -> None:
    done = patchgym("doctor", "--json")
    checks = {check["name"]: check for check in json.loads(done.stdout)}
    assert {"python", "sandbox", "uv", "pip", "cache", "training"} <= checks.keys()
    assert all(check["mend"] for check in checks.values() if not check["ok"])
    assert done.returncode == (3 if any(c["needed"] and not c["ok"] for c in checks.values()) else 0)


def test_a_wrong_cache_is_the_doctors_finding(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = patchgym("doctor", "--json", PATCHGYM_CACHE=str(tmp_path / "file" / "below"))
    (cache,) = [check for check in json.loads(done.stdout) if check["name"] == "cache"]
    assert not cache["ok"] or os.geteuid() == 0


@pytest.mark.skipif(shutil.which("unshare") is None, reason="LOUD SKIP: no unshare program to forbid namespaces with")
def test_forbidden_namespaces_stop_before_anything_is_made(tmp_path: Path, taskset: Path) -> None:
    need_namespaces()
    forbid = "echo 0 > /proc/sys/user/max_user_namespaces && exec"
    command = f"{forbid} {sys.executable} -m patchgym rollout {taskset} --policy gold --out run"
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "sh", "-c", command], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 3
    assert "namespaces" in done.stderr.splitlines()[0]
    assert len(done.stderr.splitlines()) == 3
    assert not (tmp_path / "run").exists()
