"""Which tests ran which lines of a workspace."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from patchgym.records import Environment


@dataclass(frozen=True)
class Coverage:
    """What one healthy run of a whole suite showed: ``lines`` maps a workspace path to its lines (from 1) and those to
    the ids of the tests that ran them. Lines that run on import belong to no test. ``unwatched`` are tests that
    watching disturbs, or that start other processes: they may run any line."""

    lines: Mapping[str, Mapping[int, frozenset[str]]]
    unwatched: frozenset[str] = frozenset()

    def tests(self, path: str, lines: Iterable[int]) -> frozenset[str]:
        """The tests that ran any of ``lines`` of ``path``."""
        known = self.lines.get(path, {})
        return frozenset().union(*(known.get(line, frozenset()) for line in lines))

    def only(self, tests: frozenset[str], unwatched: frozenset[str]) -> "Coverage":
        """What it says of ``tests``, with more that may run any line."""
        lines = {path: {line: ran & tests for line, ran in lines.items()} for path, lines in self.lines.items()}
        return Coverage(lines, unwatched | (self.unwatched & tests))


def coverage_tool(environment: Environment, build: Callable[[Environment], Path]) -> Path:
    """The folder that coverage.py is imported from, for the Python of ``environment``. It is an environment of its own:
    what the tests can import does not change. Blocking.

    Raises:
        EnvironmentBuildError, OfflineError, PrerequisiteError, StorageError: as ``build``.
    """
    lock = resources.files("patchgym.testrun").joinpath("coverage.txt").read_text(encoding="utf-8")
    built = build(Environment(python=environment.python, lock=lock))
    return next((built / "lib").glob("python*/site-packages"))
