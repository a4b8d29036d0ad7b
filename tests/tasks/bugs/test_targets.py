"""Where bugs are planted and in which order."""

import ast
from itertools import islice

import pytest

from patchgym.content import Entry, ObjectStore, apply_patch
from patchgym.errors import DataError
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.chances import kill_rate
from patchgym.tasks.bugs.targets import PlanSettings, plan
from patchgym.tasks.sources.candidates import changed_functions
from patchgym.tasks.sources.planted import planted_candidate
from patchgym.tasks.sources.project import Project, Revision
from patchgym.testrun import Coverage
from tests.records_for_tests import make_task
from tests.tasks.bugs.shelf import CART, PRICES, SHELF, covered

PLAIN = PlanSettings()
SINGLE = PlanSettings(removals=0.0, combined=0.0)


@pytest.fixture
def revision(objects: ObjectStore) -> Revision:
    return revision_of(objects, {path: text.encode() for path, text in SHELF.items()})


def revision_of(objects: ObjectStore, files: dict[str, bytes]) -> Revision:
    """A revision of the shop that holds these files."""
    tree = objects.write_tree({path: Entry(0o100644, objects.put(data)) for path, data in files.items()})
    project = Project(license="MIT", sources=("shop/",), tests=("tests/",))
    return Revision("shop", "1.0", project, tree, make_task().environment)


def planned(
    revision: Revision,
    objects: ObjectStore,
    settings: PlanSettings = PLAIN,
    coverage: Coverage | None = None,
    seed: int = 0,
) -> list[Bug]:
    """The whole plan."""
    return list(plan(revision, objects, coverage, settings, seed))


def test_the_plan_depends_on_its_arguments_alone(revision: Revision, objects: ObjectStore) -> None:
    assert planned(revision, objects) == planned(revision, objects)
    assert planned(revision, objects) != planned(revision, objects, seed=1)


def test_a_plan_can_be_cut_anywhere(revision: Revision, objects: ObjectStore) -> None:
    first = list(islice(plan(revision, objects, None, PLAIN, 0), 5))
    assert first == planned(revision, objects)[:5]


def test_every_planned_bug_breaks_its_functions_and_nothing_else(revision: Revision, objects: ObjectStore) -> None:
    for bug in planned(revision, objects):
        found = {
            f"{path}:{name}"
            for path, text in bug.changes.items()
            for name in changed_functions(SHELF[path], text)
            if "." not in name or name.startswith("Cart.")
        }
        assert found == set(bug.functions)
        assert bug.changes.keys() == bug.lines.keys()
        for text in bug.changes.values():
            ast.parse(text)


def test_no_bug_is_planned_twice(revision: Revision, objects: ObjectStore) -> None:
    plans = [tuple(bug.changes.items()) for bug in planned(revision, objects)]
    assert len(set(plans)) == len(plans)


def test_functions_come_before_second_bugs_in_one(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, SINGLE)
    functions = {bug.functions for bug in plan}
    assert {bug.functions for bug in plan[: len(functions)]} == functions


def test_a_function_gives_no_more_bugs_than_it_may(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, PlanSettings(per_function=2, removals=0.0, combined=0.0))
    counts = [sum(bug.functions == functions for bug in plan) for functions in {bug.functions for bug in plan}]
    assert max(counts) == 2


def test_operators_are_spread(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, SINGLE)[:10]
    assert len({bug.operators for bug in plan}) >= 6


def test_what_no_test_comes_to_is_left_alone(revision: Revision, objects: ObjectStore) -> None:
    names = {name for bug in planned(revision, objects) for name in bug.functions}
    assert f"{PRICES}:unused" not in names
    assert f"{PRICES}:rounded" in names  # no test mentions it, but its caller is tested


def test_coverage_decides_where_it_is_known(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, coverage=covered({PRICES: {"discount": 3, "rounded": 1, "unused": 2}}))
    assert {name for bug in plan for name in bug.functions} == {f"{PRICES}:discount", f"{PRICES}:unused"}


def test_two_cases_of_one_test_function_do_not_count_as_two(revision: Revision, objects: ObjectStore) -> None:
    two = Coverage({PRICES: {line: frozenset({"t.py::test[1]", "t.py::test[2]"}) for line in range(1, 40)}})
    assert planned(revision, objects, coverage=two) == []
    assert planned(revision, objects, PlanSettings(least_test_functions=1), coverage=two)


