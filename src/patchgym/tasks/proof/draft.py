"""From a candidate to a task that is still to be proved: which tests fail, which of them are hidden, what is told."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.content import Entry, ObjectStore, patch_scope, patched_paths
from patchgym.errors import DataError
from patchgym.policy.gold import gold_script
from patchgym.records import Limits, Outcome, Task, Tests
from patchgym.tasks.funnel import Dropped
from patchgym.tasks.proof.bench import Bench
from patchgym.tasks.proof.focus import focus
from patchgym.tasks.proof.healthy import Healthy
from patchgym.tasks.proof.hiding import defined_functions, without_functions
from patchgym.tasks.proof.instruction import frames_of
from patchgym.tasks.proof.statement import TellsSymptoms, Wording, with_instruction
from patchgym.tasks.sources.candidates import Candidate, text_of
from patchgym.testrun import TestRun, function_of


@dataclass(frozen=True)
class Rules:
    """What a task set asks of its tasks: the most tests that a planted bug may fail, the time-out and the limits that
    the tasks carry, the seed of every choice, and how instructions are worded."""

    max_failing_tests: int
    test_seconds: float
    limits: Limits
    seed: int
    wording: Wording = "tests"


async def draft_task(
    candidate: Candidate,
    healthy: Healthy,
    bench: Bench,
    rules: Rules,
    split: Literal["train", "heldout"],
    teller: TellsSymptoms | None = None,
) -> Task:
    """Run a candidate's broken tree, hide about half of the test functions that fail, run what is left as the agent
    would, and write the instruction from that. Of the tests, only those run that can notice what the candidate changes.

    Raises:
        Dropped: the candidate makes no task.
        SandboxError: a sandbox was lost.
    """
    revision, objects = candidate.revision, bench.objects
    noticing = focus(objects, candidate.broken, candidate.healthy, healthy.coverage, revision.project.is_test)
    wanted = sorted(healthy.passed if noticing is None else healthy.passed & noticing)
    if not wanted:
        raise Dropped("survived")
    limit = healthy.patience(rules.test_seconds)
    run = await _told(candidate, bench, candidate.broken, wanted, limit)
    failing = _failing(candidate, healthy, run, rules)
    through = {test for test in failing if _reaches(candidate, run.failures.get(test, ""))}
    hidden = _hidden(objects, candidate, failing, through, rules.seed)
    workspace = _without(objects, candidate.broken, hidden)
    # The tests whose traceback leads through the bug come first: they say most.
    visible = [test for test in failing if function_of(test) not in hidden]
    visible.sort(key=lambda test: (test not in through, test))
    failures = await _failures(candidate, bench, workspace, visible, limit) if visible else {}
    visible = [test for test in visible if test in failures]
    unseen = tuple(test for test in failing if test not in failures)
    entries, whole = objects.entries(workspace), objects.entries(candidate.broken)
    task = Task(
        id=candidate.id,
        source=candidate.source,
        instruction="",
        workspace=workspace,
        environment=revision.environment,
        tests=Tests(
            fail_to_pass=(*visible, *unseen),
            pass_to_pass=tuple(sorted(healthy.passed - set(failing))),
            hidden=unseen,
            visible_files={path: entry.id for path, entry in entries.items() if revision.project.is_test(path)},
            hidden_files={path: whole[path].id for path in sorted({path for path, _ in hidden})},
            timeout_s=rules.test_seconds,
        ),
        gold_patch=candidate.gold_patch,
        key_files=patched_paths(candidate.gold_patch),
        functions=tuple(sorted(candidate.functions)),
        scope=patch_scope(candidate.gold_patch),
        difficulty=candidate.difficulty,
        limits=rules.limits,
        split=split,
    )
    task = await with_instruction(task, candidate, failures, objects, rules.wording, teller)
    if not visible and task.source.statement == "failing_tests":  # nothing that the agent sees says what is wrong
        raise Dropped("nothing_to_hide")
    return task.model_copy(update={"limits": _roomy(task, objects)})


async def _failures(
    candidate: Candidate, bench: Bench, workspace: str, visible: Sequence[str], limit: float
) -> dict[str, str]:
    """What the tests that are left say where the agent will run them. Those that went with a hidden one, because their
    class or module takes its tests from there, are not among them."""
    seen = await _told(candidate, bench, workspace, visible, limit)
    there = [test for test in visible if seen.outcomes[test] is not Outcome.MISSING]
    if not all(seen.outcomes[test].failing for test in there):
        raise Dropped("visible_differs")
    return {test: seen.failures.get(test) or seen.failures.get(function_of(test)[0], "") for test in there}


async def _told(candidate: Candidate, bench: Bench, tree: str, tests: Sequence[str], limit: float) -> TestRun:
    """A run of tests on a tree near the candidate's, with the traceback of every failure."""
    revision, every = candidate.revision, len(tests)
    return await bench.run(tree, revision.environment, tests, timeout_s=limit, base=revision.tree, tracebacks=every)


