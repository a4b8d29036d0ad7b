"""Pinned packages and their sdists: what is on the list, what an archive may do, what the cache serves."""

import hashlib
import io
import os
import re
import tarfile
from datetime import UTC, date, datetime
from importlib import resources
from pathlib import Path

import pytest

from patchgym.content import ObjectStore, Pin, cache_root, fetch
from patchgym.errors import DataError, OfflineError, UsageError
from patchgym.tasks.sources.discover import discover
from patchgym.tasks.sources.files import Files
from patchgym.tasks.sources.packages import Catalog, Package, known_packages, with_tests_of
from patchgym.tasks.sources.sdists import read_sdist
from tests.tasks.minipack import mini_catalog, write_sdist


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No index within reach: a port of loopback that nobody listens on."""
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PATCHGYM_CACHE", str(tmp_path / "cache"))


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    """An archive of these members, as they are."""
    with tarfile.open(path, "w:gz") as out:
        for member, data in members:
            member.size = len(data)
            out.addfile(member, io.BytesIO(data))
    return path


def test_every_pinned_package_is_well_formed() -> None:
    packages = known_packages()
    assert len(packages) >= 18
    for name, package in packages.items():
        assert package.license, name
        assert package.dates.keys() == package.releases.keys(), name
        assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in package.releases.values())
        lock = resources.files("patchgym.tasks.sources").joinpath(f"locks/{package.lock}.txt").read_text()
        assert "pytest==" in lock
        assert not re.search(rf"^{name}==", lock, re.MULTILINE)
        assert not package.is_source(f"{package.tests[0]}x.py") or package.tests[0].endswith(".py")


def test_a_release_is_its_files_without_build_metadata(tmp_path: Path, objects: ObjectStore) -> None:
    revision = mini_catalog(tmp_path).load("mini==1.0", objects)
    assert set(objects.entries(revision.tree)) == {"mini/__init__.py", "mini/scale.py", "tests/test_scale.py"}
    assert revision.environment.distribution is not None
    assert (revision.environment.distribution.name, revision.environment.distribution.version) == ("mini", "1.0")
    assert revision.project.is_source("mini/scale.py")
    assert not revision.project.is_source("tests/test_scale.py")


def test_the_tests_of_another_release_replace_the_old_ones(tmp_path: Path, objects: ObjectStore) -> None:
    catalog = mini_catalog(tmp_path)
    old, new = catalog.load("mini==1.0", objects), catalog.load("mini==1.1", objects)
    mixed = objects.entries(with_tests_of(objects, old.tree, new.tree, old.project))
    assert mixed["mini/scale.py"] == objects.entries(old.tree)["mini/scale.py"]
    assert mixed["tests/test_scale.py"] == objects.entries(new.tree)["tests/test_scale.py"]


def test_a_pinned_release_carries_its_day(tmp_path: Path, objects: ObjectStore) -> None:
    catalog = mini_catalog(tmp_path)
    assert catalog.load("mini==1.0", objects).created_at is None
    dated = Package(
        license="MIT",
        sources=("mini/",),
        tests=("tests/",),
        lock="pytest",
        releases={"1.0": "0" * 64},
        dates={"1.0": date(2024, 5, 6)},
    )
    write_sdist(tmp_path / "dated.tar.gz", {"mini/a.py": ""})
    revision = Catalog({"mini": dated}, lambda pin: tmp_path / "dated.tar.gz").load("mini==1.0", objects)
    assert revision.created_at == datetime(2024, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize("name", known_packages())
def test_what_is_pinned_of_a_layout_is_what_would_be_discovered(name: str, objects: ObjectStore) -> None:
    """Of every release that lies in this machine's cache."""
    package = known_packages()[name]
    folders = [cache_root() / "downloads" / sha256 for sha256 in package.releases.values()]
    archives = [path for folder in folders if folder.is_dir() for path in folder.glob("*.tar.gz")]
    if not archives:
        pytest.skip(f"LOUD SKIP: no release of {name} in the cache")
    for path in archives:
        sdist = read_sdist(path, objects)
        found = discover(Files(objects, objects.entries(sdist.tree), sdist.beside)).project
        assert all(place.startswith(found.sources) for place in package.sources), path.name
        assert set(package.tests) <= set(found.tests), path.name
        assert package.pythonpath[0] == found.pythonpath[0], path.name


