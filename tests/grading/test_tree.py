"""The tree that is graded: what a patch may change of it, and what is always as it must be."""

import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, diff_trees
from patchgym.content.objects import SYMLINK
from patchgym.errors import PatchError
from patchgym.grading import ALL_LAYERS, Layer, graded_tree
from patchgym.grading.protect import Guarded
from patchgym.grading.tree import MOST_BYTES
from patchgym.records import Environment, Task, Tests
from tests.workshop import BUGGY, FIXED, VISIBLE, WHOLE, calc_task, patch_of, tree_of

REPOSITORY = {
    "calc.py": BUGGY,
    "tests/test_calc.py": VISIBLE,
    "tests/conftest.py": "ours = 1\n",
    "tests/data/expected.json": "[9]\n",
    "tests/__init__.py": "",
    "setup.cfg": "[tool:pytest]\n",
    "lib/util.py": "x = 1\n",
    "lib/__pycache__/util.cpython-311.pyc": "poison",
    "lib/util.pyc": "poison",
    "lib/only.pyc": "no source",
}


@pytest.fixture
def objects(tmp_path_factory: pytest.TempPathFactory) -> ObjectStore:
    return ObjectStore(tmp_path_factory.mktemp("objects"))


@pytest.fixture
def task(objects: ObjectStore) -> Task:
    made = calc_task(objects)
    workspace = tree_of(objects, REPOSITORY)
    changed = objects.update_tree(workspace, {"calc.py": Entry(0o100644, objects.put(FIXED.encode()))})
    return made.model_copy(update={"workspace": workspace, "gold_patch": diff_trees(objects, workspace, changed)})


def texts(objects: ObjectStore, tree: str) -> dict[str, str]:
    return {path: objects.get(entry.id).decode() for path, entry in objects.entries(tree).items()}


KEPT = {"tests/conftest.py", "tests/data/expected.json", "tests/__init__.py", "setup.cfg", "tests/test_calc.py"}


def as_it_must_be(found: dict[str, str]) -> bool:
    expected = {**REPOSITORY, "tests/test_calc.py": WHOLE}
    inside = {path for path in found if path.startswith("tests/")}
    return all(found.get(path) == expected[path] for path in KEPT) and inside <= KEPT


@pytest.mark.parametrize(
    "changes",
    [
        {"tests/conftest.py": None},
        {"tests/conftest.py": "theirs = 1\n"},
        {"tests/data/expected.json": "[0]\n"},
        {"tests/data/more.json": "[]\n"},
        {"tests/test_calc.py": None},
        {"tests/test_new.py": "def test_new(): pass\n"},
        {"setup.cfg": None, "calc.py": FIXED},
        dict.fromkeys(path for path in REPOSITORY if path.startswith("tests/")),
        {**dict.fromkeys(path for path in REPOSITORY if path.startswith("tests/")), "tests": "a file"},
        {"tests/test_calc.py": None, "tests/test_calc.py/x": "a folder"},
        {"setup.cfg": None, "setup.cfg/x": "a folder"},
    ],
)
def test_tests_configuration_and_test_data_are_those_of_the_base(
    objects: ObjectStore, task: Task, changes: dict[str, str | None]
) -> None:
    tree, touched = graded_tree(objects, task, patch_of(objects, task, changes))
    assert as_it_must_be(texts(objects, tree))
    assert touched


def test_a_symbolic_link_in_the_place_of_the_test_folder_is_left_out(objects: ObjectStore, task: Task) -> None:
    gone: dict[str, Entry | None] = dict.fromkeys(path for path in REPOSITORY if path.startswith("tests/"))
    own = {"evil/test_calc.py": Entry(0o100644, objects.put(b"def test_above(): pass\n"))}
    link = {"tests": Entry(SYMLINK, objects.put(b"evil"))}
    patched = objects.update_tree(objects.update_tree(task.workspace, gone), {**own, **link})
    tree, touched = graded_tree(objects, task, diff_trees(objects, task.workspace, patched))
    assert as_it_must_be(texts(objects, tree))
    assert "tests" in touched


def test_a_rename_of_a_conftest_does_not_lose_it(objects: ObjectStore, task: Task) -> None:
    patch = "diff --git a/tests/conftest.py b/lib/conf.py\nsimilarity index 100%\n"
    patch += "rename from tests/conftest.py\nrename to lib/conf.py\n"
    assert as_it_must_be(texts(objects, graded_tree(objects, task, patch)[0]))


def test_caches_are_purged_and_code_without_a_source_stays(objects: ObjectStore, task: Task) -> None:
    found = texts(objects, graded_tree(objects, task, "")[0])
    assert {path for path in found if "pyc" in path} == {"lib/only.pyc"}


