"""SWE-bench 5 task repositories: a folder a task, with its Dockerfile, its patches and the script that grades it.

::

    sweb.yaml                 the datasets that the repository publishes, and their splits
    tasks/ID/task.yaml        repo, base_commit, version, image, log_parser, eval_type, split, datasets, ...
    tasks/ID/tests.json       FAIL_TO_PASS and PASS_TO_PASS
    tasks/ID/problem_statement.md, hints.md, gold.patch, test.patch, eval.sh, Dockerfile, test_assets/

A task with files is written with a ``workspace`` folder beside its Dockerfile, which copies it into the image; one that
is read with such a folder has its files.
"""

import json
from collections.abc import Mapping
from datetime import date, datetime
from importlib import import_module

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import Environment, Source, Task
from patchgym.tasks.formats.benchmark import (
    benchmark_task,
    files_at,
    has_files,
    must_build,
    no_files,
    says_test_files,
    test_patch_of,
)
from patchgym.tasks.formats.clones import Clones
from patchgym.tasks.formats.folders import (
    File,
    Folder,
    absent_of,
    below,
    files_of_tree,
    is_own,
    keep_files,
    stored,
    text_file,
    text_in,
    with_kept,
)
from patchgym.tasks.formats.image import dockerfile, image_files
from patchgym.tasks.formats.refused import (
    Refused,
    Row,
    moment,
    moment_text,
    optional_text,
    parse_json,
    strings_of,
    task_id,
    text_of,
)

NAME = "swe-bench-5"
CONFIG = "sweb.yaml"
ROOT = "/testbed"
NEW_CONFIG = "datasets:\n- patchgym/tasks\nsplits:\n- test\n"
"""``sweb.yaml`` of a repository of tasks that were made here."""

_WORKSPACE = "workspace"
_YAML_DEPTH = 50
_START, _END = ">>>>> Start Test Output", ">>>>> End Test Output"


def from_files(files: Mapping[str, File], objects: ObjectStore, clones: Clones | None = None) -> Task:
    """The task of a task folder: with its files where it has a ``workspace`` folder or ``clones`` have its commit.

    Raises:
        Refused: a file is missing or not what it should be, or a patch does not parse or apply.
    """
    about = yaml_object(text_in(files, "task.yaml"), "task.yaml")
    tests = parse_json(text_in(files, "tests.json"))
    if not isinstance(tests, dict):
        raise Refused("wrong_type", "tests.json is no object.")
    failing, passing = strings_of(tests, "FAIL_TO_PASS"), strings_of(tests, "PASS_TO_PASS")
    gold, test_patch = text_in(files, "gold.patch"), text_in(files, "test.patch")
    repo, commit = text_of(about, "repo"), text_of(about, "base_commit")
    inside = below(files, _WORKSPACE)
    tree = stored(inside, objects) if inside else clones.tree(repo, commit) if clones is not None else None
    task = benchmark_task(
        name=task_id(text_of(about, "instance_id")),
        source=Source(
            kind="benchmark",
            repo=repo,
            version=optional_text(about.get("version")),
            base_commit=commit or None,
            created_at=moment(about.get("created_at")),
            statement="issue",
        ),
        instruction=text_in(files, "problem_statement.md"),
        environment=Environment(
            image=optional_text(about.get("image")),
            dockerfile=text_in(files, "Dockerfile") if "Dockerfile" in files else None,
        ),
        gold=gold,
        fail_to_pass=failing,
        pass_to_pass=passing,
        files=files_at(objects, tree, gold, test_patch, (*failing, *passing)) if tree else no_files(objects),
    )
    without = () if inside or not has_files(task) else (_WORKSPACE,)
    return keep_files(NAME, files, task, lambda plain: _made(plain, objects, workspace=bool(inside)), without)


def to_files(task: Task, objects: ObjectStore) -> Folder:
    """The task folder of a task; that of an imported task has the very files it had.

    Raises:
        Refused: ``not_runnable``: the task has neither files nor a container.
    """
    own = is_own(task, NAME)
    if not own:
        must_build(task)
    made = _made(task, objects, workspace=not own or f"{_WORKSPACE}/" not in absent_of(task))
    return with_kept(NAME, task, made, lambda name, file: _holds(name, file, task, objects))


def _holds(name: str, file: File, task: Task, objects: ObjectStore) -> bool:
    """Whether a kept file still says what the task says."""
    text = file.data.decode("utf-8", "replace")
    if name == "tests.json":
        tests = parse_json(text)
        return isinstance(tests, dict) and (
            strings_of(tests, "FAIL_TO_PASS") == task.tests.fail_to_pass
            and strings_of(tests, "PASS_TO_PASS") == task.tests.pass_to_pass
        )
    if name == "test.patch":
        return says_test_files(text, task, objects)
    if name == "task.yaml":
        about = yaml_object(text, name)
        return (
            about.get("instance_id") == task.id
            and about.get("repo") == task.source.repo
            and optional_text(about.get("base_commit")) == task.source.base_commit
        )
    return text == {"problem_statement.md": task.instruction, "gold.patch": task.gold_patch}.get(name, text)


