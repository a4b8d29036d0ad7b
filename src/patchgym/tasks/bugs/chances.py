"""How likely a bug is to become a task, before anything runs.

A bug is a task when at least two test functions fail and not too many tests do. What decides is the operator's kill
rate and, a little, how many test functions pass over the lines that it changes; where more tests do than may fail, how
many of them it leaves alone. The operators' figures are measured (``operators.toml``), and the formula's shape is read
off the same runs: of bugs that are expected to fail as many tests as may fail, half fail more.
"""

from collections.abc import Collection
from dataclasses import dataclass

from patchgym.tasks.bugs.mutation import Mutation
from patchgym.tasks.bugs.operators import traits
from patchgym.tasks.bugs.survey import Survey
from patchgym.testrun import Coverage, function_of

_ALONE, _GAIN, _HALF = 0.9, 0.25, 10.0
_STEEP = 4
_MIDDLING = 0.5


@dataclass(frozen=True)
class Witnesses:
    """The ``tests`` that can notice a bug, and the names of the test ``functions`` that they belong to: bare ones, as
    many classes may take one and the same function over from another."""

    tests: frozenset[str]
    functions: frozenset[str]

    def __or__(self, other: "Witnesses") -> "Witnesses":
        return Witnesses(self.tests | other.tests, self.functions | other.functions)


class Chances:
    """Chances of the bugs of one revision. Where no coverage is known the test functions near a function, by name,
    stand in for the tests that run it."""

    def __init__(self, survey: Survey, coverage: Coverage | None, *, least_functions: int, most_failing: int) -> None:
        """``least_functions`` is how many test functions must be able to notice a bug, ``most_failing`` how many tests
        may fail."""
        self._survey, self._coverage = survey, coverage
        self._least, self._most = least_functions, most_failing
        self._known: dict[tuple[str, range], Witnesses] = {}

    def witnesses(self, path: str, function: str, lines: range) -> Witnesses:
        """The tests that can notice a bug on ``lines`` of ``path`` in ``function`` (a qualified name)."""
        if self._coverage is None:
            near = self._survey.tests_near(f"{path}:{function}")
            return Witnesses(near, near)
        if (path, lines) not in self._known:
            tests = self._coverage.tests(path, lines)
            functions = frozenset(function_of(test)[1].rpartition(".")[2] for test in tests)
            self._known[path, lines] = Witnesses(tests, functions)
        return self._known[path, lines]

    def of(self, path: str, mutation: Mutation) -> float:
        """Between 0 and 1; 0 where too few test functions can notice it."""
        return self.seen_by(self.witnesses(path, mutation.function, mutation.lines), [mutation.operator])

    def seen_by(self, found: Witnesses, operators: Collection[str]) -> float:
        """The chance of a bug made by all of ``operators`` at once under these witnesses: each of them may show."""
        if len(found.functions) < self._least:
            return 0.0
        survives, quiet = 1.0, 1.0
        for operator in operators:
            survives *= 1.0 - kill_rate(operator)
            quiet *= _MIDDLING if (known := subtlety(operator)) is None else known
        spare = len(found.functions) - self._least
        noticed = min(1.0, (1.0 - survives) * (_ALONE + _GAIN * spare / (spare + _HALF)))
        if len(found.tests) <= self._most:
            return noticed
        return noticed / (1.0 + ((1.0 - quiet) * len(found.tests) / self._most) ** _STEEP)


def kill_rate(operator: str) -> float:
    """The share of an operator's bugs that fail at least two test functions; a middling one where it is not known."""
    known = traits().get(operator)
    return known.kill if known is not None else _MIDDLING


def subtlety(operator: str) -> float | None:
    """How hard an operator's bugs are to see, 0 to 1; None where it is not known."""
    known = traits().get(operator)
    return known.subtle if known is not None else None
