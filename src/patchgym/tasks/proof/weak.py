"""How weak a task's tests are: bugs are planted in its solution, and those that no test notices are counted."""

import asyncio
import random
from collections import Counter
from functools import lru_cache
from itertools import islice

from patchgym.content import Entry, ObjectStore
from patchgym.errors import DataError
from patchgym.records import MutantScore, Task
from patchgym.tasks.bugs.mutation import Mutation, makes_bug, plant, proposals
from patchgym.tasks.proof.bench import Bench, together
from patchgym.tasks.proof.focus import touched_lines
from patchgym.tasks.proof.healthy import Healthy


async def mutant_score(task: Task, bench: Bench, broken: str, healthy: str, suite: Healthy, most: int) -> MutantScore:
    """Plant up to ``most`` bugs, one at a time, in the statements of ``healthy`` (the tree with the task's solution)
    that ``broken`` lacks, else in the functions around them, and run the tests that pass over each. One that none
    passes over survives unseen. Time-outs and crashes count as noticed. Which bugs are planted depends on the task
    alone.

    Raises:
        SandboxError: a sandbox was lost.
    """
    planted = await asyncio.to_thread(_plan, task, bench.objects, broken, healthy, most)
    noticed = await together(_noticed(task, bench, healthy, suite, path, found) for path, found in planted)
    return MutantScore(killed=sum(noticed), survived=len(noticed) - sum(noticed))


async def _noticed(task: Task, bench: Bench, healthy: str, suite: Healthy, path: str, found: Mutation) -> bool:
    deciding = {*task.tests.fail_to_pass, *task.tests.pass_to_pass}
    seen = suite.coverage
    over = deciding if seen is None else deciding & (seen.tests(path, found.lines) | seen.unwatched)
    if not over:
        return False
    objects = bench.objects
    entry = objects.entries(healthy)[path]
    text = plant(objects.get(entry.id).decode(), found)
    tree = objects.update_tree(healthy, {path: Entry(entry.mode, objects.put(text.encode()))})
    patience = suite.patience(task.tests.timeout_s)
    run = await bench.run(tree, task.environment, sorted(over), timeout_s=patience, base=healthy, until_failure=True)
    return not run.complete or any(outcome.failing for outcome in run.outcomes.values())


def _plan(task: Task, objects: ObjectStore, broken: str, healthy: str, most: int) -> list[tuple[str, Mutation]]:
    """Bugs in what the solution brings, as different as can be; then in the rest of the functions that it touches."""
    sources: dict[str, bytes] = {}
    near: list[tuple[str, Mutation]] = []
    around: list[tuple[str, Mutation]] = []
    for path in task.key_files:
        if not path.endswith(".py") or path not in objects.entries(healthy):
            continue
        old, new = (objects.entries(tree).get(path) for tree in (broken, healthy))
        assert new is not None
        try:
            texts = [objects.get(side.id).decode() if side else "" for side in (old, new)]
            proposed = _proposed(texts[1])
        except (DataError, UnicodeDecodeError):
            continue
        sources[path] = texts[1].encode()
        lines = touched_lines(*texts)
        inside = {found.function for found in proposed if lines & set(found.lines)}
        for found in proposed:
            if lines & set(found.lines):
                near.append((path, found))
            elif found.function in inside:
                around.append((path, found))
    draw = random.Random(f"mutants/{task.id}")
    chosen: list[tuple[str, Mutation]] = []
    for group in (near, around):
        draw.shuffle(group)
        bugs = (each for each in _operators_in_turn(group) if makes_bug(sources[each[0]], each[1]))
        chosen += islice(bugs, most - len(chosen))
    return chosen


@lru_cache(maxsize=16)
def _proposed(source: str) -> tuple[Mutation, ...]:
    """What could be planted in a source: many tasks have the same one."""
    return tuple(proposals(source))


def _operators_in_turn(group: list[tuple[str, Mutation]]) -> list[tuple[str, Mutation]]:
    """The first of every operator, then the second of every operator, and so on."""
    given: Counter[str] = Counter()
    ranked: list[tuple[int, tuple[str, Mutation]]] = []
    for each in group:
        ranked.append((given[each[1].operator], each))
        given[each[1].operator] += 1
    return [each for _, each in sorted(ranked, key=lambda pair: pair[0])]
