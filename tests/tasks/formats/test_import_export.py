"""The two commands, as a person runs them: good rows are imported whatever lies beside them, and nothing is silent."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import Task, TaskSetManifest
from patchgym.tasks import TaskSet
from patchgym.tasks.formats.exporting import export_tasks
from patchgym.tasks.formats.folders import read_folder, write_folder
from patchgym.tasks.formats.importing import guess_format, import_tasks
from patchgym.tasks.taskset import write_task_set
from tests.records_for_tests import THEN
from tests.tasks.formats.rows_for_tests import make_clone, r2egym_row, repo_bytes, swebench_row
from tests.tasks.formats.test_folders import five, theirs
from tests.workshop import calc_task

BAD_LINES = {
    "not_json": '{"instance_id": "x", ',
    "not_an_object": "[1, 2]",
    "second_of_one_id": json.dumps(swebench_row()),
    "missing_field": json.dumps({"instance_id": "b"}),
    "not_a_list": json.dumps(swebench_row(instance_id="c", FAIL_TO_PASS="a, b")),
    "bad_id": json.dumps(swebench_row(instance_id="../c")),
    "broken_patch": json.dumps(swebench_row(instance_id="d", patch="diff --git")),
}


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def calc_set(tmp_path: Path, objects: ObjectStore) -> TaskSet:
    manifest = TaskSetManifest(name="calc", recipe={}, funnel={}, created_at=THEN)
    (tmp_path / "set").mkdir()
    task = calc_task(objects).model_copy(update={"probes": objects.put(b'{"version": 1}')})
    write_task_set(tmp_path / "set", manifest, [task], objects)
    return TaskSet.load(tmp_path / "set")


def run(*arguments: str | Path) -> tuple[int, str, str]:
    """``patchgym tasks ...``: exit code and both streams."""
    command = [sys.executable, "-c", "from patchgym.cli import main; main()", "tasks", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout, done.stderr


def write_lines(path: Path, rows: list[dict[str, JsonValue]]) -> Path:
    """A JSONL file."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_every_bad_row_is_counted_and_the_good_ones_are_imported(tmp_path: Path) -> None:
    lines = [json.dumps(swebench_row()), *BAD_LINES.values(), json.dumps(swebench_row(instance_id="good"))]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    code, out, _ = run("import", "auto", tmp_path / "rows.jsonl", "--out", tmp_path / "set", "--json")
    document = json.loads(out)
    assert code == 1
    assert document["funnel"] == {"candidates": len(lines), "written": 2, **dict.fromkeys(sorted(BAD_LINES), 1)}
    assert {one["reason"]: one["where"].rpartition(":")[2] for one in document["refused"]} == {
        reason: str(number) for number, reason in enumerate(BAD_LINES, start=2)
    }
    loaded = TaskSet.load(tmp_path / "set")
    assert [task.id for task in loaded.tasks] == ["owner__calc-1", "good"]
    assert loaded.manifest.funnel == document["funnel"]
    assert document["without_files"] == 2


def test_a_person_is_told_what_became_of_it(tmp_path: Path) -> None:
    lines = [json.dumps(swebench_row()), BAD_LINES["not_json"]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    code, out, err = run("import", "swe-bench", tmp_path / "rows.jsonl", "--out", tmp_path / "set")
    assert code == 1
    assert "not json" in out
    assert "1 of 1 tasks have no files" in " ".join(out.split())
    assert "Traceback" not in err


def test_strict_stops_at_the_first_and_writes_nothing(tmp_path: Path) -> None:
    lines = [json.dumps(swebench_row()), BAD_LINES["not_json"]]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines))
    code, _, err = run("import", "swe-bench", tmp_path / "rows.jsonl", "--out", tmp_path / "set", "--strict")
    assert code == 2
    assert "rows.jsonl:2: not json" in err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]


def test_where_nothing_is_a_task_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("")
    code, out, _ = run("import", "swe-bench", tmp_path / "rows.jsonl", "--out", tmp_path / "set")
    assert (code, "nothing was written" in out) == (1, True)
    assert not (tmp_path / "set").exists()


