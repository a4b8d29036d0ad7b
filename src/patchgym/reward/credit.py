"""Process reward by rules: what each step did for the attempt, from the record alone.

A rule pays or costs a *weight*: the first look into a file that the solution touches, the first change of it, a test
that is seen to pass after it was seen to fail; a test that is broken, a call that came to nothing, a submission with
failing tests at hand. Nothing pays twice: a file is found once, a test fixed once, so that no loop of breaking and
mending, or of reading again, is worth anything.

The credits of a trajectory add up to a number between ``-bound`` and ``bound`` whatever its length. With S the sum of
the weights so far, a step is credited ``level(S after it) - level(S before it)``, where ``level(S) = bound * tanh(S)``:
the differences add up to the last level. It is the shape of potential-based shaping (Ng, Harada and Russell, 1999),
with the attempt's history as the state. Levels are cut to multiples of 2**-30, so that floats add up exactly.

What the record does not say is not measured and credits nothing: an imported log without states can have no step that
is repeated in one state, and without key files nothing is located.
"""

import math
import re
from collections.abc import Collection, Iterable, Sequence

from pydantic import Field, JsonValue

from patchgym.config import Settings
from patchgym.records import Action, Outcome, Record, Step

_GRAIN = 2.0**30
_SUBMIT = "submit"
_LISTING = re.compile(r"\s*(?:ls|find|stat|test|touch|rm|git status)\b")
_PATH_ARGUMENTS = ("path", "file_path", "filename")
_TEXT_ARGUMENTS = frozenset({"new", "content", "new_string", "new_str", "file_text"})


class CreditSettings(Settings):
    """``bound``: the most, and the least, that a trajectory's credits add up to. The others are weights: of the first
    look at a key file and the first change of one (shared between the key files), of fixing every test that was seen
    to fail (shared between them), of the first test run after a change that shows nothing broken; and what is taken
    for a test run that shows something broken, for a call that came to nothing, for submitting with failing tests."""

    bound: float = Field(0.1, ge=0.0, le=1.0)
    located: float = Field(0.2, ge=0.0)
    edited: float = Field(0.2, ge=0.0)
    fixed: float = Field(0.6, ge=0.0)
    kept: float = Field(0.05, ge=0.0)
    broken: float = Field(0.3, ge=0.0)
    wasted: float = Field(0.05, ge=0.0)
    submitted_failing: float = Field(0.3, ge=0.0)


class Rule(Record):
    """One rule that applied to a step."""

    name: str
    """``located``, ``edited``, ``fixed``, ``kept``, ``broken``, ``wasted``, ``submitted_failing``."""
    weight: float
    """What it added to the sum of weights."""
    why: str
    """The reason, in words."""


class StepCredit(Record):
    """What one step is credited with."""

    index: int
    """The step's index."""
    value: float
    """Its share of the bounded sum."""
    rules: tuple[Rule, ...] = ()
    """What applied to it; of none, the credit is 0."""