def test_bugs_that_fail_too_many_tests_come_late(revision: Revision, objects: ObjectStore) -> None:
    many = covered({PRICES: {"discount": 4, "rounded": 400}})
    plan = planned(revision, objects, PlanSettings(removals=0.0, combined=0.0), coverage=many)
    assert plan[0].functions == (f"{PRICES}:discount",)
    assert {bug.functions for bug in plan} == {(f"{PRICES}:discount",), (f"{PRICES}:rounded",)}


def test_bugs_with_a_good_chance_come_before_those_with_a_bad_one(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, PlanSettings(removals=0.0, combined=0.0, per_function=30))
    rates = [kill_rate(bug.operators[0]) for bug in plan]
    assert min(rates[:10]) > 0.6 > max(rates[-3:])


def test_the_operators_are_those_asked_for(revision: Revision, objects: ObjectStore) -> None:
    plan = planned(revision, objects, PlanSettings(operators=("boundary", "constant"), removals=0.0))
    assert {operator for bug in plan for operator in bug.operators} == {"boundary", "constant"}
    with pytest.raises(DataError, match="no operator boundry"):
        planned(revision, objects, PlanSettings(operators=("boundry",)))


def test_removals_and_combined_bugs_have_their_shares(revision: Revision, objects: ObjectStore) -> None:
    settings = PlanSettings(removals=0.1, combined=0.2)
    kinds = [bug.kind for bug in planned(revision, objects, settings)[:21]]
    assert (kinds.count("removal"), kinds.count("combined")) == (2, 4)
    assert {bug.kind for bug in planned(revision, objects, SINGLE)} == {"mutation"}


def test_a_removed_body_leaves_signature_and_docstring_and_is_told_by_it(
    revision: Revision, objects: ObjectStore
) -> None:
    removals = [bug for bug in planned(revision, objects) if bug.kind == "removal"]
    bug = next(bug for bug in removals if bug.functions == (f"{PRICES}:discount",))
    signature = 'def discount(price, share=10):\n    """The price without a share of it, in per cent."""\n'
    assert f"{signature}    raise NotImplementedError\n" in bug.changes[PRICES]
    assert "The price without a share of it" in bug.statement
    assert "`discount`" in bug.statement


def test_combined_bugs_lie_in_functions_that_have_to_do_with_each_other(
    revision: Revision, objects: ObjectStore
) -> None:
    bugs = [bug for bug in planned(revision, objects) if bug.kind == "combined"]
    assert any(len(bug.changes) == 2 for bug in bugs)  # over files, where there is something to break in both
    for bug in bugs:
        assert 2 <= len(bug.functions) == len(set(bug.functions)) == len(bug.operators) <= 3
    assert any({f"{CART}:Cart.total", f"{PRICES}:discount"} <= set(bug.functions) for bug in bugs)


def test_a_bug_names_what_users_call(revision: Revision, objects: ObjectStore) -> None:
    shown = {bug.functions[0]: bug.exercised for bug in planned(revision, objects, SINGLE)}
    assert shown[f"{PRICES}:rounded"] == "rounded"
    assert shown[f"{CART}:Cart.__init__"] == "Cart"


def test_files_that_cannot_be_read_as_source_are_left_alone(revision: Revision, objects: ObjectStore) -> None:
    files = {path: text.encode() for path, text in SHELF.items()}
    files["shop/template.py"] = b"def {{ name }}(): return 1 < 2\n"
    files["shop/latin.py"] = b"def f():\n    return '\xe9' < 2\n"
    assert planned(revision_of(objects, files), objects) == planned(revision, objects)


def test_a_planted_bug_is_undone_by_its_gold_patch(revision: Revision, objects: ObjectStore) -> None:
    for bug in planned(revision, objects):
        candidate = planted_candidate(revision, objects, bug)
        assert candidate.broken != revision.tree
        assert apply_patch(objects, candidate.broken, candidate.gold_patch) == revision.tree == candidate.healthy
        assert candidate.functions == frozenset(bug.functions)
        assert candidate.difficulty == bug.difficulty
        assert candidate.id.startswith("shop-1.0-syn-")
        assert candidate.source.change is not None
        assert all(operator in candidate.source.change for operator in bug.operators)
