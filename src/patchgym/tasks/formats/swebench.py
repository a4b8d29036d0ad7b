"""SWE-bench rows: an issue, the commit it was found at, the fix, and the tests that the fix brought.

``FAIL_TO_PASS`` and ``PASS_TO_PASS`` are the JSON text of a list, in later sets lists. Rows of SWE-bench 5 and of sets
made after it also name a container image.
"""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Environment, Source, Task
from patchgym.tasks.formats.benchmark import (
    benchmark_task,
    files_at,
    no_files,
    says_test_files,
    test_patch_of,
)
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.columns import Column, created_at, keep, listed, maybe, same, write_row
from patchgym.tasks.formats.refused import Row, moment, optional_text, strings_of, task_id, text_of, text_or

NAME = "swe-bench"

_IMAGES = ("image", "image_name", "docker_image")
_DEFAULT = (
    "repo",
    "instance_id",
    "base_commit",
    "patch",
    "test_patch",
    "problem_statement",
    "hints_text",
    "created_at",
    "version",
    "FAIL_TO_PASS",
    "PASS_TO_PASS",
    "environment_setup_commit",
)


def from_row(row: Row, objects: ObjectStore, clones: Clones | None = None) -> Task:
    """The task of a row; with ``clones``, and where they have its commit, with its files.

    Raises:
        Refused: a field is missing or of the wrong kind, or a patch does not parse or apply.
    """
    gold, test_patch = text_of(row, "patch"), text_or(row, "test_patch")
    failing, passing = strings_of(row, "FAIL_TO_PASS"), strings_of(row, "PASS_TO_PASS")
    repo, commit = text_of(row, "repo"), text_of(row, "base_commit")
    tree = clones.tree(repo, commit) if clones is not None else None
    task = benchmark_task(
        name=task_id(text_of(row, "instance_id")),
        source=Source(
            kind="benchmark",
            repo=repo,
            version=optional_text(row.get("version")),
            base_commit=commit or None,
            created_at=moment(row.get("created_at")),
            statement="issue",
        ),
        instruction=text_of(row, "problem_statement"),
        environment=Environment(image=optional_text(row.get(_image_column(row) or ""))),
        gold=gold,
        fail_to_pass=failing,
        pass_to_pass=passing,
        files=files_at(objects, tree, gold, test_patch, (*failing, *passing)) if tree else no_files(objects),
    )
    return keep(NAME, row, task, _columns(_image_column(row)), objects)


def to_row(task: Task, objects: ObjectStore) -> dict[str, JsonValue]:
    """The row of a task; that of an imported task is the row it was."""
    image = "image" if task.environment.image else None
    if task.foreign is not None and task.foreign.format == NAME:
        names = task.foreign.fields.get("columns")
        image = _image_column({str(name): None for name in names} if isinstance(names, list) else {})
    default = [*_DEFAULT, *(["image"] if image else [])]
    return write_row(NAME, task, _columns(image), default, objects)


def _image_column(row: Row) -> str | None:
    return next((name for name in _IMAGES if name in row), None)


def _columns(image: str | None) -> Sequence[Column]:
    """The columns of which ``image`` is called as in the row at hand."""
    found = [
        same("repo", lambda task: task.source.repo),
        same("instance_id", lambda task: task.id),
        maybe("base_commit", lambda task: task.source.base_commit),
        same("patch", lambda task: task.gold_patch),
        Column("test_patch", test_patch_of, lambda value, task, objects: says_test_files(_text(value), task, objects)),
        same("problem_statement", lambda task: task.instruction),
        created_at(),
        maybe("version", lambda task: task.source.version),
        listed("FAIL_TO_PASS", lambda task: task.tests.fail_to_pass, _json_text),
        listed("PASS_TO_PASS", lambda task: task.tests.pass_to_pass, _json_text),
    ]
    return [*found, maybe(image, lambda task: task.environment.image)] if image else found


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def _json_text(tests: list[str]) -> JsonValue:
    return json.dumps(tests)
