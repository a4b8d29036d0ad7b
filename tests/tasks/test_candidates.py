"""Where bugs are planted, in which order, and what a release pair counts as its fix."""

from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.tasks.sources.candidates import changed_functions, pair_candidate, plan_mutations, planted_candidate
from patchgym.tasks.sources.project import Revision
from tests.tasks.minipack import FIXED, mini_catalog


@pytest.fixture
def objects(tmp_path: Path) -> ObjectStore:
    return ObjectStore(tmp_path / "objects")


@pytest.fixture
def revision(tmp_path: Path, objects: ObjectStore) -> Revision:
    return mini_catalog(tmp_path).load("mini==1.0", objects)


def planned(revision: Revision, objects: ObjectStore, seed: int = 0) -> list[tuple[str, str, str]]:
    """The plan as (function, operator, mutant)."""
    plan = plan_mutations(revision, objects, operators=(), max_function_lines=0, seed=seed)
    return [(function, found.operator, found.new_source) for function, found in plan]


def test_the_plan_goes_round_the_functions_and_depends_on_the_seed_alone(
    revision: Revision, objects: ObjectStore
) -> None:
    plan = planned(revision, objects)
    names = {function for function, _, _ in plan}
    assert names == {
        f"mini/scale.py:{name}" for name in ("clamp", "percent", "spread", "nearest", "untested", "halves")
    }
    assert {function for function, _, _ in plan[: len(names)]} == names
    assert len({operator for _, operator, _ in plan[: len(names)]}) >= 4
    assert plan == planned(revision, objects)
    assert plan != planned(revision, objects, seed=1)
    assert sorted(plan) == sorted(planned(revision, objects, seed=1))


def test_files_that_cannot_be_read_as_source_are_left_alone(revision: Revision, objects: ObjectStore) -> None:
    odd = {
        "mini/template.py": b"def {{ name }}(): return 1 < 2\n",
        "mini/latin.py": b"def f():\n    return '\xe9' < 2\n",
    }
    tree = objects.update_tree(revision.tree, {path: Entry(0o100644, objects.put(data)) for path, data in odd.items()})
    more = Revision(revision.name, revision.version, revision.project, tree, revision.environment)
    assert planned(more, objects) == planned(revision, objects)


def test_a_planted_bug_is_undone_by_its_gold_patch(revision: Revision, objects: ObjectStore) -> None:
    function, found = plan_mutations(revision, objects, operators=(), max_function_lines=0, seed=0)[0]
    candidate = planted_candidate(revision, objects, function, found)
    assert candidate.broken != revision.tree
    assert apply_patch(objects, candidate.broken, candidate.gold_patch) == revision.tree == candidate.healthy
    assert candidate.id.startswith("mini-1.0-syn-")
    assert candidate.source.base_commit == revision.tree
    assert candidate.source.change is not None
    assert found.operator in candidate.source.change


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
