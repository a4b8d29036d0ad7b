"""The files of a commit out of a local clone."""

from pathlib import Path

import pytest
from pydantic import JsonValue

from patchgym.content import Entry, ObjectStore
from patchgym.errors import UsageError
from patchgym.tasks.formats import r2egym, swebench, swesmith
from patchgym.tasks.formats.benchmark import EMPTY_TREE
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.refused import Refused
from tests.tasks.formats.rows_for_tests import (
    GOLD,
    git,
    healthy_bytes,
    make_clone,
    r2egym_row,
    repo_bytes,
    swebench_row,
)
from tests.workshop import FAIL_TO_PASS, PASS_TO_PASS, WHOLE

NASTY = {"crlf.py": b"a\r\nb\r", "bytes": b"\xff\x00", "d/latin.py": b"\xe9\n", "link@": b"crlf.py", "run.sh": b"#!"}


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.mark.parametrize("name", ["owner/calc", "owner__calc", "calc", "calc.git"])
def test_a_clone_is_found_by_any_of_its_names(tmp_path: Path, objects: ObjectStore, name: str) -> None:
    commit = make_clone(tmp_path / "repos" / name, repo_bytes())
    tree = Clones(tmp_path / "repos", objects).tree("owner/calc", commit)
    assert tree is not None
    assert objects.get(objects.entries(tree)["calc.py"].id) == repo_bytes()["calc.py"]


def test_every_byte_and_mode_survives(tmp_path: Path, objects: ObjectStore) -> None:
    clone = tmp_path / "repos" / "calc"
    make_clone(clone, NASTY)
    (clone / "run.sh").chmod(0o755)
    git(clone, "commit", "-qam", "mode")
    tree = Clones(tmp_path / "repos", objects).tree("calc", "HEAD")
    assert tree == git(clone, "rev-parse", "HEAD^{tree}").strip()
    assert objects.entries(tree)["link"] == Entry(0o120000, objects.put(b"crlf.py"))


def test_packed_and_bare_clones_are_read(tmp_path: Path, objects: ObjectStore) -> None:
    make_clone(tmp_path / "work", {f"f{number}.py": b"x\n" * number for number in range(40)})
    git(tmp_path, "clone", "-q", "--bare", str(tmp_path / "work"), "repos/calc")
    git(tmp_path / "repos/calc", "gc", "-q")
    tree = Clones(tmp_path / "repos", objects).tree("calc", "HEAD")
    assert tree == git(tmp_path / "work", "rev-parse", "HEAD^{tree}").strip()


def test_a_submodule_is_left_out_and_counted(tmp_path: Path, objects: ObjectStore) -> None:
    clone = tmp_path / "repos" / "calc"
    commit = make_clone(clone, repo_bytes())
    git(clone, "update-index", "--add", "--cacheinfo", f"160000,{commit},vendored")
    git(clone, "commit", "-qm", "submodule")
    clones = Clones(tmp_path / "repos", objects)
    tree = clones.tree("calc", "HEAD")
    assert tree is not None
    assert set(objects.entries(tree)) == set(repo_bytes())
    assert clones.submodules == 1


@pytest.mark.parametrize(
    ("repo", "commit"), [("owner/other", "HEAD"), ("calc", "f" * 40), ("calc", "no such"), ("calc", "")]
)
def test_what_is_not_there_is_counted(tmp_path: Path, objects: ObjectStore, repo: str, commit: str) -> None:
    make_clone(tmp_path / "repos" / "calc", repo_bytes())
    clones = Clones(tmp_path / "repos", objects)
    assert clones.tree(repo, commit) is None
    assert sum(clones.missing.values()) == 1


@pytest.mark.parametrize("repo", ["../outside", "/", "a/../../outside", "", "a\0b"])
def test_a_repository_never_leaves_the_folder(tmp_path: Path, objects: ObjectStore, repo: str) -> None:
    make_clone(tmp_path / "outside", repo_bytes())
    (tmp_path / "repos").mkdir()
    assert not Clones(tmp_path / "repos", objects).has(repo)


def test_no_folder_of_clones_is_an_error(tmp_path: Path, objects: ObjectStore) -> None:
    with pytest.raises(UsageError):
        Clones(tmp_path / "nowhere", objects)