def _roomy(task: Task, objects: ObjectStore) -> Limits:
    """The task's limits, with at least one turn more than its own solution takes with the agent's tools."""
    needed = len(gold_script(task, objects)) + 1
    return task.limits.model_copy(update={"turns": max(task.limits.turns, needed)})


def _failing(candidate: Candidate, healthy: Healthy, run: TestRun, rules: Rules) -> list[str]:
    """Tests that pass on the healthy tree and fail, cannot be collected or are gone on the broken one."""
    if run.process.timed_out:
        raise Dropped("timeout")
    if not run.complete:
        raise Dropped("crash")
    failing = sorted(test for test, outcome in run.outcomes.items() if outcome.failing)
    if not failing:
        raise Dropped("survived")
    if candidate.source.kind == "synthetic":
        if len(failing) == len(healthy.passed):
            raise Dropped("breaks_everything")
        if len(failing) > rules.max_failing_tests:
            raise Dropped("breaks_too_much")
    return failing


def _reaches(candidate: Candidate, traceback: str) -> bool:
    """Whether a traceback goes through a function that the candidate changes."""
    frames = {f"{path}:{name}" for path, name in frames_of(traceback)}
    changed = (function.partition(":") for function in candidate.functions)
    return any(f"{path}:{name.rpartition('.')[2]}" in frames for path, _, name in changed)


def _hidden(
    objects: ObjectStore, candidate: Candidate, failing: Sequence[str], through: set[str], seed: int
) -> frozenset[tuple[str, str]]:
    """The test functions to hide, about half of those that fail, rather those whose traceback says little; the only one
    where somebody wrote what is wrong."""
    functions = sorted({function_of(test) for test in failing})
    telling = {function_of(test) for test in through}
    entries = objects.entries(candidate.broken)
    defined = {
        path: defined_functions(text_of(objects, entries[path]))
        for path in {path for path, _ in functions}
        if path in entries
    }
    removable = [function for function in functions if function[1] in defined.get(function[0], ())]
    if len(functions) < 2 and candidate.statement and removable:
        return frozenset(removable)  # what people wrote tells the problem: the one test can be kept from the agent
    if len(functions) < 2 or not removable:
        raise Dropped("nothing_to_hide")
    random.Random(f"{seed}/{candidate.id}").shuffle(removable)
    removable.sort(key=lambda function: function in telling)
    # No more than half of those that can be removed: others may be taken over from them, and would go with them.
    return frozenset(removable[: max(1, min(len(functions), len(removable)) // 2)])


def _without(objects: ObjectStore, tree: str, hidden: frozenset[tuple[str, str]]) -> str:
    """The tree whose test files lack the hidden functions."""
    entries = objects.entries(tree)
    changes: dict[str, Entry | None] = {}
    for path in {path for path, _ in hidden}:
        names = {function for file, function in hidden if file == path}
        try:
            reduced = without_functions(text_of(objects, entries[path]), names)
        except DataError as error:
            raise Dropped("nothing_to_hide") from error
        changes[path] = Entry(entries[path].mode, objects.put(reduced.encode()))
    return objects.update_tree(tree, changes)
