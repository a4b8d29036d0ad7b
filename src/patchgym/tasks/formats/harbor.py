"""Harbor task directories, schema 1.4: a container, an instruction, and scripts that solve and grade.

::

    task.toml                    limits, and under [metadata.patchgym] the task's record, without its files
    instruction.md               what the agent is told
    environment/Dockerfile       the workspace at /workspace, what its lock names installed by hash
    environment/workspace/       the files as the agent finds them
    tests/test.sh                grades: 1 or 0 in /logs/verifier/reward.txt
    tests/files/                 the test files that decide, hidden ones among them (nowhere else)
    solution/solve.sh            applies the gold patch: files/ are the files as it leaves them

A directory that patchgym wrote is read again as the task it was. Of any other, the instruction, the image or
Dockerfile, the limits and a patch in ``solution/`` are read; its own script decides, so no test is known by name.
"""

import json
import tomllib
from collections.abc import Mapping

from pydantic import JsonValue, ValidationError

from patchgym.content import ObjectStore, apply_patch
from patchgym.errors import DataError, PatchError
from patchgym.grading.protect import is_protected
from patchgym.records import Environment, Limits, Source, Task
from patchgym.tasks.formats.benchmark import benchmark_task, has_files, must_build, no_files, scope_of
from patchgym.tasks.formats.folders import (
    File,
    Folder,
    below,
    files_of_tree,
    is_own,
    keep_files,
    stored,
    text_file,
    text_in,
    with_kept,
)
from patchgym.tasks.formats.harborscripts import grading_files, solution_files
from patchgym.tasks.formats.image import dockerfile, image_files
from patchgym.tasks.formats.refused import Refused, optional_text, task_id

NAME = "harbor"
CONFIG = "task.toml"
_PROBES = "tests/probes.json"

_SCHEMA = "1.4"
_ROOT = "/workspace"
_SETUP_S = 120.0  # on top of the tests' own time, for the interpreter and the copying
_PACKAGE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")


def from_files(name: str, files: Mapping[str, File], objects: ObjectStore) -> Task:
    """The task of a directory called ``name``.

    Raises:
        Refused: a file is missing or not what it should be.
    """
    config = _config(text_in(files, CONFIG))
    instruction = text_in(files, "instruction.md")
    record = _embedded(config)
    task = _ours(record, files, objects) if record is not None else _theirs(name, config, files, objects)
    told = task.model_copy(update={"instruction": instruction})
    return keep_files(NAME, files, told, lambda plain: _made(plain, objects))


def to_files(task: Task, objects: ObjectStore) -> Folder:
    """The directory of a task; that of an imported task has the very files it had.

    Raises:
        Refused: ``not_runnable``: the task has no files, or no test that must pass; ``gold_does_not_apply``.
    """
    if is_own(task, NAME):
        told = task.instruction.encode()
        return with_kept(
            NAME, task, _made(task, objects), lambda name, file: name != "instruction.md" or file.data == told
        )
    must_build(task)
    if not has_files(task):
        raise Refused("not_runnable", "It has no test files: import it with --repos.")
    if not task.tests.fail_to_pass:
        raise Refused("not_runnable", "It names no test that must pass.")
    return _made(task, objects)


def _made(task: Task, objects: ObjectStore) -> Folder:
    """What a task writes by itself: of one without files, only what says what it is."""
    files: Folder = {CONFIG: text_file(_toml(task)), "instruction.md": text_file(task.instruction)}
    environment = task.environment
    if environment.dockerfile is not None:
        files["environment/Dockerfile"] = text_file(environment.dockerfile)
    if not has_files(task):
        return files
    if environment.dockerfile is None:
        files["environment/Dockerfile"] = text_file(dockerfile(task, root_of(task)))
    inside = {f"environment/{path}": file for path, file in image_files(environment).items()}
    files |= inside | files_of_tree(objects, task.workspace, "environment/workspace")
    entries = objects.entries(task.workspace)
    pristine = {path: entry for path, entry in entries.items() if is_protected(path, task.tests)}
    files |= grading_files(task, objects, pristine, root_of(task))
    if task.probes is not None:
        files[_PROBES] = text_file(objects.get(task.probes).decode("utf-8"))
    try:
        solved = objects.entries(apply_patch(objects, task.workspace, task.gold_patch))
    except PatchError as error:
        raise Refused("gold_does_not_apply", str(error)) from error
    return files | solution_files(task, objects, entries, solved, root_of(task))


def root_of(task: Task) -> str:
    """Where the workspace lies in the container: with us, or where the images of benchmarks have it."""
    environment = task.environment
    return _ROOT if environment.image is None and environment.dockerfile is None else "/testbed"


