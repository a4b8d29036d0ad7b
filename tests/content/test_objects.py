"""Trees: what goes in comes out, and nothing comes out elsewhere."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore
from patchgym.errors import DataError


def test_a_directory_survives_the_store(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg" / "run.sh").write_bytes(b"#!/bin/sh\r\n")
    (source / "pkg" / "run.sh").chmod(0o755)
    (source / "empty").write_bytes(b"")
    (source / "binary").write_bytes(bytes(range(256)))
    (source / "link").symlink_to("pkg/run.sh")
    (source / "__pycache__").mkdir()
    (source / "__pycache__" / "x.pyc").write_bytes(b"stale")
    store = ObjectStore(tmp_path / "objects")
    tree = store.ingest(source)
    target.mkdir()
    store.checkout(tree, target)
    assert sorted(store.entries(tree)) == ["binary", "empty", "link", "pkg/run.sh"]
    assert (target / "pkg" / "run.sh").read_bytes() == b"#!/bin/sh\r\n"
    assert os.access(target / "pkg" / "run.sh", os.X_OK)
    assert (target / "link").readlink() == Path("pkg/run.sh")
    assert store.ingest(target) == tree


def test_a_special_file_is_no_part_of_a_tree(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    os.mkfifo(tmp_path / "work" / "pipe")
    store = ObjectStore(tmp_path / "objects")
    assert store.entries(store.ingest(tmp_path / "work")) == {}


def test_an_update_equals_the_tree_written_whole(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    a, b = Entry(0o100644, store.put(b"a")), Entry(0o100644, store.put(b"b"))
    base = store.write_tree({"x/y/z": a, "x/w": a, "top": a, "gone/only": a})
    updated = store.update_tree(base, {"x/y/z": b, "gone/only": None, "new/deep/file": b, "top": None})
    assert updated == store.write_tree({"x/y/z": b, "x/w": a, "new/deep/file": b})


def test_removing_the_last_file_leaves_the_empty_tree(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    base = store.write_tree({"a/b": Entry(0o100644, store.put(b"a"))})
    assert store.update_tree(base, {"a/b": None}) == store.write_tree({})


def test_a_file_can_become_a_folder_and_back(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    a = Entry(0o100644, store.put(b"a"))
    as_file, as_folder = store.write_tree({"x": a}), store.write_tree({"x/y": a})
    assert store.update_tree(as_file, {"x": None, "x/y": a}) == as_folder
    assert store.update_tree(as_folder, {"x/y": None, "x": a}) == as_file


def test_a_copy_holds_everything(tmp_path: Path) -> None:
    store, other = ObjectStore(tmp_path / "a"), ObjectStore(tmp_path / "b")
    tree = store.write_tree({"x/y": Entry(0o100644, store.put(b"data")), "z": Entry(0o100755, store.put(b""))})
    store.copy_tree(tree, other)
    assert other.get(other.entries(tree)["x/y"].id) == b"data"


def test_a_missing_object_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="missing"):
        ObjectStore(tmp_path).entries("0" * 40)


def test_a_planted_path_does_not_leave_the_checkout(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "objects")
    tree = store.write_tree({"../escaped": Entry(0o100644, store.put(b"x"))})
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="leaves its root"):
        store.checkout(tree, tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


def test_many_threads_may_write_the_same_objects(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path)
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(store.put, [b"%d" % (n % 5) for n in range(400)]))
    assert {store.get(blob) for blob in ids} == {b"0", b"1", b"2", b"3", b"4"}
