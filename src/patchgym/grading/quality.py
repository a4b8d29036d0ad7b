"""How a patch is made, beside what it does: measured on the agent's own tree, with its own tests, in sandboxes."""

import ast
import asyncio
import json
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from patchgym.content import Entry, ObjectStore, apply_patch, patched_paths
from patchgym.errors import PatchError
from patchgym.records import Outcome, Quality, Task
from patchgym.sandbox import WORKSPACE, Ending, Sandbox, SandboxFactory, SandboxSpec
from patchgym.testrun import Built, TestRun, function_of, run_tests, sandbox_spec

Mutants = Callable[[Task, str], Sequence[str]]
"""Trees made of a task's patched tree, each with one bug planted in what the patch touched. Blocking."""

_RUFF_INSIDE = "/run/patchgym/ruff"
_RULES = "E4,E7,E9,F"  # ruff's defaults of old, named: what is default changes with its versions
_SECONDS = 30.0
_MOST_FILES = 200
_LONGEST_SOURCE = 1_000_000
_COMPILE = """\
import json, sys
bad = []
for path in json.load(sys.stdin):
    try:
        with open(path, "rb") as file:
            compile(file.read(), path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        bad.append(path)
print(json.dumps(bad))
"""


@dataclass(frozen=True)
class _Bench:
    """Where it is measured."""

    factory: SandboxFactory
    objects: ObjectStore
    built: Built


async def measure_quality(
    task: Task,
    patch: str,
    bench: tuple[SandboxFactory, ObjectStore, Built],
    mutants: Mutants | None = None,
) -> Quality:
    """What can be measured here: ``lint_added`` is None without the program ``ruff`` (the extra ``lint``), and
    ``mutants_killed_added`` without ``mutants``.

    Raises:
        SandboxError: a sandbox was lost.
    """
    place = _Bench(*bench)
    objects = place.objects
    try:
        own = apply_patch(objects, task.workspace, patch)
        touched = [path for path in patched_paths(patch) if path.endswith(".py")][:_MOST_FILES]
    except PatchError:
        return Quality()
    before, after = objects.entries(task.workspace), objects.entries(own)
    compiles, lint_added = await _look(place, touched, before, after)
    files = [path for path in touched if path in after and _is_test(path)]
    if not compiles or not files:
        return Quality(
            compiles=compiles,
            lint_added=lint_added,
            tests_added=0 if compiles else None,
            mutants_killed_added=0 if compiles and mutants is not None else None,
        )
    tests = await _new_tests(place, task, own, files, before)
    killed: int | None = None
    if mutants is not None:
        planted = await asyncio.to_thread(mutants, task, own) if tests else ()
        killed = sum([await _kills(place, task, tree, tests) for tree in planted])
    return Quality(compiles=compiles, lint_added=lint_added, tests_added=len(tests), mutants_killed_added=killed)


async def _look(
    place: _Bench, touched: Sequence[str], before: Mapping[str, Entry], after: Mapping[str, Entry]
) -> tuple[bool | None, int | None]:
    """Whether every touched file compiles, and what ruff finds in them now that it did not find before."""
    sides = {"before": before, "after": after}
    files = {f"{side}/{path}": tree[path] for side, tree in sides.items() for path in touched if path in tree}
    changed = [path for path in files if path.startswith("after/")]
    ruff = _ruff()
    if not changed:
        return True, 0 if ruff is not None else None
    tree = place.objects.write_tree(files)
    mounts = {_RUFF_INSIDE: ruff} if ruff is not None else {}
    sandbox = await place.factory.create(SandboxSpec(tree=tree, environment=place.built.folder, mounts=mounts))
    try:
        return await _compiles(sandbox, changed), await _lint(sandbox) if ruff is not None else None
    finally:
        await sandbox.close()