def _made(task: Task, objects: ObjectStore, *, workspace: bool) -> Folder:
    """What a task writes by itself."""
    test_patch = test_patch_of(task, objects)
    files: Folder = {
        "task.yaml": text_file(_about(task)),
        "tests.json": text_file(_tests(task)),
        "problem_statement.md": text_file(task.instruction),
        "gold.patch": text_file(task.gold_patch),
        "test.patch": text_file(test_patch),
        "eval.sh": text_file(_eval(task, test_patch), run=True),
    }
    if task.environment.dockerfile is not None:
        files["Dockerfile"] = text_file(task.environment.dockerfile)
    elif has_files(task):
        files["Dockerfile"] = text_file(dockerfile(task, ROOT, repository=True))
        files |= image_files(task.environment)
    elif task.environment.image is not None:
        files["Dockerfile"] = text_file(f"FROM {task.environment.image}\n")
    return files | (files_of_tree(objects, task.workspace, _WORKSPACE) if workspace else {})


def _about(task: Task) -> str:
    about: dict[str, JsonValue] = {
        "instance_id": task.id,
        "repo": task.source.repo,
        "version": task.source.version or "",
        "base_commit": task.source.base_commit or "",
        "created_at": moment_text(task.source.created_at),
        "image": task.environment.image or _image(task.id),
        "log_parser": "parse_log_pytest",
        "eval_type": "pass_and_fail",
        "split": "test",
        "datasets": ["patchgym/tasks"],
    }
    return yaml_text(about)


def _image(name: str) -> str:
    """The image that SWE-bench's harness looks for."""
    return f"swebench/sweb.eval.x86_64.{name}:latest".lower().replace("__", "_1776_")


def _tests(task: Task) -> str:
    lists = {"FAIL_TO_PASS": list(task.tests.fail_to_pass), "PASS_TO_PASS": list(task.tests.pass_to_pass)}
    return json.dumps(lists, indent=2, ensure_ascii=False) + "\n"


def _eval(task: Task, test_patch: str) -> str:
    """The script that grades: it lays the test files over the workspace and runs them."""
    end = "END_OF_TEST_PATCH"
    while end in test_patch:
        end += "_"
    files = sorted({test.partition("::")[0] for test in (*task.tests.fail_to_pass, *task.tests.pass_to_pass)})
    quoted = " ".join(f"'{name}'" for name in files if "'" not in name)
    lines = ["#!/bin/bash", "set -uxo pipefail", f"cd {ROOT}"]
    if test_patch:
        text = test_patch if test_patch.endswith("\n") else f"{test_patch}\n"
        lines += [f"git apply -v - <<'{end}'", f"{text}{end}"]
    lines += [f"echo '{_START}'", f"python -m pytest -rA -p no:cacheprovider -o addopts= {quoted}".rstrip()]
    return "\n".join([*lines, "code=$?", f"echo '{_END}'", 'echo ">>>>> Test Exit Code: $code"', ""])


def config_text(datasets: list[str], splits: list[str]) -> str:
    """``sweb.yaml`` of a new repository."""
    return yaml_text({"datasets": [*datasets], "splits": [*splits]})


def yaml_object(text: str, name: str) -> Row:
    """A YAML mapping; times in it come as ISO 8601 texts. Aliases, with which a small file can stand for a huge one,
    and deep nesting, which takes long to read, are refused.

    Raises:
        Refused: ``wrong_type``.
    """
    yaml = import_module("yaml")  # comes with libcst
    depth = 0
    try:
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _YAML_DEPTH or isinstance(event, yaml.AliasEvent):
                raise Refused("wrong_type", f"{name} uses YAML aliases, or is nested too deep.")
        found = _plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise Refused("wrong_type", f"{name} is no YAML: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise Refused("wrong_type", f"{name} is no mapping.")
    return found


def yaml_text(value: Mapping[str, JsonValue]) -> str:
    """A mapping as YAML, its keys sorted."""
    yaml = import_module("yaml")  # comes with libcst

    return str(yaml.safe_dump(dict(value), sort_keys=True, allow_unicode=True, default_flow_style=False))


def _plain(value: object) -> JsonValue:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case datetime() | date():
            return value.isoformat()
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
    raise Refused("wrong_type", f"YAML of the kind {type(value).__name__}.")