def test_a_swe_bench_task_gets_its_files_and_its_hidden_tests(tmp_path: Path, objects: ObjectStore) -> None:
    files = {**repo_bytes(), "lib/test_other.py": b"", "conftest.py": b"", "testing.py": b""}
    commit = make_clone(tmp_path / "repos" / "owner__calc", files)
    row = swebench_row(base_commit=commit)
    task = swebench.from_row(row, objects, Clones(tmp_path / "repos", objects))
    assert {path: objects.get(entry.id) for path, entry in objects.entries(task.workspace).items()} == files
    assert objects.get(task.tests.hidden_files["tests/test_calc.py"]).decode() == WHOLE
    assert set(task.tests.visible_files) == {"tests/test_calc.py", "lib/test_other.py", "conftest.py"}
    assert swebench.to_row(task, objects) == row


def test_a_swe_smith_task_has_the_bug_and_not_the_tests_that_find_it(tmp_path: Path, objects: ObjectStore) -> None:
    make_clone(tmp_path / "repos" / "swesmith" / "owner__calc.01234567", healthy_bytes())
    bug = GOLD.replace("-        return low\n+        return high", "-        return high\n+        return low")
    row: dict[str, JsonValue] = {
        "instance_id": "a",
        "repo": "swesmith/owner__calc.01234567",
        "patch": bug,
        "FAIL_TO_PASS": [*FAIL_TO_PASS],
        "PASS_TO_PASS": [*PASS_TO_PASS],
    }
    task = swesmith.from_row(row, objects, Clones(tmp_path / "repos", objects))
    files = {path: objects.get(entry.id) for path, entry in objects.entries(task.workspace).items()}
    assert files == {path: data for path, data in repo_bytes().items() if not path.startswith("tests/")}
    assert objects.get(task.tests.hidden_files["tests/test_calc.py"]).decode() == WHOLE
    assert swesmith.to_row(task, objects) == row


def test_a_swe_smith_mirror_is_found_as_a_commit_of_the_original(tmp_path: Path, objects: ObjectStore) -> None:
    commit = make_clone(tmp_path / "repos" / "owner" / "calc", healthy_bytes())
    row: dict[str, JsonValue] = {
        "instance_id": "a",
        "repo": f"swesmith/owner__calc.{commit[:8]}",
        "patch": "",
        "FAIL_TO_PASS": [],
        "PASS_TO_PASS": [],
    }
    assert swesmith.from_row(row, objects, Clones(tmp_path / "repos", objects)).workspace != EMPTY_TREE


def test_an_r2e_gym_task_starts_before_its_commit(tmp_path: Path, objects: ObjectStore) -> None:
    clone = tmp_path / "repos" / "calc"
    make_clone(clone, repo_bytes())
    (clone / "calc.py").write_bytes(healthy_bytes()["calc.py"])
    git(clone, "commit", "-qam", "fix")
    fix = git(clone, "rev-parse", "HEAD").strip()
    commit = str(r2egym_row()["parsed_commit_content"]).replace(f'"old_commit_hash": "{"f" * 40}", ', "")
    row = r2egym_row(commit_hash=fix, parsed_commit_content=commit)
    task = r2egym.from_row(row, objects, Clones(tmp_path / "repos", objects))
    assert objects.get(objects.entries(task.workspace)["calc.py"].id) == repo_bytes()["calc.py"]
    assert r2egym.to_row(task, objects) == row


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"patch": GOLD.replace("return low", "return lo")}, "gold_does_not_apply"),
        ({"test_patch": GOLD.replace("return low", "return lo")}, "test_patch_does_not_apply"),
        ({"test_patch": "Binary files a/x and b/x differ\n"}, "test_patch_does_not_apply"),
    ],
)
def test_patches_that_do_not_apply_are_refused(
    tmp_path: Path, objects: ObjectStore, changes: dict[str, str], reason: str
) -> None:
    commit = make_clone(tmp_path / "repos" / "calc", repo_bytes())
    with pytest.raises(Refused) as refused:
        swebench.from_row(swebench_row(base_commit=commit, **changes), objects, Clones(tmp_path / "repos", objects))
    assert refused.value.reason == reason