async def _compiles(sandbox: Sandbox, paths: Sequence[str]) -> bool | None:
    """Whether the environment's Python compiles files; nothing of them is run. None where it did not end well."""
    command = ["python", "-I", "-S", "-c", _COMPILE]
    done = await sandbox.exec(command, stdin=json.dumps(list(paths)).encode(), timeout_s=_SECONDS)
    if done.ending is not Ending.EXITED or done.exit_code != 0:
        return None
    return bool(json.loads(done.stdout) == [])


async def _lint(sandbox: Sandbox) -> int | None:
    """How many findings are new, by file and rule: lines move. None where ruff did not end well."""
    options = ["check", "--isolated", "--no-cache", "--exit-zero", "--select", _RULES, "--output-format", "json"]
    command = [sandbox.locate(_RUFF_INSIDE), *options, "before", "after"]
    done = await sandbox.exec(command, timeout_s=_SECONDS)
    if done.ending is not Ending.EXITED or done.exit_code != 0 or done.stdout_cut is not None:
        return None
    counts: dict[str, Counter[tuple[str, str]]] = {"before": Counter(), "after": Counter()}
    root = PurePosixPath(sandbox.locate(WORKSPACE))
    for finding in json.loads(done.stdout):
        side, _, path = str(PurePosixPath(finding["filename"]).relative_to(root)).partition("/")
        counts[side][path, str(finding["code"])] += 1
    return (counts["after"] - counts["before"]).total()


def _ruff() -> Path | None:
    """The program, from beside this Python or from the path."""
    found = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    return Path(found).resolve() if found else None


async def _new_tests(
    place: _Bench, task: Task, own: str, files: Sequence[str], before: Mapping[str, Entry]
) -> frozenset[str]:
    """The tests in ``files`` that the base does not have and that pass on the agent's tree."""
    run = await _run(place, task, own, (), files)
    known = {path: _functions(place.objects, before.get(path)) for path in files}

    def is_new(test: str) -> bool:
        path, function = function_of(test)
        return path in known and function not in known[path]

    return frozenset(test for test, outcome in run.outcomes.items() if outcome is Outcome.PASSED and is_new(test))


async def _kills(place: _Bench, task: Task, tree: str, tests: Collection[str]) -> bool:
    """Whether the agent's tests notice the bug in ``tree`` and the task's visible ones do not."""
    mine = await _run(place, task, tree, sorted(tests))
    if not mine.timed_out and all(mine.outcomes[test] is Outcome.PASSED for test in tests):
        return False
    hidden = frozenset(task.tests.hidden)
    visible = [test for test in (*task.tests.fail_to_pass, *task.tests.pass_to_pass) if test not in hidden]
    modes = place.objects.entries(tree)
    pristine = {
        path: Entry(modes[path].mode if path in modes else 0o100644, blob)
        for path, blob in task.tests.visible_files.items()
    }
    theirs = await _run(place, task, place.objects.update_tree(tree, pristine), visible)
    gone = {function_of(test) for test in hidden}
    return all(
        theirs.outcomes[test] in (Outcome.PASSED, Outcome.MISSING) for test in visible if function_of(test) not in gone
    )


async def _run(place: _Bench, task: Task, tree: str, ids: Sequence[str], files: Sequence[str] = ()) -> TestRun:
    spec = sandbox_spec(tree, task.environment, place.built, base=task.workspace)
    sandbox = await place.factory.create(spec)
    try:
        return await run_tests(sandbox, task.environment, ids, timeout_s=task.tests.timeout_s, files=files)
    finally:
        await sandbox.close()


def _is_test(path: str) -> bool:
    name = PurePosixPath(path).name
    return name.startswith("test_") or name.endswith("_test.py")


def _functions(objects: ObjectStore, entry: Entry | None) -> frozenset[str]:
    """The qualified names of a file's functions, as far as it can be read."""
    if entry is None:
        return frozenset()
    data = objects.get(entry.id)
    if len(data) > _LONGEST_SOURCE:
        return frozenset()
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    found: set[str] = set()

    def walk(body: Sequence[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.add(prefix + node.name)
            elif isinstance(node, ast.ClassDef):
                walk(node.body, f"{prefix}{node.name}.")

    walk(tree.body, "")
    return frozenset(found)
