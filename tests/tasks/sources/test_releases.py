"""Candidates from the releases of a package, from a listing and files that the test makes."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from patchgym.content import ObjectStore, apply_patch, patched_paths
from patchgym.content.downloads import IndexFile
from patchgym.errors import UsageError
from patchgym.tasks.sources.refusals import Refusal, Refused
from patchgym.tasks.sources.releases import ReleaseSource
from tests.tasks.sources.codebase import FLAT, MENDED, NEW_TEST, Shelf

LOG = "## 1.1\n\n- whole halves\n\n## 1.0\n\n- begin\n"
V2 = {**FLAT, "pkg/numbers.py": MENDED, "tests/test_numbers.py": NEW_TEST, "CHANGES.md": LOG}
V3 = {**V2, "pkg/numbers.py": MENDED + "\n\ndef third(value):\n    return value // 3\n"}


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf(tmp_path / "shelf")
    made.add("1.0", FLAT)
    made.add("1.1", V2)
    made.add("1.2", V3)
    return made


def test_a_release_that_mends_is_a_candidate(shelf: Shelf, objects: ObjectStore) -> None:
    source = shelf.source("Pkg")
    (found,) = source.candidates(objects)
    assert (found.source.kind, found.source.repo, found.source.version) == ("release_pair", "pkg", "1.0")
    assert found.source.change == "the sources of 1.1"
    assert (found.statement, found.source.statement) == ("- whole halves", "changelog")
    assert patched_paths(found.gold_patch) == ("pkg/numbers.py",)
    assert apply_patch(objects, found.broken, found.gold_patch) == found.healthy
    assert source.refused == {Refusal.NO_TEST_CHANGE: 1}


def test_a_pair_is_dated_by_its_fix_and_named_by_what_it_mends(shelf: Shelf, objects: ObjectStore) -> None:
    (found,) = shelf.source("pkg").candidates(objects)
    assert found.revision.created_at == found.source.created_at == datetime(2024, 1, 2, tzinfo=UTC)
    assert found.revision.environment.distribution is not None
    assert found.revision.environment.distribution.version == "1.0"
    assert found.revision.needs is not None
    assert found.id.startswith("pkg-1.0-fix-")


def test_what_was_read_is_pinned(shelf: Shelf, objects: ObjectStore) -> None:
    source = shelf.source("pkg")
    list(source.candidates(objects))
    assert [(pin.version, pin.kind) for pin in source.pins] == [("1.2", "sdist"), ("1.1", "sdist"), ("1.0", "sdist")]
    assert {pin.sha256 for pin in source.pins} == {file.sha256 for file in shelf.files}


@pytest.mark.parametrize(
    ("requirement", "versions"),
    [
        ("pkg", ["1.0", "1.1", "1.2"]),
        ("pkg==1.2", ["1.1", "1.2"]),
        ("pkg==1.0", ["1.0"]),
        ("pkg==1.0..1.2", ["1.0", "1.1", "1.2"]),
        ("pkg==1.1..1.2", ["1.1", "1.2"]),
    ],
)
def test_the_releases_that_are_meant(shelf: Shelf, requirement: str, versions: list[str]) -> None:
    assert [file.version for file in shelf.source(requirement).releases()] == versions


def test_at_most_so_many_pairs(shelf: Shelf) -> None:
    assert [file.version for file in shelf.source("pkg", most=1).releases()] == ["1.1", "1.2"]


@pytest.mark.parametrize("requirement", ["pkg==7", "pkg==1.0..7", "pkg==--x", "pkg==1.0..", "pkg==../x"])
def test_releases_that_are_not_there(shelf: Shelf, requirement: str) -> None:
    with pytest.raises(UsageError):
        shelf.source(requirement).releases()


def test_what_makes_no_candidate_is_counted(shelf: Shelf, objects: ObjectStore) -> None:
    shelf.add("1.3", {"pkg/__init__.py": ""})
    shelf.add("1.4", V3, data=b"no archive")
    shelf.add("1.5", V3, yanked=True)
    shelf.add("2.0rc1", V3)
    source = shelf.source("pkg")
    assert len(list(source.candidates(objects))) == 1
    assert source.refused == {
        Refusal.NO_TEST_CHANGE: 1,
        Refusal.NO_TESTS: 1,
        Refusal.DAMAGED: 1,
        Refusal.WITHDRAWN: 1,
    }


def test_a_release_to_plant_bugs_in(shelf: Shelf, objects: ObjectStore) -> None:
    revision = shelf.source("pkg==1.1").revision(objects)
    assert (revision.version, revision.project.sources, revision.needs is not None) == ("1.1", ("pkg/",), True)
    shelf.add("1.6", {"pkg/__init__.py": ""})
    with pytest.raises(Refused):
        shelf.source("pkg").revision(objects)


def test_a_missing_version_file_is_written(shelf: Shelf, objects: ObjectStore) -> None:
    shelf.add("1.7", {**V3, "pkg/__init__.py": "from ._version import version\n"})
    revision = shelf.source("pkg==1.7").revision(objects)
    assert "'1.7'" in objects.get(objects.entries(revision.tree)["pkg/_version.py"].id).decode()


def test_a_package_without_source_distributions(objects: ObjectStore) -> None:
    wheel = IndexFile(version="1.0", filename="pkg-1.0-py3-none-any.whl", url="file:///x")
    source = ReleaseSource("pkg", listing=lambda name: (wheel,))
    assert not list(source.candidates(objects))
    assert source.refused == {Refusal.NO_SDIST: 1}
    with pytest.raises(Refused):
        source.revision(objects)


@pytest.mark.network
def test_a_package_of_the_index_makes_candidates(objects: ObjectStore) -> None:
    source = ReleaseSource("parse==1.22.4")
    (found,) = source.candidates(objects)
    assert patched_paths(found.gold_patch) == ("parse/__init__.py",)
    assert found.source.created_at is not None
    assert source.pins[0].sha256 == "706d458feed5a81b02768d3156e8070baf6cee7d150a3a3c0cd43101a875c3b5"
