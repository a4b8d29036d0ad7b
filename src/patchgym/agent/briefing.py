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
from patchgym.records import Outcome, TaskView, VersionedRecord
from patchgym.sandbox import Sandbox
from patchgym.testrun import Coverage, run_tests

_WIDTH = 160
_RANKED = 100


class Ranking(VersionedRecord):
    """Places of a workspace's sources, as paths and line numbers, most likely wrong first. It holds no text: that is
    taken from the workspace."""

    places: tuple[tuple[str, int], ...]


async def brief(sandbox: Sandbox, view: TaskView, objects: ObjectStore, lines: int) -> str:
    """The ``lines`` lines of the sources that are most likely wrong, likeliest first and with their numbers, as a text
    for the agent; empty where nothing can be told. The sandbox must have coverage.py at its place
    (``patchgym.testrun.sandbox_spec``).

    Raises:
        SandboxError: the sandbox was lost.
    """
    ranking = await rank(sandbox, view, objects)
    return shown(ranking, view, objects, lines) if ranking is not None else ""


async def rank(sandbox: Sandbox, view: TaskView, objects: ObjectStore) -> Ranking | None:
    """The places that failing tests run, ranked; of many the first 100. None where the tests did not come to their end,
    which another run may do.

    Raises:
        SandboxError: the sandbox was lost.
    """
    entries = objects.entries(view.workspace)
    sources = [path for path in entries if path.endswith(".py") and path not in view.test_files]
    files = sorted({test.partition("::")[0] for test in view.failing_tests})
    if not files or not sources:
        return Ranking(places=())
    run = await run_tests(sandbox, view.environment, (), timeout_s=view.test_timeout_s, cover=sources, files=files)
    if run.coverage is None:
        return None
    passed = {test for test, outcome in run.outcomes.items() if outcome is Outcome.PASSED}
    ranked = _ranked(run.coverage, frozenset(view.failing_tests), passed)
    return Ranking(places=tuple((path, line) for path, line in ranked if path in entries)[:_RANKED])


def shown(ranking: Ranking, view: TaskView, objects: ObjectStore, lines: int) -> str:
    """The first ``lines`` places of a ranking of the task's workspace with what stands there, in its order: what is
    listed first is the likeliest, and says so to who reads no scores."""
    entries = objects.entries(view.workspace)
    worst = [place for place in ranking.places[:lines] if place[0] in entries]
    texts = {path: objects.get(entries[path].id).decode("utf-8", "backslashreplace").split("\n") for path, _ in worst}
    return _shown(worst, texts)


def tells(text: str, path: str, line: int) -> bool:
    """Whether a text tells of a line, in the form that ``shown`` gives it."""
    here = False
    for one in text.splitlines():
        number = one.partition(": ")[0]
        if one == f"{path}:":
            here = True
        elif here and number == str(line):
            return True
        elif not number.isdecimal():
            here = False
    return False


def suspicious(
    coverage: Coverage, failing: Collection[str], passing: Collection[str], lines: int
) -> list[tuple[str, int]]:
    """The ``lines`` most suspicious places, as paths and line numbers in the order of the files. With ``f`` of the
    ``F`` failing tests and ``p`` passing ones that run it, a line scores ``f / sqrt(F * (f + p))``."""
    return sorted(_ranked(coverage, failing, passing)[:lines])


def _ranked(coverage: Coverage, failing: Collection[str], passing: Collection[str]) -> list[tuple[str, int]]:
    """All places that failing tests run, most suspicious first."""
    scores: dict[tuple[str, int], float] = {}
    for path, ran in coverage.lines.items():
        for line, tests in ran.items():
            failed = len(tests.intersection(failing))
            if failed:
                passed = len(tests.intersection(passing))
                scores[path, line] = failed / math.sqrt(len(failing) * (failed + passed))
    return sorted(scores, key=lambda place: (-scores[place], place))


def _shown(worst: Collection[tuple[str, int]], texts: Mapping[str, list[str]]) -> str:
    parts = []
    for path, places in groupby(worst, key=itemgetter(0)):
        parts.append(f"{path}:")
        parts += [f"{line}: {texts[path][line - 1][:_WIDTH]}" for _, line in places if 1 <= line <= len(texts[path])]
    return "\n".join(parts)
