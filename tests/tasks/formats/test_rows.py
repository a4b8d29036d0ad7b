"""Rows both ways: what is imported and exported again is the very row, and what a task loses is said."""

import json
from types import ModuleType

import pytest
from hypothesis import given
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.tasks.formats import r2egym, swebench, swesmith
from patchgym.tasks.formats.exporting import lost_parts
from patchgym.tasks.formats.importing import ROW_FORMATS
from patchgym.tasks.formats.refused import Refused
from tests.tasks.formats.rows_for_tests import (
    GOLD,
    TEST_PATCH,
    r2egym_row,
    r2egym_rows,
    scratch_store,
    swebench_row,
    swebench_rows,
    swesmith_rows,
)
from tests.workshop import FAIL_TO_PASS, PASS_TO_PASS, WHOLE, calc_task

MODULES = [swebench, swesmith, r2egym]


def same_again(module: ModuleType, row: dict[str, JsonValue]) -> None:
    """Import, write to disk as a line, read, export: the row, with its types and the order of its columns."""
    objects = scratch_store()
    task = Task.from_line(module.from_row(row, objects).to_line())
    assert json.dumps(module.to_row(task, objects)) == json.dumps(row)


@given(swebench_rows())
def test_a_row_of_swe_bench_comes_back_as_it_was(row: dict[str, JsonValue]) -> None:
    same_again(swebench, row)


@given(swesmith_rows())
def test_a_row_of_swe_smith_comes_back_as_it_was(row: dict[str, JsonValue]) -> None:
    same_again(swesmith, row)


@given(r2egym_rows())
def test_a_row_of_r2e_gym_comes_back_as_it_was(row: dict[str, JsonValue]) -> None:
    same_again(r2egym, row)


@pytest.mark.parametrize("name", list(ROW_FORMATS))
def test_a_task_comes_back_but_for_what_is_named(name: str) -> None:
    objects = scratch_store()
    task = calc_task(objects)
    back = ROW_FORMATS[name].from_row(ROW_FORMATS[name].to_row(task, objects), objects)
    lost = lost_parts(task, back)
    told = task.model_dump(mode="json")
    found = back.model_dump(mode="json")
    for part in lost:
        head, _, rest = part.partition(".")
        (told[head] if rest else told).pop(rest or head)
        (found[head] if rest else found).pop(rest or head)
    for empty in ("foreign", "source", "environment"):  # what says nothing cannot be lost
        told[empty] = {key: value for key, value in (told[empty] or {}).items() if value}
        found[empty] = {key: value for key, value in (found[empty] or {}).items() if key in told[empty]}
    assert found == told


@pytest.mark.parametrize("name", list(ROW_FORMATS))
def test_a_row_that_was_made_here_is_made_the_same_after_import(name: str) -> None:
    objects = scratch_store()
    row = ROW_FORMATS[name].to_row(calc_task(objects), objects)
    assert ROW_FORMATS[name].to_row(ROW_FORMATS[name].from_row(row, objects), objects) == row


def test_a_benchmark_is_held_out_and_hides_its_failing_tests() -> None:
    task = swebench.from_row(swebench_row(), scratch_store())
    assert (task.split, task.source.kind) == ("heldout", "benchmark")
    assert task.tests.hidden == task.tests.fail_to_pass == FAIL_TO_PASS
    assert task.view().failing_tests == ()


def test_the_bug_of_swe_smith_becomes_the_solution_turned_round() -> None:
    bug = GOLD.replace("-        return low\n+        return high", "-        return high\n+        return low")
    row: dict[str, JsonValue] = {"instance_id": "a", "repo": "r", "patch": bug}
    row |= {"FAIL_TO_PASS": [], "PASS_TO_PASS": []}
    assert swesmith.from_row(row, scratch_store()).gold_patch == GOLD


def test_r2e_gym_tells_failing_from_passing_tests_by_the_runs_in_the_row() -> None:
    objects = scratch_store()
    task = r2egym.from_row(r2egym_row(), objects)
    assert task.tests.fail_to_pass == tuple(
        test.replace("tests/test_calc", "r2e_tests/test_1") for test in FAIL_TO_PASS
    )
    assert task.tests.pass_to_pass == tuple(
        test.replace("tests/test_calc", "r2e_tests/test_1") for test in PASS_TO_PASS
    )
    assert objects.get(task.tests.hidden_files["r2e_tests/test_1.py"]).decode() == WHOLE
    assert task.key_files == ("calc.py",)


def test_the_commits_own_tests_are_no_part_of_the_solution_of_r2e_gym() -> None:
    commit = str(r2egym_row()["parsed_commit_content"])
    task = r2egym.from_row(r2egym_row(parsed_commit_content=commit.replace("calc.py", "tests/x.py")), scratch_store())
    assert (task.gold_patch, task.key_files) == ("", ())


def test_r2e_gym_without_the_run_before_claims_no_failing_test() -> None:
    task = r2egym.from_row(r2egym_row(execution_result_content=None), scratch_store())
    assert task.tests.fail_to_pass == ()
    assert len(task.tests.pass_to_pass) == len(FAIL_TO_PASS) + len(PASS_TO_PASS)


def test_a_kept_form_is_not_used_when_the_task_says_something_else() -> None:
    objects = scratch_store()
    row = swebench_row(PASS_TO_PASS='["a","b"]')
    task = swebench.from_row(row, objects)
    trimmed = task.model_copy(update={"tests": task.tests.model_copy(update={"pass_to_pass": ("a",)})})
    assert swebench.to_row(trimmed, objects)["PASS_TO_PASS"] == '["a"]'
    assert swebench.to_row(task, objects)["PASS_TO_PASS"] == '["a","b"]'


def test_the_test_patch_of_a_task_with_files_leaves_its_hidden_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    objects = ObjectStore(tmp_path_factory.mktemp("objects"))
    row = swebench.to_row(calc_task(objects), objects)
    assert isinstance(row["test_patch"], str)
    added = {line for line in row["test_patch"].splitlines() if line.startswith("+") and "+++" not in line}
    assert added == {line for line in TEST_PATCH.splitlines() if line.startswith("+") and "+++" not in line}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"patch": None}, "missing_field"),
        ({"problem_statement": 7}, "wrong_type"),
        ({"FAIL_TO_PASS": "test_a, test_b"}, "not_a_list"),
        ({"FAIL_TO_PASS": '{"a": 1}'}, "not_a_list"),
        ({"PASS_TO_PASS": [1]}, "not_a_list"),
        ({"instance_id": "../../etc/passwd"}, "bad_id"),
        ({"instance_id": ""}, "bad_id"),
        ({"patch": "this is no diff"}, "broken_patch"),
        ({"patch": GOLD.replace("a/calc.py", "a/../../x").replace("b/calc.py", "b/../../x")}, "broken_patch"),
    ],
)
def test_a_row_that_is_no_task_is_refused_by_name(changes: dict[str, JsonValue], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        swebench.from_row(swebench_row(**changes), scratch_store())
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"parsed_commit_content": "{"}, "wrong_type"),
        ({"parsed_commit_content": "{}"}, "not_a_list"),
        ({"expected_output_json": "[]"}, "wrong_type"),
        ({"execution_result_content": '{"test_file_names": ["../x.py"], "test_file_codes": [""]}'}, "wrong_type"),
    ],
)
def test_a_commit_that_cannot_be_read_is_refused_by_name(changes: dict[str, JsonValue], reason: str) -> None:
    with pytest.raises(Refused) as refused:
        r2egym.from_row(r2egym_row(**changes), scratch_store())
    assert refused.value.reason == reason
