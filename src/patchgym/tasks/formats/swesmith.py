"""SWE-smith rows: a healthy repository and a patch that plants a bug in it. What solves the task is that patch undone.

The repository is a mirror, ``org/owner__name.commit``; ``--repos`` finds a clone of it, or of ``owner/name``.
"""

import re

from pydantic import JsonValue

from patchgym.content import ObjectStore, apply_patch, diff_trees
from patchgym.errors import PatchError
from patchgym.records import Environment, Source, Task
from patchgym.tasks.formats.benchmark import Files, benchmark_task, has_files, looks_like_test, no_files
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.columns import Column, keep, listed, maybe, same, write_row
from patchgym.tasks.formats.refused import Refused, Row, optional_text, strings_of, task_id, text_of, text_or
from patchgym.tasks.formats.reverse import reverse_patch

NAME = "swe-smith"

_DEFAULT = ("instance_id", "repo", "patch", "FAIL_TO_PASS", "PASS_TO_PASS", "image_name", "problem_statement")
_MIRROR = re.compile(r"(?:.*/)?(?P<owner>[^/]+?)__(?P<name>[^/]+)\.(?P<commit>[0-9a-f]{7,40})")


def from_row(row: Row, objects: ObjectStore, clones: Clones | None = None) -> Task:
    """The task of a row; with ``clones``, and where they have its repository, with its files: the healthy tree with
    the bug in it and without the files of the fail-to-pass tests, which are hidden.

    Raises:
        Refused: a field is missing or of the wrong kind, or the patch does not parse, cannot be undone or does not
            apply.
    """
    bug = text_of(row, "patch")
    gold = _undone(bug)
    failing, passing = strings_of(row, "FAIL_TO_PASS"), strings_of(row, "PASS_TO_PASS")
    repo = text_of(row, "repo")
    mirror = _MIRROR.fullmatch(repo)
    healthy = _healthy(repo, clones) if clones is not None else None
    task = benchmark_task(
        name=task_id(text_of(row, "instance_id")),
        source=Source(
            kind="benchmark",
            repo=repo,
            base_commit=mirror["commit"] if mirror else None,
            statement="issue",
            change="a planted bug",
        ),
        instruction=text_or(row, "problem_statement"),
        environment=Environment(image=optional_text(row.get("image_name"))),
        gold=gold,
        fail_to_pass=failing,
        pass_to_pass=passing,
        files=_files(objects, healthy, bug, failing) if healthy else no_files(objects),
    )
    return keep(NAME, row, task, _COLUMNS, objects)


def to_row(task: Task, objects: ObjectStore) -> dict[str, JsonValue]:
    """The row of a task; that of an imported task is the row it was.

    Raises:
        Refused: the gold patch cannot be turned round.
    """
    return write_row(NAME, task, _COLUMNS, _DEFAULT, objects)


def _healthy(repo: str, clones: Clones) -> str | None:
    """The tree without the bug: the mirror's own, which is one commit, or that commit of the original."""
    found = _MIRROR.fullmatch(repo)
    if found is None or clones.has(repo):
        return clones.tree(repo, "HEAD")
    return clones.tree(f"{found['owner']}/{found['name']}", found["commit"])


def _files(objects: ObjectStore, healthy: str, bug: str, failing: tuple[str, ...]) -> Files:
    try:
        broken = apply_patch(objects, healthy, bug)
    except PatchError as error:
        raise Refused("gold_does_not_apply", error.what) from error
    entries, whole = objects.entries(broken), objects.entries(healthy)
    deciding = sorted({path for path in (test.partition("::")[0] for test in failing) if path in whole})
    return Files(
        objects.update_tree(broken, dict.fromkeys(deciding)),
        visible={
            path: entry.id
            for path, entry in sorted(entries.items())
            if looks_like_test(path) and path not in deciding and entry == whole.get(path)
        },
        hidden={path: whole[path].id for path in deciding},
    )


def _undone(patch: str) -> str:
    try:
        return reverse_patch(patch)
    except PatchError as error:
        reason = "broken_patch" if "parse" in error.what else "not_reversible"
        raise Refused(reason, str(error)) from error


def _bug(task: Task, objects: ObjectStore) -> str:
    """The gold patch undone: by its own text, else by what it does to the task's files."""
    try:
        return reverse_patch(task.gold_patch)
    except PatchError as error:
        if not has_files(task):
            raise Refused("not_reversible", str(error)) from error
    try:
        return diff_trees(objects, apply_patch(objects, task.workspace, task.gold_patch), task.workspace)
    except PatchError as error:
        raise Refused("gold_does_not_apply", str(error)) from error


_COLUMNS = (
    same("instance_id", lambda task: task.id),
    same("repo", lambda task: task.source.repo),
    Column(
        "patch",
        _bug,
        lambda value, task, _: isinstance(value, str) and _undone(value) == task.gold_patch,
    ),
    listed("FAIL_TO_PASS", lambda task: task.tests.fail_to_pass, lambda tests: [*tests]),
    listed("PASS_TO_PASS", lambda task: task.tests.pass_to_pass, lambda tests: [*tests]),
    maybe("image_name", lambda task: task.environment.image),
    same("problem_statement", lambda task: task.instruction),
)
