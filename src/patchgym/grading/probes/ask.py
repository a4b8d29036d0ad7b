"""Asking a tree what calls come to, in a sandbox where nothing is called a test."""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.grading.probes.compare import Told
from patchgym.records import Environment, Tests
from patchgym.sandbox import WORKSPACE, SandboxFactory, SandboxSpec
from patchgym.testrun import Beside, Built, sandbox_spec

INSIDE = "/run/patchgym/patchgym_inside"
FOLDER = Path(__file__).with_name("inside")
CALL_SECONDS = 3.0
TEST_NAME = re.compile(r"(?:^|/)(?:tests?(?:/|$)|test_|conftest\.py$|[^/]*_test\.py$)")
_START_SECONDS = 15.0


@dataclass(frozen=True)
class Question:
    """A program under a name of one asking, which says nothing of what it is."""

    id: str
    steps: list[JsonValue]


def question(steps: list[JsonValue]) -> Question:
    """A program under a fresh name."""
    return Question(secrets.token_hex(6), steps)


def mounted(spec: SandboxSpec) -> SandboxSpec:
    """A specification whose sandbox also holds what runs inside."""
    return replace(spec, mounts={**spec.mounts, INSIDE: FOLDER})


def beside(module: str, tests: Tests, argument: dict[str, JsonValue]) -> Beside:
    """The plug-in ``module`` for a run of tests in a sandbox of a ``mounted`` specification."""
    return Beside(INSIDE, module, {"tests": list(test_files(tests)), **argument})


def test_files(tests: Tests) -> tuple[str, ...]:
    """The paths of a task's test files, sorted."""
    return tuple(sorted({*tests.visible_files, *tests.hidden_files}))


def without_tests(objects: ObjectStore, tree: str, tests: Tests) -> str:
    """A tree without its tests: neither the task's test files nor what is called a test.

    Raises:
        DataError: the tree is not in the store.
    """
    files = frozenset(test_files(tests))
    gone = [path for path in objects.entries(tree) if path in files or TEST_NAME.search(path)]
    return objects.update_tree(tree, dict.fromkeys(gone))


async def ask(
    factory: SandboxFactory,
    tree: str,
    base: str,
    environment: Environment,
    built: Built,
    questions: Sequence[Question],
    modules: Sequence[str],
    *,
    seed: int | None = None,
    seconds: float = CALL_SECONDS,
) -> dict[str, Told]:
    """What each question came to on ``tree`` (one ``without_tests``) in a fresh sandbox; those that were never answered
    are missing. ``base`` is a tree near it. ``seed`` fixes how strings are hashed.

    Raises:
        SandboxError: the sandbox was lost.
    """
    if not questions:
        return {}
    sandbox = await factory.create(mounted(sandbox_spec(tree, environment, built, base=base)))
    try:
        request = {
            "root": sandbox.locate(WORKSPACE),
            "paths": list(environment.pythonpath),
            "tests": [],
            "modules": list(modules),
            "seconds": seconds,
            "calls": [{"id": one.id, "steps": one.steps} for one in questions],
        }
        result = await sandbox.exec(
            ["python", "-s", "-B", sandbox.locate(INSIDE)],
            variables={"PYTHONPATH": "", **({"PYTHONHASHSEED": str(seed)} if seed is not None else {})},
            timeout_s=_START_SECONDS + seconds * min(len(questions), 10),
            stdin=json.dumps(request).encode(),
            report=True,
        )
    finally:
        await sandbox.close()
    return answers(map(_parsed, result.report.split(b"\n")[:-1]), {one.id for one in questions})


def answers(said: object, asked: set[str]) -> dict[str, Told]:
    """The first answer to each question, out of whatever the channel carried."""
    found: dict[str, Told] = {}
    for one in said if isinstance(said, map | tuple | list) else ():
        match one:
            case {"id": str(name), "told": dict(told)} if name in asked and name not in found:
                found[name] = told
    return found


def _parsed(line: bytes) -> object:
    try:
        return json.loads(line.decode("utf-8", "backslashreplace"))
    except (ValueError, RecursionError):
        return None
