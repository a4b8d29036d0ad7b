"""Patches are exact, and git agrees with them."""

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, apply_patch, diff_trees, patch_scope, patched_paths
from patchgym.errors import PatchError

NAMES = st.sampled_from(["a.py", "b.txt", "dir/c.py", "dir/deep/d", 'odd "name"\t.txt', "späße.md", "dir2/-e"])
LINES = st.lists(st.sampled_from([b"one", b"two", b"  three", b"", b"caf\xc3\xa9", b"x\r", b"\x0c", b"lone\rreturn"]))
CONTENTS = st.one_of(
    st.builds(lambda lines, end: b"\n".join(lines) + end, LINES, st.sampled_from([b"", b"\n"])),
    st.binary(max_size=300),
)
FILES = st.dictionaries(NAMES, st.tuples(st.sampled_from([0o100644, 0o100755]), CONTENTS), max_size=5)


def tree(store: ObjectStore, files: dict[str, tuple[int, bytes]]) -> str:
    return store.write_tree({path: Entry(mode, store.put(data)) for path, (mode, data) in files.items()})


def single(store: ObjectStore, data: bytes) -> str:
    return tree(store, {"f.py": (0o100644, data)})


@settings(max_examples=150, deadline=None)
@given(before=FILES, after=FILES)
def test_a_diff_applied_to_the_old_tree_gives_the_new_tree(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]
) -> None:
    store = ObjectStore(tmp_path_factory.mktemp("objects"))
    old, new = tree(store, before), tree(store, after)
    patch = diff_trees(store, old, new)
    patch.encode("utf-8")
    assert apply_patch(store, old, patch) == new
    assert set(patched_paths(patch)) == set(store.changed_paths(old, new))


@pytest.mark.skipif(shutil.which("git") is None, reason="LOUD SKIP: no git program to compare with")
@settings(max_examples=25, deadline=None)
@given(before=FILES, after=FILES)
def test_git_applies_the_same_patch_to_the_same_result(
    tmp_path_factory: pytest.TempPathFactory, before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]
) -> None:
    root = tmp_path_factory.mktemp("git")
    store = ObjectStore(root / "objects")
    old, new = tree(store, before), tree(store, after)
    work = root / "work"
    work.mkdir()
    store.checkout(old, work)
    patch = diff_trees(store, old, new)
    if patch:
        subprocess.run(["git", "init", "-q"], cwd=work, check=True)
        command = ["git", "-c", "core.autocrlf=false", "apply", "--whitespace=nowarn", "-"]
        subprocess.run(command, cwd=work, check=True, input=patch.encode())
    assert store.ingest(work) == new


def test_git_reads_the_store(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("LOUD SKIP: no git program to compare with")
    subprocess.run(["git", "init", "-q", "--bare", str(tmp_path / "repo")], check=True)
    store = ObjectStore(tmp_path / "repo" / "objects")
    found = tree(store, {"dir/x": (0o100755, b"hello\n")})
    shown = subprocess.run(
        ["git", "-C", str(tmp_path / "repo"), "ls-tree", "-r", found], check=True, capture_output=True, text=True
    )
    assert shown.stdout.split() == ["100755", "blob", store.entries(found)["dir/x"].id, "dir/x"]


def test_a_hunk_applies_at_the_nearest_place_where_its_lines_stand(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    patch = "--- a/f.py\n+++ b/f.py\n@@ -2,2 +2,2 @@\n a\n-b\n+B\n"
    patched = apply_patch(store, single(store, b"new\nnew\na\nb\nc\na\nb\n"), patch)
    assert patched == single(store, b"new\nnew\na\nB\nc\na\nb\n")


def test_a_hunk_whose_lines_are_not_there_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(PatchError, match="does not apply"):
        apply_patch(store, single(store, b"a\nc\n"), "--- a/f.py\n+++ b/f.py\n@@ -1,2 +1,2 @@\n a\n-b\n+B\n")


@pytest.mark.parametrize(
    "hunk",
    [
        "@@ -1,2 +1,2 @@\n a\n-b\n",
        "@@ -1,2 +1,2 @@\n a\n-b\n+B\n+more\n",
        "@@ -1,3 +1,3 @@\n a\n-b\n+B\n",
        "@@ -1,2 +1,2 @@\n a\n*b\n+B\n",
        "@@ -1,2 @@\n a\n-b\n+B\n",
    ],
)
def test_a_cut_or_miscounted_hunk_is_refused_whole(tmp_path: Path, hunk: str) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(PatchError, match="does not parse"):
        apply_patch(store, single(store, b"a\nb\n"), "--- a/f.py\n+++ b/f.py\n" + hunk)


def test_an_empty_line_counts_as_context_and_a_mail_signature_is_skipped(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    patch = "From: me\n\n--- a/f.py\n+++ b/f.py\n@@ -1,3 +1,3 @@\n a\n\n-b\n+B\n-- \n2.39\n"
    assert apply_patch(store, single(store, b"a\n\nb\n"), patch) == single(store, b"a\n\nB\n")


def test_a_creation_over_an_existing_file_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(PatchError, match="there already"):
        apply_patch(store, single(store, b"a\n"), "--- /dev/null\n+++ b/f.py\n@@ -0,0 +1 @@\n+x\n")


@pytest.mark.parametrize("path", ["../out.py", "/etc/passwd", "a/../../b", ".git/hooks/pre-commit", "a//b"])
def test_a_patch_that_leaves_the_workspace_is_refused(tmp_path: Path, path: str) -> None:
    patch = f"--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    store = ObjectStore(tmp_path)
    with pytest.raises(PatchError):
        apply_patch(store, store.write_tree({}), patch)


@pytest.mark.parametrize(
    "patch", ["hello", "--- a/f.py\n+++ b/f.py\n@@ nonsense @@\n+x\n", "--- /dev/null\n+++ /dev/null\n", "diff --git\n"]
)
def test_what_is_no_patch_is_refused(tmp_path: Path, patch: str) -> None:
    store = ObjectStore(tmp_path)
    with pytest.raises(PatchError):
        apply_patch(store, single(store, b"a\n"), patch)


def test_a_refused_path_is_left_alone(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    old = tree(store, {"src.py": (0o100644, b"1\n"), "tests.py": (0o100644, b"assert 1\n")})
    new = tree(store, {"src.py": (0o100644, b"2\n"), "tests.py": (0o100644, b"pass\n")})
    kept = apply_patch(store, old, diff_trees(store, old, new), allow=lambda path: path != "tests.py")
    assert kept == tree(store, {"src.py": (0o100644, b"2\n"), "tests.py": (0o100644, b"assert 1\n")})


def test_a_rename_as_git_writes_it_applies(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    old = tree(store, {"a.py": (0o100755, b"x\n")})
    patch = "diff --git a/a.py b/b.py\nsimilarity index 100%\nrename from a.py\nrename to b.py\n"
    assert apply_patch(store, old, patch) == tree(store, {"b.py": (0o100755, b"x\n")})


def test_scope_counts_files_hunks_and_lines(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    old = single(store, b"".join(b"%d\n" % n for n in range(40)))
    new = single(store, b"".join(b"%d\n" % (n if n not in (3, 30) else -n) for n in range(40)))
    scope = patch_scope(diff_trees(store, old, new))
    assert (scope.files, scope.hunks, scope.lines) == (1, 2, 4)
