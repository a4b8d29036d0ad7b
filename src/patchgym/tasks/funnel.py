"""Every candidate is accounted for: the stages on the way to a task, and the reasons to fall out at one of them."""

from collections import Counter
from enum import StrEnum

from patchgym.tasks.sources.refusals import Refusal

_EXAMPLE = 400


class Stage(StrEnum):
    """The stages in order; each counts the candidates that got through it."""

    CANDIDATES = "candidates"
    ENVIRONMENT_BUILT = "environment_built"
    GOLD_PASSES = "gold_passes"
    FAILS_BEFORE = "fails_before"
    STABLE = "stable"
    CLEAR = "clear"
    CLEAN = "clean"
    WRITTEN = "written"


REASONS: dict[str, tuple[Stage, str]] = {
    "no_environment": (Stage.ENVIRONMENT_BUILT, "it names a container, and brings no locked environment"),
    "gold_fails": (Stage.GOLD_PASSES, "a fail-to-pass test does not pass with the gold patch"),
    "survived": (Stage.FAILS_BEFORE, "no test notices what is wrong"),
    "base_passes": (Stage.FAILS_BEFORE, "a fail-to-pass test passes where nothing was done"),
    "breaks_everything": (Stage.FAILS_BEFORE, "no test passes any more"),
    "breaks_too_much": (Stage.FAILS_BEFORE, "more tests fail than the recipe allows"),
    "timeout": (Stage.FAILS_BEFORE, "the tests do not come to an end in time"),
    "crash": (Stage.FAILS_BEFORE, "the test process ends early"),
    "unstable": (Stage.STABLE, "runs of the same tests do not agree"),
    "tampered": (Stage.STABLE, "something wrote to the channel of the results"),
    "infra_error": (Stage.STABLE, "a sandbox was lost"),
    "nothing_to_hide": (Stage.CLEAR, "fewer than two test functions fail, or none can be taken out"),
    "visible_differs": (Stage.CLEAR, "the reduced test files do not fail as the whole ones do"),
    "low_priority": (Stage.CLEAR, "it is less verifiable, described, reproducible or scoped than the recipe asks"),
    "weak_tests": (Stage.CLEAR, "too many bugs planted in the solution go unnoticed"),
    "leaks": (Stage.CLEAN, "the instruction would tell the fix"),
    "readable": (Stage.CLEAN, "the agent could read the fix or a hidden test in its sandbox"),
    "duplicate": (Stage.CLEAN, "another task of the set has nearly the same solution"),
    "overlap": (Stage.CLEAN, "a held-out task works on a version of the same function"),
    "contaminated": (Stage.CLEAN, "a benchmark holds it"),
    "license": (Stage.CLEAN, "its licence is not among those allowed"),
    "audit": (Stage.WRITTEN, "the audit found something in them, and they were cleaned away"),
    "spare": (Stage.WRITTEN, "proved, but as many tasks as asked for were there already"),
}
"""Why a candidate is no task: the stage that it does not get through, and what the reason means."""


def meaning_of(reason: str) -> str:
    """What a reason means, in a line; a kind of failure to build is told of where it is defined."""
    if reason in REASONS:
        return REASONS[reason][1]
    for refusal in Refusal:
        if refusal == reason:
            return f"no candidate: {refusal.meaning}"
    return "of no use" if reason.startswith("model_") else "no environment in which the suite passes"


class Dropped(Exception):
    """A candidate is no task. ``reason`` is one of ``REASONS``, or with ``stage`` the kind of a failure to build an
    environment."""

    def __init__(self, reason: str, stage: Stage | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage = stage or REASONS[reason][0]


class Funnel:
    """Counts candidates as they come through or fall out. ``refused`` counts what never was a candidate: commits and
    releases that change no source or no test, say. ``examples`` has the first case of each reason that needs words."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._written = 0
        self._dropped: Counter[tuple[Stage, str]] = Counter()

    def write(self) -> None:
        """A candidate became a task of the set."""
        self._written += 1

    def drop(self, reason: str, stage: Stage | None = None, count: int = 1) -> None:
        """Candidates fell out."""
        self._dropped[stage or REASONS[reason][0], reason] += count

    def show(self, reason: str, candidate: str, said: str) -> None:
        """Keep what was said of a candidate, if it is the first with that reason."""
        self.examples.setdefault(reason, f"{candidate}: {' '.join(said.split())}"[:_EXAMPLE])

    @property
    def stages(self) -> dict[str, int]:
        """How many candidates there were, and how many got through each stage."""
        left = self._written + self._dropped.total()
        found = {}
        for stage in Stage:
            left -= sum(count for (at, _), count in self._dropped.items() if at is stage)
            found[stage.value] = left
        return found

    @property
    def dropped(self) -> dict[str, int]:
        """How many fell out, by reason, in the order of the stages and then the most frequent first."""
        order = list(Stage)
        ranked = sorted(self._dropped.items(), key=lambda item: (order.index(item[0][0]), -item[1], item[0][1]))
        return {reason: count for (_, reason), count in ranked}
