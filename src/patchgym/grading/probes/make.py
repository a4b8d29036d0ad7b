"""Making a task's probes: record, vary, ask the solution several times, and decide which answers count.

No model is asked. Everything of the task runs in sandboxes; what they told is data here.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path

from pydantic import JsonValue

from patchgym.content import Entry, ObjectStore, apply_patch
from patchgym.errors import DataError
from patchgym.grading.probes.ask import CALL_SECONDS, answers, ask, beside, mounted, question, without_tests
from patchgym.grading.probes.blob import Probe, ProbeSet
from patchgym.grading.probes.choose import (
    Call,
    decided,
    identifiers,
    kept,
    preserves,
    recorded_calls,
    spread,
    trustworthy,
)
from patchgym.grading.probes.compare import Told
from patchgym.grading.probes.rewrite import rewritten
from patchgym.grading.probes.touched import touched_functions
from patchgym.grading.probes.vary import varied
from patchgym.records import Environment, Outcome, Task
from patchgym.sandbox import SandboxFactory
from patchgym.testrun import Beside, Built, TestRun, built_environment, run_tests, sandbox_spec

GOLD_SEEDS = (None, 1, 2)  # first as in a grading
GOLD_REPEATS = 3
MOST_RECORDED = 40
MOST_VARIED = 36
MOST_STAYING = 40
_RECORDING_SLOWER = 6.0
_TESTS_BESIDE = 6
_FILE = 0o100644
_SEED = 20


class ProbeMaker:
    """Makes probes in sandboxes of ``factory``; task trees and test blobs must be in ``objects``. ``build`` gives the
    directory of a built environment (blocking; called in a thread)."""

    def __init__(self, factory: SandboxFactory, objects: ObjectStore, build: Callable[[Environment], Path]) -> None:
        self._factory = factory
        self._objects = objects
        self._build = build

    async def make(self, task: Task) -> ProbeSet:
        """The probes of a task, the same ones whenever it is asked.

        Raises:
            DataError: the task is invalid: its own solution fails its tests.
            PatchError: the gold patch does not apply.
            EnvironmentBuildError, PrerequisiteError: the environment cannot be had here.
            SandboxError: a sandbox was lost.
        """
        started = time.monotonic()
        built = await built_environment(task.environment, self._build)
        work = _Making(task, self._objects, self._factory, built)
        left_out: Counter[str] = Counter()
        calls = await work.recorded(left_out)
        chosen = spread(calls, MOST_RECORDED)
        left_out["enough of its kind"] += len(calls) - len(chosen)
        probes = await work.probes(chosen, left_out)
        return ProbeSet(
            probes=probes,
            recorded=len(calls),
            left_out={reason: count for reason, count in sorted(left_out.items()) if count},
            seconds=round(time.monotonic() - started, 2),
        )


class _Making:
    """The making of one task's probes."""

    def __init__(self, task: Task, objects: ObjectStore, factory: SandboxFactory, built: Built) -> None:
        self._task, self._objects, self._factory, self._built = task, objects, factory, built
        self._gold = solved_tree(objects, task)
        self._functions = touched_functions(objects, task, self._gold)
        self._rng = random.Random(f"{_SEED} {task.id}")

    async def recorded(self, left_out: Counter[str]) -> list[Call]:
        """The different calls of the passing tests, on the solution."""
        task = self._task
        plugin = beside("recorder", task.tests, {"touched": list(self._functions)})
        staying = task.tests.pass_to_pass
        some = staying[:: max(1, len(staying) // MOST_STAYING)]
        run = await self._run([*task.tests.fail_to_pass, *some], plugin)
        failed = [test for test in task.tests.fail_to_pass if run.outcomes[test] is not Outcome.PASSED]
        if failed:  # watching may disturb a test; then it passes without
            again = await self._run(failed, None)
            still = next((test for test in failed if again.outcomes[test] is not Outcome.PASSED), None)
            if still is not None:
                raise DataError(
                    f"Task {task.id} is invalid: {still} does not pass on its own solution",
                    why=f"It is {again.outcomes[still]}.",
                    mend="Leave the task out: patchgym validate finds all such tasks.",
                )
        passed = {test for test, outcome in run.outcomes.items() if outcome is Outcome.PASSED}
        return recorded_calls(run.beside, passed, left_out)

    async def probes(self, chosen: list[Call], left_out: Counter[str]) -> tuple[Probe, ...]:
        """Probes of recorded calls and of variations of them."""
        known = {json.dumps(call.steps) for call in chosen}
        others: list[tuple[Call, bool]] = []
        sources = [varied(call.steps) for call in chosen if call.boundary or not call.private]
        owners = [call for call in chosen if call.boundary or not call.private]
        for call, (steps, is_mild) in _in_turn(owners, sources):
            text = json.dumps(steps)
            if text not in known and len(others) < MOST_VARIED:
                known.add(text)
                others.append((call._replace(steps=steps, before="", seen=None), is_mild))
        every = [*chosen, *(call for call, _ in others)]
        if not every:
            return ()
        told = await self._told(every)
        names = identifiers(self._objects, self._task.workspace)
        if not preserves(told.gold[0][: len(chosen)], told.rewrite[: len(chosen)]):
            told.rewrite = [None] * len(every)
        found: list[Probe] = []
        for at, call in enumerate(every):
            mild = others[at - len(chosen)][1] if at >= len(chosen) else None
            reason = trustworthy(call, [one[at] for one in told.gold])
            if reason:
                left_out[reason if mild is None else f"variation: {reason}"] += 1
                continue
            found.append(
                decided(call, mild, told.gold[0][at], told.base[at], told.rewrite[at], told.under_test[at], names)
            )
        chosen_ones = kept(found)
        left_out["enough of its kind"] += len(found) - len(chosen_ones)
        return chosen_ones

    async def _told(self, calls: Sequence[Call]) -> "_AllTold":
        task, objects = self._task, self._objects
        gold = without_tests(objects, self._gold, task.tests)
        base = without_tests(objects, task.workspace, task.tests)
        rewrite = self._rewritten(gold)
        steps = [call.steps for call in calls]
        *runs, of_base, of_rewrite, under_test = await _at_most(
            2,
            [
                *[self._ask(gold, steps * GOLD_REPEATS, seed) for seed in GOLD_SEEDS],
                self._ask(base, steps, None),
                self._ask(rewrite, steps, None),
                self._under_test(steps),
            ],
        )
        several = [run[at : at + len(steps)] for run in runs for at in range(0, len(run), len(steps))]
        return _AllTold(several, of_base, of_rewrite, under_test)

    async def _ask(self, tree: str, programs: list[list[JsonValue]], seed: int | None) -> list[Told | None]:
        questions = [question(steps) for steps in programs]
        order = self._rng.sample(questions, len(questions))
        told = await ask(
            self._factory,
            tree,
            self._task.workspace,
            self._task.environment,
            self._built,
            order,
            modules_of(programs),
            seed=seed,
        )
        return [told.get(one.id) for one in questions]

    async def _under_test(self, programs: list[list[JsonValue]]) -> list[Told | None]:
        """What the calls come to in the process of some of the tests."""
        questions = [question(steps) for steps in programs]
        tests = [*self._task.tests.fail_to_pass[:_TESTS_BESIDE], *self._task.tests.pass_to_pass[:_TESTS_BESIDE]]
        argument: dict[str, JsonValue] = {
            "calls": [{"id": one.id, "steps": one.steps} for one in questions],
            "places": [0.0, 0.5, 0.99],
            "seconds": CALL_SECONDS,
        }
        run = await self._run(tests, beside("under_test", self._task.tests, argument))
        told = answers(run.beside, {one.id for one in questions})
        return [told.get(one.id) for one in questions]

    async def _run(self, tests: Sequence[str], plugin: Beside | None) -> TestRun:
        task = self._task
        spec = mounted(sandbox_spec(self._gold, task.environment, self._built, base=task.workspace))
        sandbox = await self._factory.create(spec)
        try:
            limit = task.tests.timeout_s * _RECORDING_SLOWER
            return await run_tests(sandbox, task.environment, tests, timeout_s=limit, beside=plugin)
        finally:
            await sandbox.close()

    def _rewritten(self, tree: str) -> str:
        """The solution with its touched functions written another way."""
        changes: dict[str, Entry | None] = {}
        entries = self._objects.entries(tree)
        for path in {name.partition(":")[0] for name in self._functions}:
            if path not in entries:
                continue
            source = self._objects.get(entries[path].id).decode("utf-8", "surrogateescape")
            names = [name.partition(":")[2] for name in self._functions if name.startswith(path + ":")]
            text = rewritten(source, names)
            changes[path] = Entry(entries[path].mode, self._objects.put(text.encode("utf-8", "surrogateescape")))
        return self._objects.update_tree(tree, changes)


class _AllTold:
    """What every call came to: on the solution (several times), on the workspace as it is, on the rewrite, and on the
    solution under test."""

    def __init__(
        self,
        gold: list[list[Told | None]],
        base: list[Told | None],
        rewrite: list[Told | None],
        under_test: list[Told | None],
    ) -> None:
        self.gold, self.base, self.rewrite, self.under_test = gold, base, rewrite, under_test


def solved_tree(objects: ObjectStore, task: Task) -> str:
    """The workspace with the task's solution and its whole tests.

    Raises:
        PatchError: the gold patch does not apply.
        DataError: the task's trees are not in the store.
    """
    patched = apply_patch(objects, task.workspace, task.gold_patch)
    entries = objects.entries(patched)
    files = {**task.tests.visible_files, **task.tests.hidden_files}
    modes = {path: entries[path].mode if path in entries else _FILE for path in files}
    return objects.update_tree(patched, {path: Entry(modes[path], blob) for path, blob in files.items()})


def modules_of(programs: Iterable[list[JsonValue]]) -> list[str]:
    """The modules that programs name, sorted."""
    found: set[str] = set()
    waiting: list[JsonValue] = [step for steps in programs for step in steps]
    while waiting:
        match waiting.pop():
            case ["g", str(module), str()] | ["m", str(module)]:
                found.add(module)
            case list(parts):
                waiting += parts
            case dict(parts):
                waiting += parts.values()
    return sorted(found)


def _in_turn(owners: Sequence[Call], sources: Sequence[object]) -> Iterable[tuple[Call, tuple[list[JsonValue], bool]]]:
    """One variation of each call after the other, the mild ones of a call first."""
    ordered = [sorted(islice(source, 40), key=lambda one: not one[1]) for source in sources]  # type: ignore[call-overload]
    for turn in range(max(map(len, ordered), default=0)):
        for owner, found in zip(owners, ordered, strict=True):
            if turn < len(found):
                yield owner, found[turn]


async def _at_most(count: int, work: Sequence[Awaitable[list[Told | None]]]) -> list[list[Told | None]]:
    """Run so many at once."""
    slots = asyncio.Semaphore(count)

    async def one(awaited: Awaitable[list[Told | None]]) -> list[Told | None]:
        async with slots:
            return await awaited

    return list(await asyncio.gather(*map(one, work)))