@pytest.mark.parametrize(
    "path",
    [
        "json.py",
        "pytest.py",
        "_pytest/__init__.py",
        "unittest/mock.py",
        "statistics.py",
        "conftest.py",
        "x.pth",
        "calc.cpython-311-x86_64-linux-gnu.so",
        "evil-1.dist-info/entry_points.txt",
        "sub/pytest.ini",
        "freezegun.py",
    ],
)
def test_what_would_take_the_place_of_others_is_left_out(objects: ObjectStore, task: Task, path: str) -> None:
    locked = task.environment.model_copy(update={"lock": "freezegun==1.5.1 \\\n    --hash=sha256:00\n"})
    task = task.model_copy(update={"environment": locked})
    tree, touched = graded_tree(objects, task, patch_of(objects, task, {path: "raise SystemExit\n", "calc.py": FIXED}))
    found = texts(objects, tree)
    assert touched == (path,)
    assert path not in found
    assert found["calc.py"] == FIXED


def test_a_module_that_the_base_has_may_be_changed_whatever_its_name(objects: ObjectStore, task: Task) -> None:
    workspace = objects.update_tree(task.workspace, {"json.py": Entry(0o100644, objects.put(b"own = 1\n"))})
    task = task.model_copy(update={"workspace": workspace})
    tree, touched = graded_tree(objects, task, patch_of(objects, task, {"json.py": "own = 2\n"}))
    assert (texts(objects, tree)["json.py"], touched) == ("own = 2\n", ())


def test_modules_inside_packages_may_have_any_name(objects: ObjectStore, task: Task) -> None:
    tree, touched = graded_tree(objects, task, patch_of(objects, task, {"lib/json.py": "own = 1\n"}))
    assert (texts(objects, tree)["lib/json.py"], touched) == ("own = 1\n", ())


def test_test_data_that_the_solution_changes_may_be_changed(objects: ObjectStore, task: Task) -> None:
    gold = patch_of(objects, task, {"calc.py": FIXED, "tests/data/expected.json": "[10]\n"})
    task = task.model_copy(update={"gold_patch": gold})
    tree, touched = graded_tree(objects, task, patch_of(objects, task, {"tests/data/expected.json": "[11]\n"}))
    assert (texts(objects, tree)["tests/data/expected.json"], touched) == ("[11]\n", ())


def test_each_layer_holds_its_own_files(objects: ObjectStore, task: Task) -> None:
    patch = patch_of(objects, task, {"tests/test_calc.py": "", "tests/conftest.py": ""})
    without_tests = texts(objects, graded_tree(objects, task, patch, ALL_LAYERS - {Layer.TESTS})[0])
    without_harness = texts(objects, graded_tree(objects, task, patch, ALL_LAYERS - {Layer.HARNESS})[0])
    assert (without_harness["tests/test_calc.py"], without_harness["tests/conftest.py"]) == (WHOLE, "")
    assert without_tests["tests/conftest.py"] == REPOSITORY["tests/conftest.py"]
    nothing = texts(objects, graded_tree(objects, task, patch, frozenset())[0])
    assert (nothing["tests/test_calc.py"], nothing["tests/conftest.py"]) == ("", "")


def test_a_huge_patch_is_refused(objects: ObjectStore, task: Task) -> None:
    with pytest.raises(PatchError, match="17 MB long"):
        graded_tree(objects, task, "x" * (MOST_BYTES + 1024**2))


@pytest.mark.parametrize("path", ["../x.py", "/etc/x", "a/../../x", ".git/hooks/pre-commit", "a/./b"])
def test_a_path_that_leaves_the_workspace_is_refused(objects: ObjectStore, task: Task, path: str) -> None:
    patch = f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(PatchError):
        graded_tree(objects, task, patch)


NAMES = st.sampled_from(
    ["tests", "calc.py", "conftest.py", "lib", "json.py", "test_calc.py", "x", "__pycache__", "data"]
)


@settings(deadline=None, max_examples=40)
@given(st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.none() | st.just("y"), max_size=5))
def test_no_patch_of_whole_files_changes_what_decides(
    tmp_path_factory: pytest.TempPathFactory, changes: dict[str, str | None]
) -> None:
    objects = ObjectStore(tmp_path_factory.mktemp("objects"))
    task = calc_task(objects).model_copy(update={"workspace": tree_of(objects, REPOSITORY)})
    tree, _ = graded_tree(objects, task, patch_of(objects, task, changes))
    found = texts(objects, tree)
    assert as_it_must_be(found)
    assert not {path for path in found if path.endswith("conftest.py")} - {"tests/conftest.py"}
    assert (
        not {path.removesuffix(".py") if "/" not in path else path.split("/")[0] for path in found}
        & sys.stdlib_module_names
    )


def test_what_lies_beside_test_files_in_a_source_folder_is_not_the_tests() -> None:
    tests = Tests(fail_to_pass=(), pass_to_pass=(), hidden=(), visible_files={"pkg/core_test.py": ""}, hidden_files={})
    guarded = Guarded(tests, Environment(), ["pkg/core.py", "pkg/core_test.py", "pkg/fixtures/a.json"], ())
    refused = [path for path in ("pkg/core.py", "pkg/core_test.py", "pkg/fixtures/a.json") if guarded.refuses(path)]
    assert refused == ["pkg/core_test.py", "pkg/fixtures/a.json"]
