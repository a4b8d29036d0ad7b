"""Packs and loose objects are read as dulwich and git write them."""

import io
import zlib
from pathlib import Path

from dulwich.object_format import SHA1
from dulwich.objects import Blob
from dulwich.pack import write_pack_objects
from hypothesis import given
from hypothesis import strategies as st

from patchgym.tasks.gates.attack.gitobjects import bundle_refs, loose_object, pack_in, packed_objects
from tests.tasks.gates.planting import commit, git, need_git

_ALIKE = st.lists(st.binary(min_size=40, max_size=200), min_size=1, max_size=6).map(
    lambda parts: [b"".join(parts[: at + 1]) * 3 for at in range(len(parts))]
)


@given(st.lists(st.binary(max_size=300), max_size=8) | _ALIKE, st.booleans())
def test_a_pack_gives_back_what_was_packed(contents: list[bytes], deltify: bool) -> None:
    stream = io.BytesIO()
    blobs = [Blob.from_string(content) for content in contents]
    write_pack_objects(stream, [(blob, None) for blob in blobs], SHA1, deltify=deltify)
    data = stream.getvalue()
    assert pack_in(data) == 0
    found = packed_objects(data, {}, lambda: True)
    assert found == {blob.id.decode(): ("blob", blob.data) for blob in blobs}


@given(st.binary(max_size=600))
def test_a_damaged_pack_is_read_as_far_as_it_goes(tail: bytes) -> None:
    assert all(kind for kind, _ in packed_objects(b"PACK\0\0\0\2\0\0\0\5" + tail, {}, lambda: True).values())


@given(st.binary(max_size=300))
def test_a_loose_object_is_known_by_its_header(content: bytes) -> None:
    assert loose_object(zlib.compress(b"blob %d\0" % len(content) + content)) == ("blob", content)
    kinds = (b"blob", b"tree", b"commit", b"tag")
    assert loose_object(zlib.compress(content)) == ("", b"") or content.startswith(kinds)
    assert loose_object(content)[0] in ("", "blob")


def test_a_pack_of_the_real_git_with_deltas_is_read_whole(tmp_path: Path) -> None:
    need_git()
    git(tmp_path, "init", "-q")
    for number in range(15):
        commit(tmp_path, "x = 1\n" * 200 + f"y = {number}\n", f"version {number}")
    git(tmp_path, "repack", "-a", "-d", "-q")
    data = next((tmp_path / ".git" / "objects" / "pack").glob("*.pack")).read_bytes()
    found = packed_objects(data, {}, lambda: True)
    listed = git(tmp_path, "cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)").split("\n")
    assert {f"{sha} {kind}" for sha, (kind, _) in found.items()} == set(listed)


def test_a_delta_that_copies_64_kib_at_once_is_read(tmp_path: Path) -> None:
    need_git()
    git(tmp_path, "init", "-q")
    lines = "".join(f"x{number} = {number * 7919 % 10007}\n" for number in range(20_000))
    for number in range(2):
        commit(tmp_path, lines + f"y = {number}\n", f"version {number}")
    git(tmp_path, "repack", "-a", "-d", "-q")
    data = next((tmp_path / ".git" / "objects" / "pack").glob("*.pack")).read_bytes()
    found = packed_objects(data, {}, lambda: True)
    ids = [git(tmp_path, "rev-parse", f"{name}:calc.py") for name in ("HEAD", "HEAD~1")]
    assert [found[sha][1].decode()[-6:] for sha in ids] == ["y = 1\n", "y = 0\n"]


def test_a_bundle_names_its_refs_and_holds_a_pack(tmp_path: Path) -> None:
    need_git()
    git(tmp_path, "init", "-q")
    sha = commit(tmp_path, "x = 1\n", "one")
    git(tmp_path, "bundle", "create", "-q", "b.bundle", "--all")
    data = (tmp_path / "b.bundle").read_bytes()
    assert ("refs/heads/main", sha) in bundle_refs(data)
    assert sha in packed_objects(data[pack_in(data) :], {}, lambda: True)