def test_an_imported_set_is_exported_as_it_was(tmp_path: Path) -> None:
    rows = [swebench_row(), swebench_row(instance_id="b", patch="", test_patch="", hints_text="\r\n\u2028")]
    source = write_lines(tmp_path / "rows.jsonl", rows)
    assert run("import", "auto", source, "--out", tmp_path / "set")[0] == 0
    code, out, _ = run("export", tmp_path / "set", "swe-bench", "--out", tmp_path / "back.jsonl")
    assert (code, "with nothing dropped" in out) == (0, True)
    assert [json.loads(line) for line in (tmp_path / "back.jsonl").read_text().split("\n")[:-1]] == rows


def test_what_was_dropped_is_listed(tmp_path: Path, calc_set: TaskSet) -> None:
    code, out, _ = run("export", calc_set.path, "swe-bench", "--out", tmp_path / "rows.json", "--json")
    document = json.loads(out)
    assert code == 0
    assert document["dropped"]["workspace"] == 1
    assert document["written"] == ["calc-1"]
    assert json.loads((tmp_path / "rows.json").read_text())[0]["instance_id"] == "calc-1"


def test_a_task_that_the_format_cannot_hold_is_named(tmp_path: Path) -> None:
    run("import", "swe-bench", write_lines(tmp_path / "rows.jsonl", [swebench_row()]), "--out", tmp_path / "set")
    code, out, _ = run("export", tmp_path / "set", "harbor", "--out", tmp_path / "dirs")
    assert code == 1
    assert "not runnable" in out
    assert not (tmp_path / "dirs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ("import", "swe-bench", "nowhere.jsonl", "--out", "out"),
        ("import", "swe-bench-6", "nowhere.jsonl", "--out", "out"),
        ("import", "harbor", "nowhere", "--out", "out"),
        ("import", "auto", "/dev/null", "--out", "out"),
        ("export", "nowhere", "harbor", "--out", "out"),
    ],
)
def test_what_is_not_there_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    code, out, err = run(*arguments)
    assert (code, out, "Traceback" in err) == (2, "", False)


def test_a_place_that_is_taken_is_left_alone(tmp_path: Path, calc_set: TaskSet) -> None:
    with pytest.raises(UsageError, match="is there already"):
        export_tasks(calc_set, calc_set.tasks, "swe-bench", calc_set.path)
    assert run("import", "swe-bench", "x", "--out", tmp_path / "set")[0] == 2


@pytest.mark.parametrize("place", ["file/out", "set/tasks.jsonl/a/b"])
def test_a_place_that_cannot_be_is_a_usage_error(tmp_path: Path, calc_set: TaskSet, place: str) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="Nothing can be written"):
        export_tasks(calc_set, calc_set.tasks, "swe-bench", tmp_path / place)


def test_exporting_leaves_the_set_as_it_is(tmp_path: Path, calc_set: TaskSet) -> None:
    before = read_folder(calc_set.path)
    for format_name in ("swe-bench", "swe-smith", "r2e-gym", "swe-bench-5", "harbor"):
        export_tasks(calc_set, calc_set.tasks, format_name, tmp_path / format_name)
    assert read_folder(calc_set.path) == before


@pytest.mark.parametrize("format_name", ["swe-bench", "swe-smith", "r2e-gym", "swe-bench-5", "harbor"])
def test_what_is_exported_is_recognised_and_imported(
    tmp_path: Path, calc_set: TaskSet, objects: ObjectStore, format_name: str
) -> None:
    export_tasks(calc_set, calc_set.tasks, format_name, tmp_path / "out.jsonl")
    found = import_tasks(tmp_path / "out.jsonl", "auto", objects)
    assert (found.format, [task.id for task in found.tasks], found.refused) == (format_name, ["calc-1"], [])


def test_harbor_gives_a_whole_task_back(tmp_path: Path, calc_set: TaskSet, objects: ObjectStore) -> None:
    done = export_tasks(calc_set, calc_set.tasks, "harbor", tmp_path / "dirs")
    assert not done.dropped
    elsewhere = ObjectStore(tmp_path / "elsewhere")
    assert import_tasks(tmp_path / "dirs", "harbor", elsewhere).tasks == list(calc_set.tasks)
    assert all(blob in elsewhere for task in calc_set.tasks for blob in task.blobs)
    assert import_tasks(tmp_path / "dirs" / "calc-1", "auto", objects).tasks == list(calc_set.tasks)


