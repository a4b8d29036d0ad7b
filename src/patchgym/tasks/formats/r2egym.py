"""R2E-Gym rows: a commit in a container image, and the map of outcomes that its tests must have.

A row seldom has an ``instance_id``; without one a task's id is ``repo_name__commit_hash``, the hash cut to 12 digits.
The tests that decide lie in ``r2e_tests`` of the image and, as text, in the row. R2E-Gym wants the whole map, failures
too; a task wants those that are to pass.
"""

import json

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Environment, Source, Task
from patchgym.tasks.formats.benchmark import Files, benchmark_task, files_at, no_files
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.columns import Column, keep, maybe, same, write_row
from patchgym.tasks.formats.r2ecommit import (
    TEST_FOLDER,
    commit_text,
    gold_of,
    json_object,
    short_name,
    tests_of,
)
from patchgym.tasks.formats.refused import Refused, Row, moment, optional_text, strings, task_id, text_of

NAME = "r2e-gym"

_DEFAULT = (
    "repo_name",
    "docker_image",
    "commit_hash",
    "parsed_commit_content",
    "execution_result_content",
    "modified_files",
    "relevant_files",
    "problem_statement",
    "expected_output_json",
)


def from_row(row: Row, objects: ObjectStore, clones: Clones | None = None) -> Task:
    """The task of a row; with ``clones``, and where they have the commit before the fix, with its files.

    Raises:
        Refused: a field is missing or of the wrong kind, or the commit cannot be read or does not apply.
    """
    repo, fix = text_of(row, "repo_name"), text_of(row, "commit_hash")
    commit = json_object(text_of(row, "parsed_commit_content"), "parsed_commit_content")
    execution = json_object(row.get("execution_result_content") or {}, "execution_result_content")
    gold = gold_of(commit)
    tests = tests_of(json_object(text_of(row, "expected_output_json"), "expected_output_json"), execution)
    base = optional_text(commit.get("old_commit_hash"))
    tree = clones.tree(repo, base or f"{fix}^") if clones is not None else None
    found = files_at(objects, tree, gold, "", (*tests.fail_to_pass, *tests.pass_to_pass)) if tree else None
    files = found or no_files(objects)
    task = benchmark_task(
        name=task_id(optional_text(row.get("instance_id")) or _made_id(repo, fix)),
        source=Source(
            kind="benchmark",
            repo=repo,
            base_commit=base,
            fix_commit=fix or None,
            created_at=moment(commit.get("commit_date")),
            statement="model",
        ),
        instruction=text_of(row, "problem_statement"),
        environment=Environment(image=optional_text(row.get("docker_image"))),
        gold=gold,
        fail_to_pass=tests.fail_to_pass,
        pass_to_pass=tests.pass_to_pass,
        files=Files(files.tree, files.visible, _test_files(execution, objects)),
    )
    return keep(NAME, row, task, _COLUMNS, objects)


def to_row(task: Task, objects: ObjectStore) -> dict[str, JsonValue]:
    """The row of a task; that of an imported task is the row it was. Logs of runs are never made up: a new row says
    which tests must pass, and not which of them failed before.

    Raises:
        Refused: the gold patch does not apply to the task's files.
    """
    made = _made_id(task.source.repo, task.source.fix_commit or "")
    default = _DEFAULT if task.id == made else ("instance_id", *_DEFAULT)
    return write_row(NAME, task, _COLUMNS, default, objects)


def _made_id(repo: str, commit: str) -> str:
    return f"{repo.replace('/', '__')}__{commit[:12]}"


def _test_files(execution: Row, objects: ObjectStore) -> dict[str, str]:
    names = strings(execution.get("test_file_names") or [], "test_file_names")
    codes = strings(execution.get("test_file_codes") or [], "test_file_codes")
    if len(names) != len(codes) or any("/" in name or name in ("", ".", "..") for name in map(_base, names)):
        raise Refused("wrong_type", "test_file_names and test_file_codes do not go together.")
    return {f"{TEST_FOLDER}/{_base(name)}": objects.put(code.encode()) for name, code in zip(names, codes, strict=True)}


def _base(name: str) -> str:
    return name.removeprefix(f"{TEST_FOLDER}/")


def _expected(task: Task) -> list[str]:
    return [*task.tests.fail_to_pass, *task.tests.pass_to_pass]


def _same_tests(value: JsonValue, task: Task) -> bool:
    expected = json_object(value, "expected_output_json")
    return {*tests_of(expected, {}).pass_to_pass} == {short_name(test) for test in _expected(task)}


def _same_execution(value: JsonValue, task: Task, objects: ObjectStore) -> bool:
    execution = json_object(value or {}, "execution_result_content")
    return _test_files(execution, objects) == task.tests.hidden_files


def _execution_text(task: Task, objects: ObjectStore) -> JsonValue:
    hidden = task.tests.hidden_files
    document = {
        "repo_name": task.source.repo,
        "new_commit_hash": task.source.fix_commit or "",
        # R2E-Gym's tests lie in one flat folder, under names that pytest collects.
        "test_file_names": [
            path.removeprefix(f"{TEST_FOLDER}/") if path.startswith(f"{TEST_FOLDER}/") else f"test_{number}.py"
            for number, path in enumerate(hidden, start=1)
        ],
        "test_file_codes": [objects.get(blob).decode("utf-8", "replace") for blob in hidden.values()],
    }
    return json.dumps(document)


def _key_files(name: str) -> Column:
    """Which files R2E-Gym thinks of is its own affair; a new row names those of the gold patch."""
    return Column(name, lambda task, _: list(task.key_files), lambda value, task, _: True)


_COLUMNS = (
    same("instance_id", lambda task: task.id),
    same("repo_name", lambda task: task.source.repo),
    maybe("docker_image", lambda task: task.environment.image),
    maybe("commit_hash", lambda task: task.source.fix_commit),
    Column(
        "parsed_commit_content",
        commit_text,
        lambda value, task, _: gold_of(json_object(value, "parsed_commit_content")) == task.gold_patch,
    ),
    Column("execution_result_content", _execution_text, _same_execution),
    _key_files("modified_files"),
    _key_files("relevant_files"),
    same("problem_statement", lambda task: task.instruction),
    Column(
        "expected_output_json",
        lambda task, _: json.dumps({short_name(test): "PASSED" for test in _expected(task)}),
        lambda value, task, _: _same_tests(value, task),
    ),
)