def test_unknown_releases_are_refused_with_what_there_is() -> None:
    with pytest.raises(UsageError, match="Did you mean parse=="):
        Catalog().pin("parze==1")
    with pytest.raises(UsageError, match=r"1\.22\.4"):
        Catalog().pin("parse==9")
    with pytest.raises(UsageError):
        Catalog().pin("parse")


def test_entry_points_executables_and_junk(tmp_path: Path, objects: ObjectStore) -> None:
    script, junk = tarfile.TarInfo("top/run.sh"), tarfile.TarInfo("top/a/__pycache__/x.pyc")
    script.mode = 0o755
    points = tarfile.TarInfo("top/x.egg-info/entry_points.txt")
    path = archive(tmp_path / "x.tar.gz", (script, b"#!"), (junk, b"0"), (points, b"[console_scripts]\n"))
    sdist = read_sdist(path, objects)
    assert {name: entry.mode for name, entry in objects.entries(sdist.tree).items()} == {"run.sh": 0o100755}
    assert sdist.beside == {"entry_points.txt": "[console_scripts]\n"}


@pytest.mark.parametrize("name", ["top/../../etc/passwd", "/etc/passwd", "top/a/../../../x"])
def test_a_path_that_leaves_its_root_is_refused(tmp_path: Path, objects: ObjectStore, name: str) -> None:
    with pytest.raises(DataError, match="leaves its root"):
        read_sdist(archive(tmp_path / "x.tar.gz", (tarfile.TarInfo(name), b"x")), objects)


def test_links_and_devices_are_left_out(tmp_path: Path, objects: ObjectStore) -> None:
    kinds = {"top/sym": tarfile.SYMTYPE, "top/hard": tarfile.LNKTYPE, "top/dev": tarfile.CHRTYPE}
    members = []
    for name, kind in kinds.items():
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, "/etc/passwd"
        members.append((member, b""))
    path = archive(tmp_path / "x.tar.gz", *members, (tarfile.TarInfo("top/a.py"), b"x"))
    assert set(objects.entries(read_sdist(path, objects).tree)) == {"a.py"}


def test_an_archive_of_too_many_files_is_refused(tmp_path: Path, objects: ObjectStore) -> None:
    members = [(tarfile.TarInfo(f"top/{number}"), b"") for number in range(5001)]
    with pytest.raises(DataError, match="too large"):
        read_sdist(archive(tmp_path / "x.tar.gz", *members), objects)


def test_a_bomb_is_refused_before_it_is_read(tmp_path: Path, objects: ObjectStore) -> None:
    member = tarfile.TarInfo("top/bomb")
    member.size = 10**12
    (tmp_path / "x.tar").write_bytes(member.tobuf() + b"\0" * 1024)
    with pytest.raises(DataError, match="too large"):
        read_sdist(tmp_path / "x.tar", objects)


@pytest.mark.parametrize("data", [b"", b"no archive at all", b"\x1f\x8b\x08\0\0\0\0\0\0\xff\x01"])
def test_a_damaged_archive_is_a_data_error(tmp_path: Path, objects: ObjectStore, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with pytest.raises(DataError, match="no readable sdist"):
        read_sdist(tmp_path / "x.tar.gz", objects)


def test_a_truncated_archive_is_a_data_error(tmp_path: Path, objects: ObjectStore) -> None:
    write_sdist(tmp_path / "x.tar.gz", {"a.py": "".join(map(str, range(5000)))})
    data = (tmp_path / "x.tar.gz").read_bytes()
    (tmp_path / "x.tar.gz").write_bytes(data[: len(data) // 2])
    with pytest.raises(DataError, match="no readable sdist"):
        read_sdist(tmp_path / "x.tar.gz", objects)


def test_a_cached_sdist_serves_without_network(offline: None, tmp_path: Path, objects: ObjectStore) -> None:
    with pytest.raises(OfflineError):
        Catalog().fetch("parse==1.22.4")
    write_sdist(tmp_path / "kept.tar.gz", {"parse/__init__.py": "x = 1\n"})
    data = (tmp_path / "kept.tar.gz").read_bytes()
    pin = Pin(name="parse", version="1.22.4", kind="sdist", sha256=hashlib.sha256(data).hexdigest())
    folder = tmp_path / "cache" / "downloads" / pin.sha256
    folder.mkdir(parents=True)
    (folder / "parse-1.22.4.tar.gz").write_bytes(data)
    known = known_packages()["parse"].model_copy(update={"releases": {"1.22.4": pin.sha256}})
    revision = Catalog({"parse": known}, fetch).load("parse==1.22.4", objects)
    assert set(objects.entries(revision.tree)) == {"parse/__init__.py"}
