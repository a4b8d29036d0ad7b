"""What an agent is told beforehand about where to look: the lines that failing tests run and passing ones seldom do.

It takes what the agent could find out by itself with the tests that it can see: one run of their files, watched line
by line, on the workspace as it is given. Lines are ranked as spectrum-based fault localisation does, by Ochiai's
coefficient (Abreu, Zoeteweij, van Gemund: On the accuracy of spectrum-based fault localization, 2007).
"""

import math
from collections.abc import Collection, Mapping
from itertools import groupby
from operator import itemgetter

from patchgym.content import ObjectStore
from patchgym.records import Outcome, TaskView
from patchgym.sandbox import Sandbox
from patchgym.testrun import Coverage, run_tests

_WIDTH = 160


async def brief(sandbox: Sandbox, view: TaskView, objects: ObjectStore, lines: int) -> str:
    """The ``lines`` lines of the sources that are most likely wrong, with their numbers, as a text for the agent; empty
    where nothing can be told. The sandbox must have coverage.py at its place (``patchgym.testrun.sandbox_spec``).

    Raises:
        SandboxError: the sandbox was lost.
    """
    entries = objects.entries(view.workspace)
    sources = [path for path in entries if path.endswith(".py") and path not in view.test_files]
    files = sorted({test.partition("::")[0] for test in view.failing_tests})
    if not files or not sources:
        return ""
    run = await run_tests(sandbox, view.environment, (), timeout_s=view.test_timeout_s, cover=sources, files=files)
    if run.coverage is None:
        return ""
    passed = {test for test, outcome in run.outcomes.items() if outcome is Outcome.PASSED}
    worst = suspicious(run.coverage, frozenset(view.failing_tests), passed, lines)
    texts = {path: objects.get(entries[path].id).decode("utf-8", "backslashreplace").split("\n") for path, _ in worst}
    return _shown(worst, texts)


def suspicious(
    coverage: Coverage, failing: Collection[str], passing: Collection[str], lines: int
) -> list[tuple[str, int]]:
    """The ``lines`` most suspicious places, as paths and line numbers in the order of the files. With ``f`` of the
    ``F`` failing tests and ``p`` passing ones that run it, a line scores ``f / sqrt(F * (f + p))``."""
    scores: dict[tuple[str, int], float] = {}
    for path, ran in coverage.lines.items():
        for line, tests in ran.items():
            failed = len(tests.intersection(failing))
            if failed:
                passed = len(tests.intersection(passing))
                scores[path, line] = failed / math.sqrt(len(failing) * (failed + passed))
    ranked = sorted(scores, key=lambda place: (-scores[place], place))
    return sorted(ranked[:lines])


def _shown(worst: Collection[tuple[str, int]], texts: Mapping[str, list[str]]) -> str:
    parts = []
    for path, places in groupby(worst, key=itemgetter(0)):
        parts.append(f"{path}:")
        parts += [f"{line}: {texts[path][line - 1][:_WIDTH]}" for _, line in places if line <= len(texts[path])]
    return "\n".join(parts)
