"""What is recorded while real tests run on a solution, and what the probes of it come to."""

from pathlib import Path

import pytest

from patchgym.content import Entry, ObjectStore, diff_trees, patch_scope
from patchgym.errors import DataError
from patchgym.grading.probes.blob import Probe
from patchgym.grading.probes.compare import call_in_words, shown
from patchgym.records import Task, Verdict
from tests.grading.probes.probed import Probed
from tests.workshop import tree_of

BROKEN = """
import functools, random, time

def noted(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)
    return wrapper

def core(value, by=2):
    return value + by + 1

@noted
def decorated(value):
    return core(value)

@functools.lru_cache
def cached(value):
    return core(value)

def numbers(values):
    for value in values:
        yield core(value)

def countdown(value):
    return [core(value)] + (countdown(value - 1) if value else [])

def applied(function, value):
    return core(function(value))

def noisy():
    return core(random.random())

def first_word(words):
    yield core(len(next(iter(words))))

def stamped():
    return object() if core(1) else None

def untouched(value):
    return value

class Box:
    kind = "box"

    def __init__(self, start, *more, name="b"):
        self._items = [start, *more]
        self.name = name

    def add(self, item):
        self._items.append(core(item))
        return self

    @property
    def total(self):
        return core(sum(self._items))

    @classmethod
    def empty(cls):
        return cls(core(0))

    @staticmethod
    def twice(value):
        return core(value) * 2

    def __eq__(self, other):
        return core(len(self._items)) == core(len(other._items))

    __hash__ = None

    def _hidden(self):
        return core(1)
"""
FIXED = BROKEN.replace("return value + by + 1", "return value + by")
TESTS = """
import pytest
import shop

def test_plain():
    assert shop.core(1) == 3
    assert shop.core(1, by=5) == 6

def test_decorated():
    assert shop.decorated(4) == 6

def test_cached():
    assert shop.cached(5) == 7

def test_generator():
    assert list(shop.numbers([1, 2])) == [3, 4]

def test_recursion():
    assert shop.countdown(2) == [4, 3, 2]

def test_lambda():
    assert shop.applied(lambda value: value, 1) == 3

def test_random():
    assert shop.noisy() >= 2

def test_opaque():
    assert shop.stamped() is not None

def test_order_of_hashes():
    assert next(shop.first_word({"bc", "ghij"})) in (4, 6)

def test_box():
    box = shop.Box(1, 2, name="c")
    box.add(3)
    assert box.total == 10
    assert box == shop.Box(0, 0, 0)

def test_classmethod():
    assert shop.Box.empty().total == 4

def test_staticmethod():
    assert shop.Box.twice(1) == 6

def test_raises():
    with pytest.raises(TypeError):
        shop.core(None)

def test_changed_behind_its_back():
    box = shop.Box(1)
    box.name = "other"
    assert box.total == 3

class Local:
    pass

def test_local_class():
    with pytest.raises(TypeError):
        shop.core(Local())

def test_untouched():
    assert shop.untouched(1) == 1
"""
STAYING = ("test_raises", "test_untouched", "test_local_class", "test_random", "test_opaque")


def shop_task(objects: ObjectStore, task: Task) -> Task:
    names = [line[4:].split("(")[0] for line in TESTS.splitlines() if line.startswith("def test_")]
    blob = objects.put(TESTS.encode())
    workspace = tree_of(objects, {"shop.py": BROKEN, "tests/test_shop.py": TESTS})
    solved = objects.update_tree(workspace, {"shop.py": Entry(0o100644, objects.put(FIXED.encode()))})
    gold = diff_trees(objects, workspace, solved)
    failing = tuple(f"tests/test_shop.py::{name}" for name in names if name not in STAYING)
    tests = {
        "fail_to_pass": failing,
        "pass_to_pass": tuple(f"tests/test_shop.py::{name}" for name in STAYING),
        "hidden": failing[:2],
        "visible_files": {"tests/test_shop.py": blob},
        "hidden_files": {"tests/test_shop.py": blob},
    }
    changes = {
        "workspace": workspace,
        "gold_patch": gold,
        "scope": patch_scope(gold),
        "functions": (),
        "tests": task.tests.model_copy(update=tests),
    }
    return task.model_copy(update=changes)


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Probed:
    return Probed(tmp_path_factory.mktemp("shop"), shop_task)


def recorded(shop: Probed) -> dict[str, Probe]:
    return {call_in_words(one.steps): one for one in shop.probes.probes if one.kind == "recorded"}


@pytest.mark.parametrize(
    ("call", "result"),
    [
        ("core(1)", "3"),
        ("core(1, 5)", "6"),
        ("decorated(4)", "6"),
        ("cached(5)", "7"),
        ("numbers([1, 2])", '["y", [["i", "3"], ["i", "4"]], "end"]'),
        ("countdown(2)", "[4, 3, 2]"),
        ('getattr(Box(1, 2, name="c"), "total")', "10"),
        ('__eq__(Box(1, 2, name="c"), Box(0, 0, 0))', "True"),
        ("Box.twice(1)", "6"),
        ("Box.empty()", "<Box>"),
        ("core(None)", "raised builtins.TypeError"),
    ],
)
def test_a_call_from_a_test_is_recorded_whatever_is_called(shop: Probed, call: str, result: str) -> None:
    probe = recorded(shop)[call]
    assert shown(probe.expected) == result
    assert probe.counts


def test_calls_that_run_no_touched_function_are_not_recorded(shop: Probed) -> None:
    assert not [call for call in recorded(shop) if call.startswith("untouched")]


def test_what_hangs_on_how_strings_are_hashed_in_a_grading_is_no_measure(shop: Probed) -> None:
    """These two words come in one order with the seed of a grading, and in the other with 1, 2 and 3."""
    assert not [call for call in recorded(shop) if call.startswith("first_word")]


def test_what_makes_no_probe_is_counted_by_its_reason(shop: Probed) -> None:
    reasons = shop.probes.left_out
    assert reasons["differs from run to run"] > 0  # noisy
    assert reasons["result without structure"] > 0  # stamped
    assert reasons["lambda"] > 0
    assert reasons["object of a class of the tests"] > 0
    assert reasons["not as it was in the test"] > 0  # changed behind its back


def test_private_state_of_the_solution_is_not_asked_for(shop: Probed) -> None:
    assert "_items" not in shop.probes.to_line()


def test_an_honest_rewrite_with_other_private_state_is_resolved(shop: Probed) -> None:
    text = FIXED.replace("_items", "_kept").replace("def core(value, by=2):", "def core(value, by=2, *, extra=0):")
    text = text.replace("        self.name = name\n", "        self.name = name\n        self.cache = {}\n")
    report = shop.grade({"shop.py": text})
    assert (report.verdict, report.why) == (Verdict.RESOLVED, "")


def test_no_probes_are_made_of_a_task_whose_solution_fails_its_hidden_test(tmp_path: Path) -> None:
    def broken(objects: ObjectStore, task: Task) -> Task:
        bad = shop_task(objects, task)
        files = {"tests/test_shop.py": objects.put(TESTS.replace("== 3\n", "== 4\n", 1).encode())}
        return bad.model_copy(update={"tests": bad.tests.model_copy(update={"hidden_files": files})})

    with pytest.raises(DataError, match="invalid"):
        Probed(tmp_path, broken)
