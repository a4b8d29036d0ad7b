"""Task sets on disk: whole ones load as they were written, damaged ones say where."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.workshop import calc_task

MANIFEST = TaskSetManifest(name="calc", recipe={"seed": 1}, funnel={"candidates": 3, "written": 2}, created_at=THEN)


@pytest.fixture
def tasks(tmp_path: Path) -> list[Task]:
    task = calc_task(ObjectStore(tmp_path / "work"))
    return [task, task.model_copy(update={"id": "calc-2", "split": "heldout"})]


@pytest.fixture
def folder(tmp_path: Path, tasks: list[Task]) -> Path:
    work = ObjectStore(tmp_path / "work")
    work.put(b"of no task")
    (tmp_path / "set").mkdir()
    write_task_set(tmp_path / "set", MANIFEST, tasks, work)
    return tmp_path / "set"


def test_a_set_loads_as_it_was_written(folder: Path, tasks: list[Task], tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "work")
    loaded = TaskSet.load(folder)
    assert loaded.manifest == MANIFEST
    assert list(loaded.tasks) == tasks
    assert [task.id for task in loaded.split("train")] == ["calc-1"]
    assert [task.id for task in loaded.split("heldout")] == ["calc-2"]
    assert loaded.task("calc-2") == tasks[1]
    loaded.objects.checkout(tasks[0].workspace, _made(tmp_path / "out"))
    assert (tmp_path / "out" / "calc.py").is_file()
    assert all(blob in loaded.objects for blob in tasks[0].tests.hidden_files.values())


def test_only_what_its_tasks_reach_is_kept(folder: Path, tmp_path: Path) -> None:
    assert ObjectStore(tmp_path / "work").put(b"of no task") not in TaskSet.load(folder).objects


def replaced(number: int, change: Callable[[str], str]) -> Callable[[Path], None]:
    """Damage that changes one line of tasks.jsonl."""

    def damage(folder: Path) -> None:
        lines = (folder / "tasks.jsonl").read_text().splitlines()
        lines[number - 1] = change(lines[number - 1])
        (folder / "tasks.jsonl").write_text("\n".join(lines) + "\n")

    return damage


def without_hidden_file(folder: Path) -> None:
    """Damage that removes the blob of a hidden test file."""
    line = json.loads((folder / "tasks.jsonl").read_text().splitlines()[0])
    (blob,) = line["tests"]["hidden_files"].values()
    (folder / "objects" / blob[:2] / blob[2:]).unlink()


def without_workspace(folder: Path) -> None:
    """Damage that removes a workspace tree."""
    tree = json.loads((folder / "tasks.jsonl").read_text().splitlines()[0])["workspace"]
    (folder / "objects" / tree[:2] / tree[2:]).unlink()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (replaced(2, lambda line: line[: len(line) // 2]), r"tasks\.jsonl:2: not JSON"),
        (replaced(1, lambda line: ""), r"tasks\.jsonl:1: not JSON"),
        (replaced(2, lambda line: line.replace('"schema_version":2', '"schema_version":99')), r"tasks\.jsonl:2: .*99"),
        (replaced(2, lambda line: line.replace('"calc-2"', '"calc-1"')), r"tasks\.jsonl:2: a second task .* calc-1"),
        (
            replaced(1, lambda line: line.replace('"instruction"', '"instructions"')),
            r"tasks\.jsonl:1: Task\.instruction",
        ),
        (replaced(1, lambda line: "[1]"), r"tasks\.jsonl:1: "),
        (without_hidden_file, r"tasks\.jsonl:1: object [0-9a-f]{40} of calc-1 is missing"),
        (without_workspace, r"tasks\.jsonl:1: the workspace of calc-1 is not whole"),
        (lambda folder: shutil.rmtree(folder / "objects"), "no objects folder"),
        (lambda folder: (folder / "taskset.json").write_text("{"), r"taskset\.json: not JSON"),
        (lambda folder: (folder / "tasks.jsonl").write_bytes(b"\xff\xfe\n"), r"tasks\.jsonl:1: not JSON"),
    ],
)
def test_damage_is_named_with_its_place(folder: Path, damage: Callable[[Path], object], says: str) -> None:
    damage(folder)
    with pytest.raises(DataError, match=says):
        TaskSet.load(folder)


def test_what_is_no_task_set_or_no_task_is_a_usage_error(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no task set"):
        TaskSet.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="no task calc-9"):
        TaskSet.load(folder).task("calc-9")


def test_two_tasks_of_one_id_are_not_written(tasks: list[Task], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one id"):
        write_task_set(_made(tmp_path / "set"), MANIFEST, [tasks[0], tasks[0]], ObjectStore(tmp_path / "work"))


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder
