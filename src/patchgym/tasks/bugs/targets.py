"""Where to plant bugs, and in which order: by static analysis and coverage, not at random.

Functions are ranked by how much there is to them and by how likely a bug in them becomes a task. The plan goes round
them; each function gives its best bug of those left, and an operator counts for less the more of the plan it has. Bugs
with a good chance come first, whatever function they are in.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

from pydantic import Field

from patchgym.config import Settings
from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.tasks.bugs.bug import Bug
from patchgym.tasks.bugs.chances import Chances, Witnesses
from patchgym.tasks.bugs.make import Source, combined, removed, single
from patchgym.tasks.bugs.mutation import Mutation, makes_bug, proposals
from patchgym.tasks.bugs.operators import OPERATORS, REMOVAL
from patchgym.tasks.bugs.survey import FunctionFacts, survey
from patchgym.tasks.sources.candidates import text_of
from patchgym.tasks.sources.project import Revision
from patchgym.testrun import Coverage

_CROWDED = 10.0
_SAME_LINE = 0.5
_TIERS = (0.6, 0.4, 0.2, 0.0)
_LEAST_LARGE = 0.4


class PlanSettings(Settings):
    """What to plan.

    ``operators`` (none: all) are those for single bugs. ``max_function_lines`` bounds the functions (0: any length),
    ``per_function`` the single bugs of each. ``least_test_functions`` is how many test functions must run the changed
    lines; bugs that would fail more than ``most_failing_tests`` tests come late. ``removals`` and ``combined`` are the
    shares of the plan that are functions without a body and two or three bugs at once.
    """

    operators: tuple[str, ...] = ()
    max_function_lines: int = Field(default=80, ge=0)
    per_function: int = Field(default=4, ge=1)
    least_test_functions: int = Field(default=2, ge=1)
    most_failing_tests: int = Field(default=40, ge=1)
    removals: float = Field(default=0.08, ge=0.0, le=0.5)
    combined: float = Field(default=0.12, ge=0.0, le=0.5)


def plan(
    revision: Revision, objects: ObjectStore, coverage: Coverage | None, settings: PlanSettings, seed: int
) -> Iterator[Bug]:
    """Bugs to plant in a revision, in the order in which they are best tried, so that most of the first become tasks.

    The analysis is done at once, each bug is made when it is asked for. With ``coverage`` there is none that fewer than
    ``least_test_functions`` test functions can notice; without it, tests that mention a function or one of its callers
    stand in for those that run it. The same arguments give the same plan. Nothing is written.

    Raises:
        DataError: there is no operator of a name in ``settings``.
    """
    proposals("", settings.operators)  # names are checked even where there is no source
    planner = _Planner(revision, objects, coverage, settings, seed)
    return planner.bugs()


@dataclass
class _Target:
    """A function and the bugs that are left for it, each with its chance."""

    facts: FunctionFacts
    source: Source
    waiting: list[tuple[float, Mutation]]
    removal: tuple[float, Mutation] | None = None
    weight: float = 0.0
    given: int = 0
    lines: Counter[int] = field(default_factory=Counter)

    @property
    def best(self) -> float:
        return max((chance for chance, _ in self.waiting), default=0.0)

    @property
    def operator(self) -> str:
        """That of the bug with the best chance."""
        return max(self.waiting, key=lambda each: each[0])[1].operator

    def take(self, used: Mapping[str, int], planned: int, least: float = 0.0) -> Mutation | None:
        """The best bug that is left with at least that chance; it leaves the list, and so do those that turn out to be
        none."""
        while self.waiting:
            values = [
                self._value(chance, found, used, planned) if chance >= least else -1.0 for chance, found in self.waiting
            ]
            if max(values) < 0:
                return None
            _, found = self.waiting.pop(values.index(max(values)))
            if makes_bug(self.source.data, found):
                self.lines[found.line] += 1
                self.given += 1
                return found
        return None

    def _value(self, chance: float, found: Mutation, used: Mapping[str, int], planned: int) -> float:
        share = used.get(found.operator, 0) / (planned + 1)
        return chance * _SAME_LINE ** self.lines[found.line] / (1.0 + _CROWDED * share)


class _Planner:
    """One plan under way."""

    def __init__(
        self, revision: Revision, objects: ObjectStore, coverage: Coverage | None, settings: PlanSettings, seed: int
    ) -> None:
        project, entries = revision.project, sorted(objects.entries(revision.tree).items())
        texts = {path: text_of(objects, entry) for path, entry in entries if path.endswith(".py")}
        sources = {path: text for path, text in texts.items() if project.is_source(path)}
        tests = {path: text for path, text in texts.items() if project.is_test(path)}
        self._package, self._settings, self._seed = revision.name, settings, seed
        self._survey = survey(sources, tests)
        self._chances = Chances(
            self._survey,
            coverage,
            least_functions=settings.least_test_functions,
            most_failing=settings.most_failing_tests,
        )
        self._used: Counter[str] = Counter()
        self._planned = 0
        self._seen: dict[str, Witnesses] = {}
        self._targets = self._find(sources)

    def _find(self, sources: Mapping[str, str]) -> list[_Target]:
        """Every function that has a bug with a chance, the best first."""
        found: dict[str, _Target] = {}
        for path, text in sources.items():
            for mutation in self._proposed(text):
                facts = self._survey.functions.get(f"{path}:{mutation.function}")
                chance = self._chances.of(path, mutation)
                if facts is None or mutation.line not in facts.lines or chance <= 0:
                    continue
                target = found.get(facts.key)
                if target is None:
                    target = found[facts.key] = _Target(facts, Source(path, text), [])
                if mutation.operator == REMOVAL.name:
                    target.removal = (chance, mutation)
                else:
                    target.waiting.append((chance, mutation))
        draw = random.Random(f"{self._seed}/{self._package}")
        for key in sorted(found):
            target, jitter = found[key], draw.uniform(0.8, 1.2)
            draw.shuffle(target.waiting)  # among equals the seed decides
            target.weight = jitter * target.best * (0.4 + 0.6 * self._interest(target.facts))
        return sorted(found.values(), key=lambda target: (-target.weight, target.facts.key))

    def _proposed(self, text: str) -> list[Mutation]:
        wanted = [*(self._settings.operators or OPERATORS), *([REMOVAL.name] if self._settings.removals else [])]
        try:
            return proposals(text, wanted, max_function_lines=self._settings.max_function_lines)
        except DataError:  # a template, or code for another Python
            return []

    def _interest(self, facts: FunctionFacts) -> float:
        """How much there is to a function, 0 to 1: branches, length, nesting, callers, and whether users see it."""
        callers = len(self._survey.callers(facts.key))
        parts = (
            (2.0, _saturated(facts.complexity - 1, 4)),
            (1.0, _saturated(len(facts.lines), 20)),
            (1.0, _saturated(facts.nesting, 2)),
            (1.0, _saturated(callers, 2)),
            (1.0, 1.0 if facts.public else 0.0),
        )
        return sum(weight * value for weight, value in parts) / sum(weight for weight, _ in parts)

    def bugs(self) -> Iterator[Bug]:
        """The three kinds in their shares; where one has no more, the others go on."""
        shares = {"combined": self._settings.combined, "removal": self._settings.removals}
        kinds = {"mutation": self._singles(), "combined": self._combinations(), "removal": self._removals()}
        made: Counter[str] = Counter()
        while kinds:
            due = [kind for kind in shares if kind in kinds and made[kind] + 1 <= shares[kind] * (self._planned + 1)]
            kind = due[0] if due else "mutation" if "mutation" in kinds else next(iter(kinds))
            if kind != "mutation" and not due and shares[kind] == 0:
                del kinds[kind]
                continue
            bug = next(kinds[kind], None)
            if bug is None:
                del kinds[kind]
                continue
            made[kind] += 1
            self._planned += 1
            self._used.update(bug.operators)
            yield bug

    def _singles(self) -> Iterator[Bug]:
        for least in _TIERS:
            for _ in range(self._settings.per_function):
                for target in self._targets:
                    if target.given < self._settings.per_function and target.best >= least:
                        found = target.take(self._used, self._planned, least)
                        if found is not None:
                            yield single(target.source, found, target.facts, self._survey)

    def _removals(self) -> Iterator[Bug]:
        """Those with a fair chance, the best first: most functions are run by more tests than may fail."""
        having = [(*target.removal, target) for target in self._targets if target.removal]
        found = [(chance, target, body) for chance, body, target in having if chance >= _LEAST_LARGE]
        found.sort(key=lambda each: -each[0] * (0.4 + 0.6 * self._interest(each[1].facts)))
        for _, target, body in found:
            if makes_bug(target.source.data, body):
                yield removed(target.source, body, target.facts, self._survey, self._package, str(self._seed))

    def _combinations(self) -> Iterator[Bug]:
        """Each function with the one or two that have most to do with it, every third time with two."""
        for at, target in enumerate(self._targets):
            if target.best < _LEAST_LARGE:
                continue
            group = [target]
            for other in self._relatives(target):
                if len(group) < (3 if at % 3 == 2 else 2) and not any(
                    _nested(other.facts, each.facts) for each in group
                ):
                    group.append(other)
            seen = reduce(or_, (self._seen_by(each) for each in group))
            if len(group) == 1 or self._chances.seen_by(seen, [each.operator for each in group]) < _LEAST_LARGE:
                continue
            parts = [(each, each.take(self._used, self._planned, _LEAST_LARGE)) for each in group]
            whole = [(each.source, found, each.facts) for each, found in parts if found is not None]
            if len(whole) > 1:
                yield combined(whole, self._survey)

    def _relatives(self, target: _Target) -> list[_Target]:
        """Other functions that still have bugs, of which one calls the other or that the same tests run, those in other
        files first."""
        mine = self._seen_by(target).functions
        found: list[tuple[bool, float, str, _Target]] = []
        for other in self._targets:
            if other is target or other.best < _LEAST_LARGE:
                continue
            theirs = self._seen_by(other).functions
            shared = len(mine & theirs) / len(mine | theirs) if mine | theirs else 0.0
            if self._survey.related(target.facts.key, other.facts.key) or shared >= 0.3:
                found.append((other.facts.path == target.facts.path, -shared, other.facts.key, other))
        return [other for *_, other in sorted(found, key=lambda each: each[:3])]

    def _seen_by(self, target: _Target) -> Witnesses:
        facts = target.facts
        if facts.key not in self._seen:
            self._seen[facts.key] = self._chances.witnesses(facts.path, facts.name, facts.lines)
        return self._seen[facts.key]


def _nested(one: FunctionFacts, other: FunctionFacts) -> bool:
    """Whether one function lies in the other."""
    return one.path == other.path and (one.name.startswith(f"{other.name}.") or other.name.startswith(f"{one.name}."))


def _saturated(count: int, half: int) -> float:
    """Between 0 and 1, 0.5 at ``half``."""
    return max(count, 0) / (max(count, 0) + half)
