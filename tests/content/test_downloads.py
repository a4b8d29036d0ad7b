"""Files from an index on loopback and from folders, asked for through pip's client; nothing of them is run."""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from patchgym.content import Pin, fetch
from patchgym.content.downloads import IndexFile, download, list_files
from patchgym.errors import DataError, OfflineError, UsageError
from tests.sandbox.package_index import PackageIndex, make_wheel


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PackageIndex]:
    """An index that pip is set up for; nothing of this machine's set-up is left."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    served = PackageIndex(tmp_path / "index")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", served.url)
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "default-cache"))
    yield served
    served.switch_off()


def sdist(marker: Path) -> bytes:
    """An sdist that leaves a mark when anything of it is run."""
    text = f"open({str(marker)!r}, 'w')\n".encode()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        member = tarfile.TarInfo("thing-1.0/setup.py")
        member.size = len(text)
        archive.addfile(member, io.BytesIO(text))
    return out.getvalue()


def test_an_index_is_listed_with_what_it_tells(index: PackageIndex) -> None:
    index.add("thing", "thing-1.0.tar.gz", b"one", uploaded="2024-02-03T04:05:06Z")
    index.add("thing", "thing-2.0.tar.gz", b"two", uploaded="2025-02-03T04:05:06Z", yanked=True)
    index.add("thing", "thing-2.0-py2-none-any.whl", make_wheel("thing", "2.0", {}), uploaded="2025-02-03T04:05:06Z")
    found = {file.filename: file for file in list_files("thing")}
    assert set(found) == {"thing-1.0.tar.gz", "thing-2.0.tar.gz"}  # that wheel is for no Python that runs this
    first, second = found["thing-1.0.tar.gz"], found["thing-2.0.tar.gz"]
    assert (first.version, first.kind, first.yanked, second.yanked) == ("1.0", "sdist", False, True)
    assert first.sha256 == hashlib.sha256(b"one").hexdigest()
    assert first.uploaded is not None
    assert first.uploaded.isoformat() == "2024-02-03T04:05:06+00:00"


def test_an_index_of_plain_pages_serves_without_times(index: PackageIndex) -> None:
    (found,) = list_files("tinydemo")
    assert (found.kind, found.sha256, found.uploaded) == ("wheel", index.sha256, None)


def test_nothing_of_an_sdist_is_run(index: PackageIndex, tmp_path: Path) -> None:
    data = sdist(tmp_path / "ran")
    sha256 = index.add("thing", "thing-1.0.tar.gz", data)
    path = fetch(Pin(name="thing", version="1.0", kind="sdist", sha256=sha256), tmp_path / "cache")
    assert path.read_bytes() == data
    assert path == tmp_path / "cache" / "downloads" / sha256 / "thing-1.0.tar.gz"
    assert not (tmp_path / "ran").exists()


def test_what_was_fetched_once_serves_without_network(index: PackageIndex, tmp_path: Path) -> None:
    pin = Pin(name="tinydemo", version="1.0", kind="wheel", sha256=index.sha256)
    path = fetch(pin, tmp_path / "cache")
    index.switch_off()
    assert fetch(pin, tmp_path / "cache") == path
    path.write_bytes(b"damaged")
    with pytest.raises(OfflineError):
        fetch(pin, tmp_path / "cache")


def test_a_folder_of_files_serves_as_find_links(
    index: PackageIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "thing-1.0.tar.gz").write_bytes(b"from a folder")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "links"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    sha256 = hashlib.sha256(b"from a folder").hexdigest()
    (found,) = list_files("thing")
    assert found.sha256 is None
    assert download(found, tmp_path / "cache").parent.name == sha256
    pin = Pin(name="thing", version="1.0", kind="sdist", sha256=sha256)
    assert fetch(pin, tmp_path / "other").read_bytes() == b"from a folder"


def test_other_bytes_than_were_told_are_refused(index: PackageIndex, tmp_path: Path) -> None:
    index.add("thing", "thing-1.0.tar.gz", b"good")
    (found,) = list_files("thing")
    index.add("thing", "thing-1.0.tar.gz", b"evil")
    with pytest.raises(DataError, match="another SHA-256"):
        download(found, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.tar.gz"))


def test_a_hash_that_no_file_has_is_not_fetched(index: PackageIndex, tmp_path: Path) -> None:
    pin = Pin(name="tinydemo", version="1.0", kind="wheel", sha256="0" * 64)
    with pytest.raises(OfflineError, match="No index within reach"):
        fetch(pin, tmp_path / "cache")
    assert not [path for path in index.asked if path.endswith(".whl")]


def test_no_project_and_no_network_are_told_apart(index: PackageIndex) -> None:
    with pytest.raises(UsageError, match="No index has a project nothing"):
        list_files("nothing")
    index.switch_off()
    with pytest.raises(OfflineError, match="Cannot ask for nothing"):
        list_files("nothing")


@pytest.mark.parametrize("name", ["--pre", "-r", "a/b", "../x", "a b", "", "x;y", "http://x"])
def test_what_is_no_name_is_never_asked_for(index: PackageIndex, name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        list_files(name)
    assert not index.asked


def test_a_file_that_went_away_is_an_offline_error(index: PackageIndex, tmp_path: Path) -> None:
    gone = IndexFile(version="1", filename="x-1.tar.gz", url=f"{index.url}/x/x-1.tar.gz", sha256="0" * 64)
    with pytest.raises(OfflineError, match="404"):
        download(gone, tmp_path / "cache")


def test_file_names_that_are_paths_are_left_out(index: PackageIndex, tmp_path: Path) -> None:
    index.add("thing", "thing-1.0.tar.gz", b"one")
    index.add("thing", "..%2Fthing-2.0.tar.gz", b"two")
    assert all("/" not in file.filename for file in list_files("thing"))
