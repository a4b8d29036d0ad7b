"""What a release pair counts as its fix."""

from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, patched_paths
from patchgym.tasks.sources.candidates import changed_functions, pair_candidate
from patchgym.tasks.sources.project import Revision
from tests.tasks.minipack import FIXED, mini_catalog


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def revision(tmp_path: Path, objects: ObjectStore) -> Revision:
    return mini_catalog(tmp_path).load("mini==1.0", objects)


def test_the_fix_of_a_release_pair_is_its_sources_alone(
    tmp_path: Path, objects: ObjectStore, revision: Revision
) -> None:
    new = mini_catalog(tmp_path).load("mini==1.1", objects)
    readme = {"README": Entry(0o100644, objects.put(b"new")), "setup.cfg": Entry(0o100644, objects.put(b"[x]"))}
    newer = Revision(new.name, new.version, new.project, objects.update_tree(new.tree, readme), new.environment)
    candidate = pair_candidate(revision, newer, objects)
    assert patched_paths(candidate.gold_patch) == ("mini/scale.py",)
    assert candidate.functions == {"mini/scale.py:halves"}
    broken, healthy = objects.entries(candidate.broken), objects.entries(candidate.healthy)
    assert (
        broken["tests/test_scale.py"]
        == healthy["tests/test_scale.py"]
        == objects.entries(new.tree)["tests/test_scale.py"]
    )
    assert objects.get(healthy["mini/scale.py"].id).decode() == FIXED
    assert "README" not in healthy


def test_functions_that_differ_as_programs_are_named() -> None:
    before = "class A:\n    def f(self):\n        return 1\n\n    def g(self):\n        return 2\n"
    assert changed_functions(before, before.replace("return 2", "return  2  # same")) == frozenset()
    assert changed_functions(before, before.replace("return 2", "return 3")) == {"A.g"}
    assert changed_functions("", before) == {"A.f", "A.g"}
