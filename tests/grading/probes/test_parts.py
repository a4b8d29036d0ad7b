"""Comparing, varying, rewriting and storing, each by itself."""

import json
from collections import Counter
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.grading.probes import load_probes
from patchgym.grading.probes.ask import without_tests
from patchgym.grading.probes.choose import recorded_calls
from patchgym.grading.probes.compare import agrees, call_in_words, pruned, structured
from patchgym.grading.probes.make import solved_tree
from patchgym.grading.probes.rewrite import rewritten
from patchgym.grading.probes.touched import touched_functions
from patchgym.grading.probes.vary import variations, varied
from tests.workshop import calc_task, patch_of, tree_of


def an_object(**state: Any) -> dict[str, Any]:
    return {"result": ["o", "Point", state, None]}


def test_an_object_may_show_more_than_the_solution_does() -> None:
    assert agrees(an_object(x=1), an_object(x=1, cached=True))
    assert not agrees(an_object(x=1, y=2), an_object(x=1))
    assert not agrees(an_object(x=1), an_object(x=2))


@pytest.mark.parametrize(
    "told",
    [
        {"result": ["f", "1.0"]},
        {"result": True},
        {"raised": "builtins.ValueError"},
        {"ended": "time"},
        {"result": ["i", "1"], "printed": "1"},
        {"result": ["i", "1"], "after": {"0": ["l", []]}},
        {"result": ["i", "1"], "files": {"a": "0"}},
        {},
    ],
    ids=json.dumps,
)
def test_another_type_an_exception_an_end_or_a_side_effect_is_another_answer(told: dict[str, Any]) -> None:
    assert agrees({"result": ["i", "1"]}, {"result": ["i", "1"]})
    assert not agrees({"result": ["i", "1"]}, told)


def test_attributes_that_the_solution_added_are_not_asked_for() -> None:
    told: JsonValue = {"result": ["l", [["o", "Point", {"x": 1, "new": 2}, None]]]}
    assert pruned(told, {"x"}) == {"result": ["l", [["o", "Point", {"x": 1}, None]]]}


def test_what_has_no_structure_is_known() -> None:
    assert not structured(["?", "function"])
    assert not structured(["l", [["?", "function"]]])
    assert structured(["l", []])
    assert structured(None)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


@given(json_values, json_values)
def test_whatever_a_candidate_tells_is_compared_without_an_error(one: Any, other: Any) -> None:
    expected, told = {"result": one, "after": other}, {"result": other, "after": one, "files": one}
    agrees(expected, told)
    structured(one)
    pruned(one, {"a"})
    assert isinstance(call_in_words([{"of": one, "args": [other], "kwargs": {}}]), str)


@given(json_values)
def test_whatever_a_recorder_is_said_to_have_written_is_read_without_an_error(said: Any) -> None:
    recorded_calls([said, {"left_out": said}], {"t"}, Counter())


def test_a_variation_keeps_the_type_of_what_it_varies() -> None:
    values: list[Any] = [["i", "3"], ["s", "ab"], ["f", "1.5"], ["l", [["i", "1"]]], ["d", [[["s", "a"], True]]]]
    for value in values:
        others = variations(value)
        assert others
        assert all(isinstance(other, list) and other[0] == value[0] and other != value for other, _ in others)
    assert variations(True) == [(False, True)]
    assert variations(["g", "os", "remove"]) == []


def test_one_argument_is_varied_at_a_time() -> None:
    step: dict[str, Any] = {"of": ["g", "m", "f"], "args": [["i", "1"], ["i", "5"]], "kwargs": {"deep": True}}
    for steps, _ in varied([step]):
        changed: Any = steps[0]
        differing = sum(a != b for a, b in zip(changed["args"], step["args"], strict=True))
        assert differing + (changed["kwargs"] != step["kwargs"]) == 1


SOURCE = '''
class Box:
    def pick(self, items, least=0, *, first=True):
        """The picked ones."""
        a = 1
        b = 2
        self.seen = getattr(self, "seen", 0)
        self.seen += 1
        def within(limit):
            items[limit:] = [self.seen]
            (first_one, *others), self.last = (items or [0]), limit
            return [first_one, others, limit]
        kept = [item for item in items if item > least + a - b + 1]
        for kept_item in kept:
            total = kept_item
        try:
            total = total * a
        except UnboundLocalError as problem:
            return type(problem).__name__
        return kept[0] if first else dict(total=total, kept=kept, within=within(1), seen=self.seen)

    def gen(self, items):
        for item in items:
            yield item

    def close(self, value):
        def inner():
            nonlocal value
            value += 1
            return value
        return inner() if value else super().__hash__()
'''


REWRITTEN = rewritten(SOURCE, ["Box.pick", "Box.pick.within", "Box.gen", "Box.close"])


@given(st.lists(st.integers(-5, 5)), st.integers(-3, 3), st.booleans())
def test_a_rewrite_does_the_same(items: list[int], least: int, first: bool) -> None:
    def results(source: CodeType) -> list[object]:
        names: dict[str, Any] = {}
        exec(source, names)  # our own text, above
        box = names["Box"]()
        return [box.pick(list(items), least, first=first), list(box.gen(items)), box.close(least or 1)]

    assert REWRITTEN != SOURCE
    assert results(compile(REWRITTEN, "rewritten", "exec")) == results(compile(SOURCE, "source", "exec"))


def test_what_is_no_python_is_not_rewritten() -> None:
    assert rewritten("def f(:\n", ["f"]) == "def f(:\n"


@pytest.mark.parametrize("data", [b"", b"[]", b"{", b'{"schema_version": 99}', b"\xff\xfe", b"[" * 100_000])
def test_damaged_probes_and_probes_of_another_version_are_refused(tmp_path: Path, data: bytes) -> None:
    objects = ObjectStore(tmp_path)
    task = calc_task(objects).model_copy(update={"probes": objects.put(data)})
    with pytest.raises(DataError, match="probes of calc-1"):
        load_probes(objects, task)


def test_probes_are_no_part_of_what_an_agent_may_see(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    task = calc_task(objects).model_copy(update={"probes": objects.put(b"secret")})
    assert task.probes is not None
    assert task.probes in task.blobs
    assert task.probes not in task.view().model_dump_json()


def test_a_tree_is_asked_without_anything_that_is_called_a_test(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    task = calc_task(objects)
    names = [
        "calc.py",
        "testing.py",
        "contest.py",
        "test_a.py",
        "a_test.py",
        "tests/x.py",
        "p/test/y.py",
        "conftest.py",
    ]
    tree = tree_of(objects, dict.fromkeys([*names, "tests/test_calc.py"], ""))
    assert set(objects.entries(without_tests(objects, tree, task.tests))) == {"calc.py", "testing.py", "contest.py"}


def test_touched_functions_are_found_where_a_task_does_not_name_them(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    task = calc_task(objects)
    assert touched_functions(objects, task, solved_tree(objects, task)) == ("calc.py:clamp",)
    constant = patch_of(objects, task, {"calc.py": "LIMIT = 3\ndef a(): pass\nclass B:\n    def c(self): pass\n"})
    table = task.model_copy(update={"gold_patch": constant})
    assert set(touched_functions(objects, table, solved_tree(objects, table))) == {"calc.py:a", "calc.py:B.c"}
