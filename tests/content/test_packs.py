"""Packs of objects: whole trees arrive, what is known stays at home, and nothing is believed."""

import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchgym.content import Entry, ObjectStore
from patchgym.content.packs import closure, pack, unpack
from patchgym.errors import DataError

MOST = 1 << 24
NAMES = st.text("abcé.- ", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))
TREES = st.dictionaries(st.lists(NAMES, min_size=1, max_size=3).map("/".join), st.binary(max_size=40), max_size=8)


def nothing(object_id: str) -> bool:
    return False


def without_clashes(files: dict[str, bytes]) -> dict[str, bytes]:
    """No path that is a file and a folder at once."""
    return {path: data for path, data in files.items() if not any(other.startswith(f"{path}/") for other in files)}


def tree(store: ObjectStore, files: dict[str, bytes]) -> str:
    return store.write_tree({path: Entry(0o100644, store.put(data)) for path, data in files.items()})


def sent(source: ObjectStore, ids: list[str], target: ObjectStore, most: int = MOST) -> int:
    packs = list(pack(source, ids, most))
    for one in packs:
        unpack(one, target, MOST)
    return len(packs)


@given(TREES, st.integers(1, 200))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_tree_arrives_with_every_file(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes], most: int
) -> None:
    folder = tmp_path_factory.mktemp("stores")
    source, target = ObjectStore(folder / "a"), ObjectStore(folder / "b")
    files = without_clashes(files)
    root = tree(source, files)
    sent(source, closure(source, [root], nothing), target, most)
    assert {path: target.get(entry.id) for path, entry in target.entries(root).items()} == files


def test_what_is_known_is_left_out_with_all_beneath_it(tmp_path: Path) -> None:
    source, target = ObjectStore(tmp_path / "a"), ObjectStore(tmp_path / "b")
    old = tree(source, {"a/x": b"1", "a/y": b"2", "b/z": b"3"})
    known = set(closure(source, [old], nothing))
    new = source.update_tree(old, {"b/z": Entry(0o100644, source.put(b"4"))})
    ids = closure(source, [new], known.__contains__)
    assert len(ids) == 3  # the file, its folder, the root
    sent(source, sorted(known, key=list(closure(source, [old], nothing)).index), target)
    sent(source, ids, target)
    assert target.entries(new) == source.entries(new)


def test_a_tree_stands_after_what_it_reaches(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "a")
    root = tree(store, {"a/b/c": b"1", "d": b"2"})
    ids = closure(store, [root], nothing)
    assert ids[-1] == root
    assert ids.index(store.entries(root)["a/b/c"].id) < len(ids) - 3


def forged(kind: bytes, object_id: str, data: bytes) -> bytes:
    return zlib.compress(kind + bytes.fromhex(object_id) + len(data).to_bytes(8, "big") + data)


def test_data_under_another_id_is_refused(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "a")
    with pytest.raises(DataError, match="another one"):
        unpack(forged(b"b", "0" * 40, b"data"), store, MOST)
    assert "0" * 40 not in store


@pytest.mark.parametrize("name", [b"..", b".", b".git", b"a/b", b""])
def test_a_tree_that_leaves_its_root_is_refused(tmp_path: Path, name: bytes) -> None:
    store = ObjectStore(tmp_path / "a")
    blob = store.put(b"data")
    data = b"100644 " + name + b"\0" + bytes.fromhex(blob)
    with pytest.raises(DataError):
        unpack(forged(b"t", "0" * 40, data), store, MOST)


def test_a_tree_without_its_files_is_refused(tmp_path: Path) -> None:
    source, target = ObjectStore(tmp_path / "a"), ObjectStore(tmp_path / "b")
    root = tree(source, {"a": b"1"})
    with pytest.raises(DataError, match="not whole"):
        sent(source, [root], target)


def test_a_pack_that_opens_to_too_much_is_refused_before_it_does(tmp_path: Path) -> None:
    store = ObjectStore(tmp_path / "a")
    with pytest.raises(DataError, match="too large"):
        unpack(zlib.compress(bytes(1 << 20)), store, 1000)


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_bytes_are_a_pack_or_an_error_of_ours(tmp_path: Path, data: bytes) -> None:
    store = ObjectStore(tmp_path / "a")
    for given_bytes in (data, zlib.compress(data)):
        try:
            unpack(given_bytes, store, MOST)
        except DataError:
            continue