def test_a_task_repository_comes_back_with_its_configuration(tmp_path: Path, objects: ObjectStore) -> None:
    config = "# ours\nsplits: [dev, test]\ndatasets: [someone/Set]\n"
    write_folder(tmp_path / "repo" / "tasks" / "owner__calc-1", five())
    (tmp_path / "repo" / "sweb.yaml").write_text(config)
    (tmp_path / "repo" / "README.md").write_text("x")
    (tmp_path / "repo" / "tasks" / "stray").mkdir()
    found = import_tasks(tmp_path / "repo", "auto", objects)
    assert [refusal.reason for refusal in found.refused] == ["no_task"]
    assert any("README.md" in note for note in found.notes)
    back = exported(tmp_path, found.tasks, objects)
    assert (back / "sweb.yaml").read_text() == config
    assert read_folder(back / "tasks" / "owner__calc-1") == five()


def exported(tmp_path: Path, tasks: list[Task], objects: ObjectStore) -> Path:
    """These tasks as a task repository, by way of a set on disk."""
    (tmp_path / "between").mkdir()
    manifest = TaskSetManifest(name="x", recipe={}, funnel={}, created_at=THEN)
    write_task_set(tmp_path / "between", manifest, tasks, objects)
    loaded = TaskSet.load(tmp_path / "between")
    export_tasks(loaded, loaded.tasks, "swe-bench-5", tmp_path / "back")
    return tmp_path / "back"


def test_folders_that_are_no_tasks_are_counted(tmp_path: Path, objects: ObjectStore) -> None:
    write_folder(tmp_path / "dirs" / "one", theirs())
    write_folder(tmp_path / "dirs" / "two", {"README": theirs()["instruction.md"]})
    write_folder(tmp_path / "dirs" / "three", theirs(**{"task.toml": "["}))
    found = import_tasks(tmp_path / "dirs", "harbor", objects)
    assert [task.id for task in found.tasks] == ["one"]
    assert found.funnel == {"candidates": 3, "written": 1, "no_task": 1, "wrong_type": 1}


def test_clones_give_rows_their_files(tmp_path: Path) -> None:
    commit = make_clone(tmp_path / "repos" / "calc", repo_bytes())
    rows = [swebench_row(base_commit=commit), swebench_row(instance_id="b", base_commit="f" * 40)]
    source = write_lines(tmp_path / "rows.jsonl", rows)
    code, out, err = run("import", "auto", source, "--out", tmp_path / "set", "--repos", tmp_path / "repos")
    assert code == 0
    assert "1 of 2 tasks have no files" in " ".join(out.split())
    assert f"no commit {'f' * 40} in the clone of owner/calc" in err
    assert [len(TaskSet.load(tmp_path / "set").task(name).tests.hidden_files) for name in ("owner__calc-1", "b")] == [
        1,
        0,
    ]


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (swebench_row(), "swe-bench"),
        (r2egym_row(), "r2e-gym"),
        ({"instance_id": "a", "repo": "r", "patch": "", "image_name": "i"}, "swe-smith"),
    ],
)
def test_rows_tell_their_format(tmp_path: Path, row: dict[str, JsonValue], name: str) -> None:
    assert guess_format(write_lines(tmp_path / "rows.jsonl", [row])) == name


def test_rows_that_tell_nothing_are_not_guessed(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tells its format"):
        guess_format(write_lines(tmp_path / "rows.jsonl", [{"a": 1}]))


def test_strict_names_the_place(tmp_path: Path, objects: ObjectStore) -> None:
    source = write_lines(tmp_path / "rows.jsonl", [swebench_row(), {"instance_id": "b"}])
    with pytest.raises(DataError, match=r"rows\.jsonl:2: missing field"):
        import_tasks(source, "swe-bench", objects, strict=True)
