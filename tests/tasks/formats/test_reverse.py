"""Patches turned round."""

import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore, apply_patch, diff_trees
from patchgym.errors import PatchError
from patchgym.tasks.formats.reverse import reverse_patch, split_patch
from tests.tasks.formats.rows_for_tests import GOLD, git, make_clone, patches, scratch_store

BYTES = st.binary(max_size=40) | st.lists(st.sampled_from([b"a\n", b"b\r\n", b"\n", b"-- \n"]), max_size=6).map(
    b"".join
)
TREES = st.dictionaries(st.sampled_from(["a.py", "d/b.py", "ü x"]), BYTES, max_size=3)


@given(TREES, TREES)
def test_a_patch_turned_round_undoes_it(old: dict[str, bytes], new: dict[str, bytes]) -> None:
    store = scratch_store()
    before, after = (
        store.write_tree({path: Entry(0o100644, store.put(data)) for path, data in side.items()}) for side in (old, new)
    )
    assert apply_patch(store, after, reverse_patch(diff_trees(store, before, after))) == before


@given(patches())
def test_turned_round_twice_it_is_what_it_was(patch: str) -> None:
    assert reverse_patch(reverse_patch(patch)) == patch


def test_what_git_writes_of_modes_and_renames_is_undone(tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    make_clone(
        clone,
        {"old name.py": b"one\ntwo\nthree\nfour\n", "mode.sh": b"x\n", "gone.py": b"g\r\n", "bin": bytes(range(256))},
    )
    (clone / "old name.py").rename(clone / "néw.py")
    (clone / "néw.py").write_bytes(b"one\nTWO\nthree\nfour")
    (clone / "mode.sh").chmod(0o755)
    (clone / "gone.py").unlink()
    (clone / "bin").write_bytes(bytes(range(255, -1, -1)))
    git(clone, "add", "-A")
    patch = git(clone, "diff", "--cached", "--binary", "-M", "--full-index")
    assert "rename from" in patch
    store = ObjectStore(tmp_path / "objects")
    after = store.ingest(clone)
    back = apply_patch(store, after, reverse_patch(patch))
    git(clone, "reset", "-q", "--hard")
    git(clone, "clean", "-fdxq")
    assert back == store.ingest(clone)


def test_git_takes_a_patch_that_was_turned_round(tmp_path: Path) -> None:
    make_clone(tmp_path / "c", {"calc.py": b"1\n2\n        return high\n"})
    patch = "--- a/calc.py\n+++ b/calc.py\n@@ -2,2 +2,2 @@\n 2\n-        return low\n+        return high\n"
    (tmp_path / "p").write_text(reverse_patch(patch))
    subprocess.run(["git", "apply", str(tmp_path / "p")], cwd=tmp_path / "c", check=True)
    assert (tmp_path / "c" / "calc.py").read_text().endswith("return low\n")


def test_a_hunk_without_a_last_line_end_in_the_patch_itself_is_whole() -> None:
    assert split_patch(GOLD.rstrip("\n"))[0].hunks[0].lines == split_patch(GOLD)[0].hunks[0].lines


@pytest.mark.parametrize(
    "patch",
    [
        "diff --git a/x b/y\nsimilarity index 100%\ncopy from x\ncopy to y\n",
        "diff --git a/x b/x\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\ndelta 3\nKc${NkU|;|M01N;G\n\n",
        "diff --git a/x b/x\nindex 1..2\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n",
        "no patch at all",
    ],
)
def test_what_a_patch_does_not_hold_cannot_be_turned_round(patch: str) -> None:
    with pytest.raises(PatchError):
        reverse_patch(patch)