def _toml(task: Task) -> str:
    """``task.toml``: strings as JSON writes them are strings of TOML, but for one character."""
    record = task if not is_own(task, NAME) else task.model_copy(update={"foreign": None})
    sections: dict[str, dict[str, str | float]] = {
        "metadata": {"source": task.source.repo, "license": task.source.license or ""},
        "metadata.patchgym": {"task": record.model_dump_json(exclude={"instruction", "gold_patch"})},
        "verifier": {"timeout_sec": task.tests.timeout_s + _SETUP_S},
        "agent": {"timeout_sec": task.limits.seconds},
        "environment": {"network_mode": "no-network"},
    }
    if set(task.id) <= _PACKAGE and ".." not in task.id and task.id[0] not in "._-":
        sections = {"task": {"name": f"patchgym/{task.id}"}, **sections}
    if task.environment.image is not None:
        sections["environment"]["docker_image"] = task.environment.image
    lines = [f'schema_version = "{_SCHEMA}"']
    for section, values in sections.items():
        lines += ["", f"[{section}]", *(f"{key} = {_toml_value(value)}" for key, value in values.items())]
    return "\n".join(lines) + "\n"


def _toml_value(value: str | float) -> str:
    if isinstance(value, float):
        return repr(value)
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _config(text: str) -> Mapping[str, object]:
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Refused("wrong_type", f"{CONFIG} is no TOML: {error}") from error


def _section(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = config.get(name)
    return found if isinstance(found, dict) else {}


def _embedded(config: Mapping[str, object]) -> str | None:
    record = _section(_section(config, "metadata"), "patchgym").get("task")
    return record if isinstance(record, str) else None


def _ours(record: str, files: Mapping[str, File], objects: ObjectStore) -> Task:
    """The task that was exported, with what its files say now."""
    gold = text_in(files, "solution/gold.patch") if "solution/gold.patch" in files else ""
    try:
        data = json.loads(record)
        told = {**data, "instruction": "", "gold_patch": gold} if isinstance(data, dict) else data
        task = Task.from_line(json.dumps(told), where=CONFIG)
    except (DataError, ValueError, RecursionError, ValidationError) as error:
        raise Refused("wrong_type", f"The task in {CONFIG} is damaged: {error}") from error
    tree = stored(below(files, "environment/workspace"), objects)
    graded = below(files, "tests/files")
    tests = task.tests.model_copy(
        update={
            "hidden_files": {path: _blob(path, graded, objects) for path in task.tests.hidden_files},
            "visible_files": {path: _entry_or(objects, tree, path) for path in task.tests.visible_files},
        }
    )
    probes = objects.put(files[_PROBES].data) if _PROBES in files else None
    update = {"workspace": tree, "tests": tests, "id": task_id(task.id), "scope": scope_of(gold), "probes": probes}
    return task.model_copy(update=update)


def _blob(path: str, graded: Mapping[str, File], objects: ObjectStore) -> str:
    if path not in graded:
        raise Refused("missing_field", f"It has no tests/files/{path}.")
    return objects.put(graded[path].data)


def _entry_or(objects: ObjectStore, tree: str, path: str) -> str:
    found = objects.entries(tree).get(path)
    if found is None:
        raise Refused("missing_field", f"It has no environment/workspace/{path}.")
    return found.id


def _theirs(name: str, config: Mapping[str, object], files: Mapping[str, File], objects: ObjectStore) -> Task:
    """A directory of somebody else's. Scripts are kept and never read."""
    patches = [path for path in sorted(below(files, "solution")) if path.endswith((".patch", ".diff"))]
    package = optional_text(_json(_section(config, "task").get("name")))
    source = optional_text(_json(_section(config, "metadata").get("source"))) or optional_text(
        _json(config.get("source"))
    )
    if "environment/Dockerfile" not in files and not _section(config, "environment").get("docker_image"):
        raise Refused("missing_field", "It has neither environment/Dockerfile nor a docker_image.")
    task = benchmark_task(
        name=task_id(name),
        source=Source(kind="benchmark", repo=source or (package or name).partition("/")[0]),
        instruction="",
        environment=Environment(
            image=optional_text(_json(_section(config, "environment").get("docker_image"))),
            dockerfile=text_in(files, "environment/Dockerfile") if "environment/Dockerfile" in files else None,
        ),
        gold=text_in(files, f"solution/{patches[0]}") if len(patches) == 1 else "",
        fail_to_pass=(),
        pass_to_pass=(),
        files=no_files(objects),
    )
    seconds = _section(config, "agent").get("timeout_sec")
    if isinstance(seconds, int | float) and seconds > 0:
        task = task.model_copy(update={"limits": Limits(seconds=float(seconds))})
    return task


def _json(value: object) -> JsonValue:
    return value if isinstance(value, str) else None
