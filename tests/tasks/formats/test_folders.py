"""Task folders both ways: SWE-bench 5 task repositories and Harbor directories."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.records import Distribution, Environment, Task
from patchgym.tasks.formats import harbor, swebench5
from patchgym.tasks.formats.benchmark import EMPTY_TREE
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.exporting import lost_parts
from patchgym.tasks.formats.folders import File, Folder, read_folder, text_file, write_folder
from patchgym.tasks.formats.refused import Refused
from tests.tasks.formats.rows_for_tests import (
    GOLD,
    TEST_PATCH,
    TEXT,
    make_clone,
    repo_bytes,
    scratch_store,
)
from tests.workshop import FAIL_TO_PASS, PASS_TO_PASS, WHOLE, calc_task

ABOUT = """\
# made by hand
instance_id: owner__calc-1
repo: owner/calc
version: '1.0'
base_commit: '{commit}'
created_at: 2024-02-29 12:00:00
image: swebench/sweb.eval.x86_64.owner_1776_calc-1:latest
log_parser: parse_log_pytest_v2
eval_type: pass_and_fail
split: dev
datasets: [someone/Set]
difficulty: 15 min - 1 hour
"""
PATHS = st.from_regex(r"[a-zé .]{1,6}(/[a-z]{1,3})?\.py", fullmatch=True).filter(
    lambda path: not {"", ".", ".."} & set(path.split("/")) and path == path.strip()
)


def five(**files: str | bytes) -> Folder:
    """A folder of a SWE-bench 5 task repository as somebody else wrote it."""
    tests = {"PASS_TO_PASS": PASS_TO_PASS, "FAIL_TO_PASS": FAIL_TO_PASS}
    whole: dict[str, str | bytes] = {
        "task.yaml": ABOUT.format(commit="0" * 40),
        "tests.json": json.dumps(tests),
        "problem_statement.md": "clamp is wrong\r\n",
        "hints.md": "no last line end",
        "gold.patch": GOLD,
        "test.patch": TEST_PATCH,
        "eval.sh": "#!/bin/bash\n: '>>>>> Start Test Output'\n",
        "Dockerfile": "FROM scratch\n",
        "test_assets/picture.png": b"\x89PNG\xff",
        **files,
    }
    return {name: File(0o100644, data if isinstance(data, bytes) else data.encode()) for name, data in whole.items()}


def theirs(**files: str | bytes) -> Folder:
    """A Harbor directory as somebody else wrote it."""
    whole: dict[str, str | bytes] = {
        "task.toml": '# ours\nversion = "1.0"\n[metadata]\nauthor = "x"\n[agent]\ntimeout_sec = 77\n',
        "instruction.md": "Mend it.\r\n",
        "environment/Dockerfile": "FROM ubuntu\n",
        "environment/data.bin": b"\xff\x00",
        "tests/test.sh": "#!/bin/sh\nexit 1\n",
        "solution/solve.sh": "echo 1\n",
        **files,
    }
    return {name: File(0o100755, data if isinstance(data, bytes) else data.encode()) for name, data in whole.items()}


def on_disk(task: Task) -> Task:
    """The task as it comes back from a task set."""
    return Task.from_line(task.to_line())


def test_a_task_repository_of_others_comes_back_byte_for_byte() -> None:
    objects = scratch_store()
    assert swebench5.to_files(on_disk(swebench5.from_files(five(), objects)), objects) == five()


def test_a_task_repository_of_others_says_what_it_is() -> None:
    task = swebench5.from_files(five(), scratch_store())
    assert (task.id, task.source.repo, task.source.version) == ("owner__calc-1", "owner/calc", "1.0")
    assert task.tests.fail_to_pass == FAIL_TO_PASS
    assert task.environment.dockerfile == "FROM scratch\n"
    assert task.source.created_at is not None
    assert task.source.created_at.isoformat() == "2024-02-29T12:00:00+00:00"


def test_a_task_repository_with_a_clone_comes_back_without_the_clones_files(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    commit = make_clone(tmp_path / "repos" / "calc", repo_bytes())
    files = five(**{"task.yaml": ABOUT.format(commit=commit)})
    task = swebench5.from_files(files, objects, Clones(tmp_path / "repos", objects))
    assert objects.get(task.tests.hidden_files["tests/test_calc.py"]).decode() == WHOLE
    assert swebench5.to_files(on_disk(task), objects) == files


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tests.json": "{"}, "not_json"),
        ({"tests.json": '{"FAIL_TO_PASS": 1, "PASS_TO_PASS": []}'}, "not_a_list"),
        ({"task.yaml": "a: &a [1]\nb: *a\n"}, "wrong_type"),
        ({"task.yaml": "a: [\n"}, "wrong_type"),
        ({"task.yaml": "!!python/object/apply:os.getcwd []\n"}, "wrong_type"),
        ({"task.yaml": "[" * 5000}, "wrong_type"),
        ({"task.yaml": "instance_id: x\n"}, "missing_field"),
        ({"problem_statement.md": b"\xff"}, "not_utf8"),
        ({"gold.patch": "nothing"}, "broken_patch"),
        ({"big": b"\xff" * (9 * 1024**2)}, "too_large"),
    ],
)
def test_a_folder_that_is_no_task_is_refused_by_name(changes: dict[str, str | bytes], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        swebench5.from_files(five(**changes), scratch_store())
    assert refused.value.reason == reason


@pytest.mark.parametrize("name", ["fail_to_pass", "pass_to_pass"])
def test_a_kept_list_of_tests_is_not_used_when_the_task_says_something_else(name: str) -> None:
    objects = scratch_store()
    task = swebench5.from_files(five(), objects)
    trimmed = task.model_copy(update={"tests": task.tests.model_copy(update={name: ("a",)})})
    assert json.loads(swebench5.to_files(trimmed, objects)["tests.json"].data)[name.upper()] == ["a"]


def test_a_kept_test_patch_is_not_used_when_it_leaves_other_files(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path / "objects")
    commit = make_clone(tmp_path / "repos" / "calc", repo_bytes())
    files = five(**{"task.yaml": ABOUT.format(commit=commit)})
    task = swebench5.from_files(files, objects, Clones(tmp_path / "repos", objects))
    hidden = {"tests/test_calc.py": objects.put(b"# other tests\n")}
    changed = task.model_copy(update={"tests": task.tests.model_copy(update={"hidden_files": hidden})})
    assert b"+# other tests\n" in swebench5.to_files(changed, objects)["test.patch"].data


def test_a_harbor_directory_of_others_comes_back_byte_for_byte() -> None:
    objects = scratch_store()
    task = harbor.from_files("some-task", theirs(), objects)
    assert (task.id, task.instruction, task.limits.seconds) == ("some-task", "Mend it.\r\n", 77.0)
    assert harbor.to_files(on_disk(task), objects) == theirs()


def test_the_patch_in_the_solution_of_others_is_the_gold_patch() -> None:
    task = harbor.from_files("a", theirs(**{"solution/fix.patch": GOLD}), scratch_store())
    assert task.gold_patch == GOLD


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"task.toml": "= 1"}, "wrong_type"),
        ({"task.toml": '[metadata.patchgym]\ntask = "{}"\n'}, "wrong_type"),
        ({"task.toml": '[metadata.patchgym]\ntask = "["\n'}, "wrong_type"),
        ({"instruction.md": b"\xff\xfe"}, "not_utf8"),
    ],
)
def test_a_directory_that_is_no_task_is_refused_by_name(changes: dict[str, str | bytes], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        harbor.from_files("a", theirs(**changes), scratch_store())
    assert refused.value.reason == reason


@settings(max_examples=40)
@given(st.data())
def test_a_task_comes_back_from_harbor_as_it_was(data: st.DataObject) -> None:
    objects = scratch_store()
    task = nasty_task(data, objects)
    assert harbor.from_files(task.id, harbor.to_files(task, objects), objects) == task


@settings(max_examples=40)
@given(st.data())
def test_a_task_comes_back_from_a_task_repository_but_for_what_is_named(data: st.DataObject) -> None:
    objects = scratch_store()
    task = nasty_task(data, objects)
    back = swebench5.from_files(swebench5.to_files(task, objects), objects)
    kept = {
        "id",
        "instruction",
        "workspace",
        "gold_patch",
        "tests.fail_to_pass",
        "tests.pass_to_pass",
        "tests.hidden_files",
    }
    assert not kept & set(lost_parts(task, back))


def test_a_directory_that_was_edited_says_what_it_says_now() -> None:
    objects = scratch_store()
    files = harbor.to_files(calc_task(objects), objects)
    visible = "environment/workspace/tests/test_calc.py"
    files |= {"instruction.md": text_file("Other words"), visible: text_file("1\n")}
    task = harbor.from_files("calc-1", files, objects)
    assert task.instruction == "Other words"
    assert task.tests.visible_files == {"tests/test_calc.py": objects.put(b"1\n")}
    assert objects.entries(task.workspace)["tests/test_calc.py"].id == objects.put(b"1\n")
    assert harbor.to_files(on_disk(task), objects) == files


def test_hidden_tests_lie_in_the_tests_folder_only() -> None:
    objects = scratch_store()
    files = harbor.to_files(calc_task(objects), objects)
    assert {name.split("/")[0] for name, file in files.items() if b"test_far_above" in file.data} == {
        "tests",
        "task.toml",
    }


def test_what_steers_the_tests_is_put_back_as_it_was() -> None:
    objects = scratch_store()
    task = calc_task(objects)
    tree = objects.update_tree(task.workspace, {"conftest.py": Entry(0o100644, objects.put(b"# ours"))})
    files = harbor.to_files(task.model_copy(update={"workspace": tree}), objects)
    assert files["tests/files/conftest.py"].data == b"# ours"


def test_the_environment_is_built_from_the_lock_by_hash() -> None:
    objects = scratch_store()
    lock = "pytest==9.0.0 --hash=sha256:0\n"
    package = Distribution(name="My.Pack", version="1", entry_points="[pytest11]\n")
    environment = Environment(python="3.12", lock=lock, distribution=package, pythonpath=("src", ""))
    files = harbor.to_files(calc_task(objects).model_copy(update={"environment": environment}), objects)
    text = files["environment/Dockerfile"].data.decode()
    assert text.startswith("FROM python:3.12-slim\n")
    assert "--require-hashes" in text
    assert 'ENV PYTHONPATH="/workspace/src:/workspace"' in text
    assert files["environment/requirements.lock"].data.decode() == lock
    assert files["environment/site/my_pack-1.dist-info/entry_points.txt"].data == b"[pytest11]\n"


@pytest.mark.parametrize("to_files", [harbor.to_files, swebench5.to_files])
@pytest.mark.parametrize("bare", [{"workspace": EMPTY_TREE}, {"environment": Environment()}])
def test_a_task_that_cannot_be_built_cannot_be_a_folder(
    to_files: Callable[[Task, ObjectStore], Folder], bare: dict[str, object]
) -> None:
    objects = scratch_store()
    with pytest.raises(Refused, match="not_runnable"):
        to_files(calc_task(objects).model_copy(update=bare), objects)


@pytest.mark.parametrize("name", ["../out", "/etc/x", "a/../../b", "link/x", ""])
def test_no_file_is_written_outside_the_folder(tmp_path: Path, name: str) -> None:
    files = {"link": File(0o120000, str(tmp_path).encode()), name: text_file("x")}
    with pytest.raises(Refused, match="leaves its folder"):
        write_folder(tmp_path / "in" / "folder", files)
    assert [path.name for path in tmp_path.iterdir()] == []


def test_a_folder_is_read_as_it_was_written(tmp_path: Path) -> None:
    files = {
        "a/b": File(0o100755, b"\xff\r\n"),
        "empty": File(0o100644, b""),
        "link": File(0o120000, b"/etc/passwd"),
        "a/dir link": File(0o120000, b".."),
    }
    write_folder(tmp_path / "x", files)
    assert read_folder(tmp_path / "x") == files


def nasty_task(data: st.DataObject, objects: ObjectStore) -> Task:
    """A task with odd words, odd files and odd tests."""
    before = data.draw(st.dictionaries(PATHS, st.binary(max_size=20), min_size=1, max_size=3))
    change = data.draw(st.dictionaries(st.sampled_from(sorted(before)), st.binary(max_size=20) | st.none()))
    workspace = tree_of(objects, before)
    gold = diff_trees(objects, workspace, tree_of(objects, {**before, **change}))
    task = calc_task(objects)
    hidden = objects.put(data.draw(st.binary(max_size=20)))
    visible = {path: entry.id for path, entry in objects.entries(workspace).items() if data.draw(st.booleans())}
    failing = tuple(data.draw(st.lists(TEXT, min_size=1, max_size=3)))
    tests = {
        "fail_to_pass": failing,
        "hidden": failing,
        "visible_files": visible,
        "hidden_files": {"test_h.py": hidden},
    }
    update = {
        "workspace": workspace,
        "gold_patch": gold,
        "instruction": data.draw(TEXT),
        "key_files": tuple(sorted(change)),
        "tests": task.tests.model_copy(update=tests),
    }
    return task.model_copy(update={**update, "scope": patch_scope(gold)})


def tree_of(objects: ObjectStore, files: dict[str, bytes | None] | dict[str, bytes]) -> str:
    """The tree of these files, without those that are None."""
    entries = {path: Entry(0o100644, objects.put(data)) for path, data in files.items() if data is not None}
    return objects.write_tree(entries)
