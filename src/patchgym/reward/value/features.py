"""What a value model sees of an attempt after each of its steps: numbers from the record alone.

Nothing here is privileged: no hidden test, no key file, no verdict; only what the agent itself could know. A search
may so be led by it, and a score means the same on a task whose solution nobody has. What was not recorded is None.
"""

from collections.abc import Callable, Mapping, Sequence

from patchgym.records import Limits, Step
from patchgym.reward.credit import Ledger, StepCredit, changed

Features = tuple[float | None, ...]
"""The values of ``FEATURES``, in its order."""

FEATURES: Mapping[str, str] = {
    "turn": "steps so far",
    "turn_share": "of the turns that the task allows, the share that is used",
    "token_share": "of the sampled tokens that it allows, likewise",
    "seconds_share": "of the wall time that it allows, likewise (sampling and acting)",
    "credit": "the sum of the rules' weights so far, without key files",
    "last_credit": "the same of this step alone",
    "tests_run": "how often tests were run",
    "failing": "tests that failed when last run",
    "failing_share": "of the tests that were run, the share that failed when last run",
    "passing": "tests that passed when last run",
    "fixed": "tests that were seen to fail and pass when last run",
    "steps_since_tests": "steps since tests were run",
    "changes_since_tests": "steps that changed files since tests were run",
    "edits": "steps that changed files",
    "files_changed": "different files that were changed",
    "new_states": "different states of the workspace that were seen",
    "state_seen_before": "whether this step led back to a state that an earlier one had left",
    "unchanged": "whether the workspace is as it was at the beginning",
    "edit_size": "characters of the last edit's new text",
    "unreadable": "messages in which no action could be read",
    "refused": "actions that could not be done",
    "repeated": "actions that were done before in the same state",
    "failed_commands": "commands that ended with another exit code than 0",
    "timed_out": "commands whose time ran out",
    "reads": "actions that read a file",
    "searches": "actions that search",
    "commands": "shell commands",
    "message_size": "characters of this step's message",
    "shown_size": "characters that the model was shown for it",
    "exit_code": "of this step's command",
    "ended_by_agent": "whether this step hands in the work",
}
"""Every feature by its name, with what it is."""

_READS = frozenset({"read_file", "view", "Read", "open"})
_SEARCHES = frozenset({"search", "grep", "Grep", "find_file", "search_dir"})
_SUBMITS = frozenset({"submit", "finish"})


class _Attempt:
    """One attempt, as far as it has gone."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._ledger = Ledger()
        self._count: dict[str, float] = dict.fromkeys(FEATURES, 0.0)
        self._files: set[str] = set()
        self._states: set[str] = set()
        self._start: str | None = None
        self._failed: set[str] = set()
        self._tokens: float | None = 0.0
        self._seconds: float | None = 0.0
        self._tested_at: int | None = None
        self._changed_since = 0.0
        self._edit_size: float | None = None

    def after(self, step: Step) -> Features:
        """Enter a step; the features then."""
        count = self._count
        count["turn"] += 1
        credit = self._ledger.take(step)
        self._measure(step)
        self._files_after(step)
        self._tests_after(step)
        self._acts(step, credit)
        made: dict[str, float | None] = {
            **count,
            "turn_share": count["turn"] / max(1, self._limits.turns),
            "token_share": self._tokens / max(1, self._limits.tokens) if self._tokens is not None else None,
            "seconds_share": self._seconds / self._limits.seconds if self._seconds is not None else None,
            "credit": self._ledger.total,
            "last_credit": sum(rule.weight for rule in credit.rules),
            "message_size": float(len(step.message.content)),
            **self._tests_now(),
            **self._state_now(step),
            "edit_size": self._edit_size,
            "shown_size": float(len(step.observation.shown)) if step.observation is not None else None,
            "exit_code": _number(step.observation.exit_code if step.observation is not None else None),
            "ended_by_agent": float(step.action is not None and step.action.tool in _SUBMITS),
        }
        if step.state_after is not None:
            self._states.add(step.state_after)
        return tuple(made[name] for name in FEATURES)

    def _measure(self, step: Step) -> None:
        if self._tokens is not None:
            self._tokens = self._tokens + step.usage.sampled_tokens if step.usage is not None else None
        acting = step.observation.seconds if step.observation is not None else 0.0
        if self._seconds is not None:
            known = step.sampling_seconds is not None and acting is not None
            self._seconds = self._seconds + (step.sampling_seconds or 0.0) + (acting or 0.0) if known else None

    def _files_after(self, step: Step) -> None:
        if self._start is None:
            self._start = step.state_before
        if self._start is not None:
            self._states.add(self._start)
        touched = changed(step)
        self._files |= touched
        self._count["edits"] += bool(touched)
        self._changed_since += bool(touched)
        if touched and step.action is not None:
            texts = [value for value in step.action.arguments.values() if isinstance(value, str)]
            self._edit_size = float(max(map(len, texts), default=0))
        self._count["files_changed"] = len(self._files)

    def _tests_after(self, step: Step) -> None:
        tests = step.observation.tests if step.observation is not None else None
        if tests:
            self._count["tests_run"] += 1
            self._tested_at, self._changed_since = int(self._count["turn"]), 0.0
            self._failed |= {test for test, outcome in tests.items() if outcome.failing}

    def _acts(self, step: Step, credit: StepCredit) -> None:
        count, seen = self._count, step.observation
        count["unreadable"] += step.action is None and step.parse_error is not None
        count["refused"] += seen is not None and seen.ok is False
        count["repeated"] += any(rule.name == "wasted" and "same" in rule.why for rule in credit.rules)
        count["failed_commands"] += seen is not None and bool(seen.exit_code) and not seen.tests
        count["timed_out"] += seen is not None and seen.timed_out
        if step.action is not None:
            count["reads"] += step.action.tool in _READS
            count["searches"] += step.action.tool in _SEARCHES
            count["commands"] += "command" in step.action.arguments

    def _tests_now(self) -> dict[str, float | None]:
        if self._tested_at is None:
            return dict.fromkeys(
                ("failing", "failing_share", "passing", "fixed", "steps_since_tests", "changes_since_tests")
            )
        outcomes = self._ledger.outcomes
        return {
            "failing": float(self._ledger.failing),
            "failing_share": self._ledger.failing / len(outcomes) if outcomes else None,
            "passing": float(sum(outcomes.values())),
            "fixed": float(sum(outcomes[test] for test in self._failed)),
            "steps_since_tests": self._count["turn"] - self._tested_at,
            "changes_since_tests": self._changed_since,
        }

    def _state_now(self, step: Step) -> dict[str, float | None]:
        now = step.state_after
        if now is None:
            return dict.fromkeys(("new_states", "state_seen_before", "unchanged"))
        return {
            "new_states": float(len(self._states | {now})),
            "state_seen_before": float(now != step.state_before and now in self._states),
            "unchanged": float(now == self._start),
        }


def step_features(steps: Sequence[Step], limits: Limits | None = None) -> list[Features]:
    """The features after each step of a trajectory, or of a path of a search tree. ``limits`` are the task's; those
    that a task has by default where nobody knows them."""
    attempt = _Attempt(limits or Limits())
    return [attempt.after(step) for step in steps]


def _number(value: float | None) -> float | None:
    return float(value) if value is not None else None


StepsValue = Callable[[Sequence[Step], Limits], float]
"""How good the state after the last of some steps looks, from 0 to 1."""
