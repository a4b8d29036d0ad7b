"""``patchgym tasks probe`` and ``tasks show`` as a person and a program meet them, and probes made by a build."""

import asyncio
import json
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.grading.probes import load_probes
from patchgym.records import Environment, Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.probing import Probed, write_probed
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.tasks.test_build import RECIPE, build
from tests.workshop import VISIBLE, calc_task, here, need_namespaces, sandboxes

BAD = VISIBLE + "\n\ndef test_far_above():\n    assert clamp(1000, -3, 7) == 8\n"


def patchgym(*arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "patchgym", "tasks", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env={**os.environ, "COLUMNS": "160"})


@pytest.fixture(scope="module")
def taskset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks: one whose hidden test its own solution fails."""
    folder = tmp_path_factory.mktemp("tasksets")
    objects = ObjectStore(folder / "objects")
    lock = (resources.files("patchgym.tasks.sources") / "locks" / "pytest.txt").read_text(encoding="utf-8")
    environment = Environment(python=f"{sys.version_info.major}.{sys.version_info.minor}", lock=lock)
    task = calc_task(objects).model_copy(update={"environment": environment, "functions": ("calc.py:clamp",)})
    files = {"tests/test_calc.py": objects.put(BAD.encode())}
    bad = task.model_copy(update={"id": "bad-1", "tests": task.tests.model_copy(update={"hidden_files": files})})
    (folder / "set").mkdir()
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={"written": 2}, created_at=THEN)
    write_task_set(folder / "set", manifest, [task, bad], objects)
    return folder / "set"


def test_a_set_is_written_with_probes_and_without_its_invalid_task(taskset: Path) -> None:
    need_namespaces()
    out = taskset.with_name("probed")
    done = patchgym("probe", taskset, "--out", out, "--json")
    assert done.returncode == 1, done.stderr
    told = {one["task"]: one for one in json.loads(done.stdout)["tasks"]}
    assert told["calc-1"]["counting"] >= told["calc-1"]["noticing"] > 0
    assert "does not pass on its own solution" in told["bad-1"]["problem"]
    written = TaskSet.load(out)
    assert [task.id for task in written.tasks] == ["calc-1"]
    assert written.tasks[0].probes is not None
    assert written.manifest.dropped == {"gold_fails": 1}
    assert TaskSet.load(taskset).tasks[0].probes is None  # the set that was read stays as it was
    shown = patchgym("show", out, "calc-1", "--whole")
    assert "recorded calls count" in shown.stdout
    assert written.tasks[0].probes not in patchgym("show", out, "calc-1", "--json").stdout


def test_a_folder_that_is_there_is_not_written_over(taskset: Path) -> None:
    done = patchgym("probe", taskset, "--out", taskset)
    assert done.returncode == 2
    assert "exists already" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_task_whose_sandbox_was_lost_stays_as_it_was(taskset: Path, tmp_path: Path) -> None:
    source = TaskSet.load(taskset)
    found = [Probed(task.id, task, None, "the sandbox was lost") for task in source.tasks]
    assert write_probed(source, found, source.objects, tmp_path / "out") == 2
    assert TaskSet.load(tmp_path / "out").tasks == source.tasks


@pytest.mark.slow
def test_a_recipe_can_ask_for_probes(tmp_path: Path) -> None:
    changes = {"train": (), "heldout": (), "pairs": ("mini==1.0..1.1",), "proof_runs": 1, "probes": True}
    build(RECIPE.model_copy(update=changes), tmp_path / "set")
    made = TaskSet.load(tmp_path / "set")
    (task,) = made.tasks
    probes = load_probes(made.objects, task)
    assert probes is not None
    assert any(probe.noticing for probe in probes.counting)


def test_a_build_records_probes_of_a_proved_task(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    task: Task = calc_task(objects)
    with sandboxes(objects, tmp_path) as factory:
        probed = asyncio.run(Bench(factory, objects, here, 1).probed(task))
    assert probed.probes is not None
    assert probed.probes in objects
