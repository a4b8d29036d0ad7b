"""What a run of a whole suite says of its environment: healthy, or what it lacks."""

import re
from collections import Counter
from collections.abc import Mapping

from patchgym.errors import BuildFailure
from patchgym.records import Outcome
from patchgym.tasks.sources.names import known_names
from patchgym.tasks.sources.project import Project
from patchgym.testrun import TestRun

_MISSING = re.compile(r"(?:ModuleNotFoundError|ImportError): No module named ['\"]?([A-Za-z_][\w.]*)")
# In the order in which they count: a text may say several.
_WORDS = (
    (
        BuildFailure.NEEDS_NETWORK,
        r"Network is unreachable|Name or service not known|name resolution|getaddrinfo failed|No route to host"
        r"|NameResolutionError|Max retries exceeded",
    ),
    (BuildFailure.MISSING_SYSTEM_LIBRARY, r"cannot open shared object file|error while loading shared libraries"),
    (
        BuildFailure.PYTHON_VERSION,
        r"SyntaxError|cannot import name '\w+' from 'collections'|module 'collections' has no attribute"
        r"|module 'inspect' has no attribute 'getargspec'|has no attribute 'assertEquals'|requires Python",
    ),
)
_BAD = (Outcome.FAILED, Outcome.ERROR)


def missing_modules(run: TestRun, project: Project) -> tuple[str, ...]:
    """Top-level modules that were missing when tests were collected, sorted: none of the code base's own, and none that
    Python itself once had."""
    own = own_modules(project)
    found = {name.partition(".")[0] for text in _collection(run) for name in _MISSING.findall(text)}
    return tuple(sorted(found - own - known_names().departed))


def suite_failure(
    run: TestRun, project: Project, paths: Mapping[str, object], min_passing: float
) -> BuildFailure | None:
    """None where the suite came to its end and at least ``min_passing`` of its tests passed (skipped ones count
    neither way, a file that cannot be collected counts as one); else what most of its failures say. ``paths`` are the
    tree's files."""
    if run.process.timed_out:
        return BuildFailure.SUITE_HANGS
    outcomes = Counter(run.outcomes.values())
    uncollected = [text for place, text in run.failures.items() if place not in run.outcomes]
    bad = sum(outcomes[each] for each in _BAD) + len(uncollected)
    good = outcomes[Outcome.PASSED]
    if run.complete and good and good >= min_passing * (good + bad):
        return None
    texts = list(run.failures.values())
    if not run.outcomes and not texts:
        said = _told(run.log, project, paths)
        return said or (BuildFailure.NO_TESTS if run.complete else BuildFailure.SUITE_FAILS)
    told = Counter(_told(text, project, paths) or BuildFailure.SUITE_FAILS for text in texts)
    if not told:
        return BuildFailure.SUITE_FAILS if bad or not run.complete else BuildFailure.NO_TESTS
    return max(told, key=lambda kind: (told[kind], kind != BuildFailure.SUITE_FAILS, kind.value))


def own_modules(project: Project) -> frozenset[str]:
    """The top-level modules that a code base consists of, and those of its tests."""
    names = set()
    for place in (*project.sources, *project.tests):
        for root in project.pythonpath:
            inside = place.removeprefix(f"{root}/") if root else place
            names.add(inside.partition("/")[0].removesuffix(".py"))
    return frozenset(names)


def _collection(run: TestRun) -> list[str]:
    """What was said of files that could not be collected; of a conftest that fails, pytest says it in its output."""
    texts = [text for place, text in run.failures.items() if place not in run.outcomes]
    return texts if run.outcomes or texts else [run.log]


def _told(text: str, project: Project, paths: Mapping[str, object]) -> BuildFailure | None:
    missing = _MISSING.findall(text)
    for name in missing:
        if name.partition(".")[0] in known_names().departed:
            return BuildFailure.PYTHON_VERSION
        if name.partition(".")[0] in own_modules(project) and _is_compiled(name, paths):
            return BuildFailure.COMPILER
    for kind, words in _WORDS:
        if re.search(words, text):
            return kind
    return BuildFailure.MISSING_MODULE if missing else None


def _is_compiled(module: str, paths: Mapping[str, object]) -> bool:
    """Whether a module is to be made from a file in another language."""
    stem = re.escape(module.rpartition(".")[2].lstrip("_"))
    pattern = re.compile(rf"(?:.*/)?_?{stem}(?:module)?\.(?:pyx|pxd|c|cc|cpp|cxx|rs|f90|f)")
    return any(pattern.fullmatch(path) for path in paths) or any(path.endswith("Cargo.toml") for path in paths)