class Ledger:
    """What is known of an attempt, step by step. ``key_files`` are the paths that the solution touches; None where
    nobody knows or nobody may ask: then no file pays."""

    def __init__(self, key_files: Collection[str] | None = None, settings: CreditSettings | None = None) -> None:
        self.settings = settings or CreditSettings()
        self.outcomes: dict[str, bool] = {}
        """Of each test that was run: whether it passed when it last was."""
        self.total = 0.0
        """The sum of weights so far."""
        self._keys = frozenset(key_files or ())
        self._located: set[str] = set()
        self._edited: set[str] = set()
        self._ever_failed: set[str] = set()
        self._ever_fixed: set[str] = set()
        self._done: set[tuple[str, str]] = set()
        self._last: tuple[str, str] | None = None
        self._changed = self._kept = False

    @property
    def failing(self) -> int:
        """How many tests failed when they last were run."""
        return sum(not passed for passed in self.outcomes.values())

    def take(self, step: Step) -> StepCredit:
        """Enter the next step; what it is credited with."""
        rules = [*self._waste(step), *self._files(step), *self._tests(step), *self._submission(step)]
        before = self._level()
        self.total += sum(rule.weight for rule in rules)
        return StepCredit(index=step.index, value=self._level() - before, rules=tuple(rules))

    def _level(self) -> float:
        return math.trunc(self.settings.bound * math.tanh(self.total) * _GRAIN) / _GRAIN

    def _waste(self, step: Step) -> list[Rule]:
        """At most one reason why the step came to nothing."""
        why = ""
        if step.action is None:
            why = "no action could be read" if step.parse_error is not None else ""
        else:
            said = acted(step.action)
            seen = step.observation.shown if step.observation is not None else ""
            if step.observation is not None and step.observation.ok is False:
                why = "it could not be done"
            elif step.state_before is not None and (step.state_before, said) in self._done:
                why = "the same was done before in the same state"
            elif step.state_before is None and self._last == (said, seen):
                why = "the same as the step before, with the same answer"
            if step.state_before is not None:
                self._done.add((step.state_before, said))
            self._last = (said, seen)
        return [Rule(name="wasted", weight=-self.settings.wasted, why=why)] if why else []

    def _files(self, step: Step) -> list[Rule]:
        rules = []
        touched = changed(step)
        self._changed |= bool(touched)
        looked = self._looked_at(step) - self._located
        edited = (touched & self._keys) - self._edited
        for name, paths, weight in (
            ("located", looked | (edited - self._located), self.settings.located),
            ("edited", edited, self.settings.edited),
        ):
            if paths:
                why = f"{', '.join(sorted(paths))} for the first time"
                rules.append(Rule(name=name, weight=weight * len(paths) / len(self._keys), why=why))
        self._located |= looked | edited
        self._edited |= edited
        return rules

    def _looked_at(self, step: Step) -> set[str]:
        """Key files whose text the step asked for, or that a search found something in. A list of names is no look."""
        if step.action is None or (step.observation is not None and step.observation.ok is False):
            return set()
        words = " ".join(_strings(step.action.arguments))
        shown = step.observation.shown if step.observation is not None else ""
        found = set()
        for path in self._keys:
            quoted = re.escape(path)
            named = re.search(rf"(?:^|[\s'\"=])(?:\./|/(?:\S*/)?)?{quoted}(?![\w/-])", words) is not None
            hit = path in shown and re.search(rf"^(?:\./)?{quoted}[:-]\d+[:-]", shown, re.MULTILINE) is not None
            if hit or (named and not _only_listed(step.action)):
                found.add(path)
        return found

    def _tests(self, step: Step) -> list[Rule]:
        tests = step.observation.tests if step.observation is not None else None
        if not tests:
            return []
        settings, rules = self.settings, []
        passed = {test for test, outcome in tests.items() if outcome is Outcome.PASSED}
        failed = {test for test, outcome in tests.items() if outcome.failing}
        fixed = (passed & self._ever_failed) - self._ever_fixed
        broken = {test for test in failed if self.outcomes.get(test)}
        self._ever_failed |= failed
        self._ever_fixed |= fixed
        if fixed:
            weight = settings.fixed * len(fixed) / len(self._ever_failed)
            rules.append(Rule(name="fixed", weight=weight, why=f"{len(fixed)} failing tests pass now"))
        if broken:
            weight = -settings.broken
            rules.append(Rule(name="broken", weight=weight, why=f"{len(broken)} tests that passed fail now"))
        elif self._changed and not self._kept and (kept := sum(bool(self.outcomes.get(test)) for test in passed)):
            rules.append(Rule(name="kept", weight=settings.kept, why=f"{kept} tests still pass after a change"))
            self._kept = True
        self.outcomes |= dict.fromkeys(passed, True) | dict.fromkeys(failed, False)
        return rules

    def _submission(self, step: Step) -> list[Rule]:
        if step.action is None or step.action.tool != _SUBMIT or not self.failing:
            return []
        why = f"submitted although {self.failing} tests failed when last run"
        return [Rule(name="submitted_failing", weight=-self.settings.submitted_failing, why=why)]


def step_credits(
    steps: Sequence[Step], key_files: Collection[str] | None = None, settings: CreditSettings | None = None
) -> list[StepCredit]:
    """The credit of every step of one trajectory (or of one path of a search tree), in order. Their values add up to
    a number between ``-settings.bound`` and ``settings.bound``."""
    ledger = Ledger(key_files, settings)
    return [ledger.take(step) for step in steps]


def changed(step: Step) -> set[str]:
    """The paths that a step changed; where the record does not say, the one that an edit names (unless refused)."""
    if step.changed_paths is not None:
        return set(step.changed_paths)
    if step.action is None or (step.observation is not None and step.observation.ok is False):
        return set()
    arguments = step.action.arguments
    path = next((arguments[name] for name in _PATH_ARGUMENTS if name in arguments), None)
    return {path.removeprefix("./")} if isinstance(path, str) and _TEXT_ARGUMENTS & arguments.keys() else set()


def acted(action: Action) -> str:
    """What an action asks for, as one text: equal texts ask for the same."""
    return action.model_dump_json(exclude={"call_id"})


def _only_listed(action: Action) -> bool:
    """Whether an action names paths without showing what is in them."""
    command = action.arguments.get("command")
    return action.tool == "list_files" or (isinstance(command, str) and _LISTING.match(command) is not None)


def _strings(value: JsonValue) -> Iterable[str]:
    """The texts in a JSON value, keys apart."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for inner in value:
            yield from _strings(inner)
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _strings(inner)
