"""Differences between states: exact where they are shown, and never a page that does not come."""

import time
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.view.diffs import compare, patch_files


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


def tree(objects: ObjectStore, **files: bytes) -> str:
    return objects.write_tree({name: Entry(0o100644, objects.put(data)) for name, data in files.items()})


def test_lines_that_changed_are_shown(objects: ObjectStore) -> None:
    found = compare(objects, tree(objects, a=b"1\n2\n3\n", b=b"x"), tree(objects, a=b"1\n9\n3\n", c=b"y"))
    assert [(file.path, file.how) for file in found.files] == [("a", "changed"), ("b", "removed"), ("c", "added")]
    assert [line.text for line in found.files[0].lines] == ["@@ -1,4 +1,4 @@", " 1", "-2", "+9", " 3", " "]


def test_equal_states_differ_in_nothing(objects: ObjectStore) -> None:
    state = tree(objects, a=b"1")
    assert compare(objects, state, state).files == []


def test_binary_and_large_files_are_named_with_their_sizes(objects: ObjectStore) -> None:
    began = time.monotonic()
    lines = b"".join(b"%d\n" % (n % 7) for n in range(5_000_000))
    found = compare(objects, tree(objects, a=b"\0", b=b"x"), tree(objects, a=b"\0\0", b=lines))
    assert time.monotonic() - began < 60
    assert "binary" in found.files[0].note
    assert "too large" in found.files[1].note
    assert not found.files[1].lines


def test_a_line_that_is_too_long_is_not_compared(objects: ObjectStore) -> None:
    found = compare(objects, tree(objects, a=b"x" * 500_000), tree(objects, a=b"y" * 500_000))
    assert "too large" in found.files[0].note


def test_many_files_are_counted_beyond_the_first(objects: ObjectStore) -> None:
    found = compare(objects, tree(objects), tree(objects, **{f"f{n}": b"x" for n in range(100)}))
    assert len(found.files) + found.more == 100
    assert found.more > 0


def test_a_mode_that_changed_is_told(objects: ObjectStore) -> None:
    blob = objects.put(b"x\n")
    found = compare(
        objects, objects.write_tree({"a": Entry(0o100644, blob)}), objects.write_tree({"a": Entry(0o100755, blob)})
    )
    assert found.files[0].note == "made executable"


def test_a_patch_is_shown_file_by_file_and_whatever_it_is() -> None:
    two = "diff --git a/x b/x\n+1\ndiff --git a/y b/y\n-2\n"
    assert [file.path for file in patch_files(two).files] == ["x", "y"]
    assert [line.text for line in patch_files("no patch").files[0].lines] == ["no patch"]
    assert patch_files("diff --git a/x b/x\n" + "+1\n" * 9_000).files[0].left_out == 7_001
