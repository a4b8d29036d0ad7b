"""The terms: each a pure function of an attempt.

What was not measured gives no term, which is never a term of 0. ``raw`` is in the term's own unit; ``cost`` says how
bad that is, from 0 (as good as it gets) to 1, and is what the second layer counts.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from patchgym.records import Step
from patchgym.reward.attempt import Attempt

EXTRA_LINES = 20
"""Changed lines beyond those of the gold patch at which a patch is as large as it can count."""
FINDINGS = 5
"""New findings of the linter at which a patch is as unclean as it can count."""
MUTANTS = 3
"""Planted bugs that own tests notice, at which they are as good as they can count."""

_EDITS = frozenset({"edit_file", "write_file"})
_WORD = re.compile(r"[^\s\"'`=:;|&()<>,]+")


@dataclass(frozen=True)
class Measured:
    """What was measured, what it costs, and the reason in words."""

    raw: float
    cost: float
    why: str


@dataclass(frozen=True)
class TermKind:
    """A term: the layer that it belongs to, and how it is measured."""

    layer: Literal["told", "efficiency", "quality"]
    measure: Callable[[Attempt], Measured | None]


def _tally(passed: int, total: int, what: str) -> Measured | None:
    if total <= 0:
        return None
    return Measured(passed / total, 1 - passed / total, f"{passed} of {total} {what}")


def visible_fixed(attempt: Attempt) -> Measured | None:
    """The share of the failing tests that the agent could see and that pass now."""
    fixed, hidden = attempt.report.fail_to_pass, attempt.report.hidden
    if not attempt.report.tests:
        return None
    return _tally(fixed.passed - hidden.passed, fixed.total - hidden.total, "visible failing tests fixed")


def hidden_fixed(attempt: Attempt) -> Measured | None:
    """The share of the failing tests that it never saw and that pass now."""
    hidden = attempt.report.hidden
    return _tally(hidden.passed, hidden.total, "hidden failing tests fixed") if attempt.report.tests else None


def kept(attempt: Attempt) -> Measured | None:
    """The share of the tests that must stay passing and did."""
    held = attempt.report.pass_to_pass
    return _tally(held.passed, held.total, "other tests kept passing") if attempt.report.tests else None


def new_failing(attempt: Attempt) -> Measured | None:
    """How many tests that must stay passing fail now; unlike ``kept`` it does not count skipped ones."""
    tests, wanted = attempt.report.tests, attempt.task.pass_to_pass
    known = [test for test in wanted if test in tests]
    if not known:
        return None
    failing = [test for test in known if tests[test].failing]
    first = f", first {failing[0]}" if failing else ""
    return Measured(len(failing), len(failing) / len(known), f"{len(failing)} new failing tests{first}")


def steps(attempt: Attempt) -> Measured | None:
    """The turns that were used; they cost by the share of the limit."""
    used, limit = len(attempt.steps), attempt.task.limits.turns
    return Measured(used, min(1.0, used / limit) if limit else 0.0, f"{used} of {limit} turns used")


def tokens(attempt: Attempt) -> Measured | None:
    """The tokens that were sampled; they cost by the share of the limit."""
    sampled = [step for step in attempt.steps if not step.continues]
    usage = [step.usage.sampled_tokens for step in sampled if step.usage is not None]
    if not sampled or len(usage) < len(sampled):
        return None
    used, limit = sum(usage), attempt.task.limits.tokens
    return Measured(used, min(1.0, used / limit) if limit else 0.0, f"{used} of {limit} tokens sampled")


def tool_effectiveness(attempt: Attempt) -> Measured | None:
    """The share of the calls that could be read and done, were not made before in the same state, and, of edits,
    changed something."""
    known = [step for step in attempt.steps if _was_done(step) is not None]
    if not known:
        return None
    invalid = [not _was_done(step) for step in known]
    repeated = _repeats(known)
    idle = [_changed_nothing(step) for step in known]
    wasted = sum(any(each) for each in zip(invalid, repeated, idle, strict=True))
    why = f"of {len(known)} calls {sum(invalid)} invalid, {sum(repeated)} repeated, {sum(idle)} edits without effect"
    return Measured(1 - wasted / len(known), wasted / len(known), why)


def patch_size(attempt: Attempt) -> Measured | None:
    """The changed lines; they cost by how many there are beyond those of the gold patch."""
    if attempt.patch is None:
        return None
    lines, gold = attempt.patch.lines, attempt.task.gold.lines
    cost = min(1.0, max(0, lines - gold) / EXTRA_LINES)
    return Measured(lines, cost, f"{lines} changed lines against {gold} of the gold patch")


def key_files_read(attempt: Attempt) -> Measured | None:
    """The share of the files that the gold patch touches which were named in a call that could be done."""
    wanted = attempt.task.key_files
    done = [step.action.arguments for step in attempt.steps if step.action is not None and _was_done(step)]
    if not attempt.steps:
        return None
    return _tally(sum(any(names(call, path) for call in done) for path in wanted), len(wanted), "key files read")


def key_files_edited(attempt: Attempt) -> Measured | None:
    """The share of the files that the gold patch touches which the patch touches too."""
    if attempt.touched is None:
        return None
    wanted = attempt.task.key_files
    return _tally(sum(path in attempt.touched for path in wanted), len(wanted), "key files edited")


def compiles(attempt: Attempt) -> Measured | None:
    """Whether every Python file that the patch touches can be compiled."""
    quality = attempt.report.quality
    if quality is None or quality.compiles is None:
        return None
    return Measured(1.0, 0.0, "it compiles") if quality.compiles else Measured(0.0, 1.0, "a file does not compile")


def lint(attempt: Attempt) -> Measured | None:
    """How many findings of the linter are new."""
    quality = attempt.report.quality
    if quality is None or quality.lint_added is None:
        return None
    added = max(0, quality.lint_added)
    return Measured(added, min(1.0, added / FINDINGS), f"{added} new findings of the linter")


def coverage(attempt: Attempt) -> Measured | None:
    """How many planted bugs the attempt's own tests notice which the task's do not. A test that asserts nothing, or
    only runs the code, notices none and earns nothing."""
    quality = attempt.report.quality
    if quality is None or quality.mutants_killed_added is None:
        return None
    killed = max(0, quality.mutants_killed_added)
    return Measured(killed, 1 - min(1.0, killed / MUTANTS), f"its own tests notice {killed} more planted bugs")


TERMS: Mapping[str, TermKind] = {
    "visible_fixed": TermKind("told", visible_fixed),
    "hidden_fixed": TermKind("told", hidden_fixed),
    "kept": TermKind("told", kept),
    "new_failing": TermKind("told", new_failing),
    "steps": TermKind("efficiency", steps),
    "tokens": TermKind("efficiency", tokens),
    "tool_effectiveness": TermKind("efficiency", tool_effectiveness),
    "patch_size": TermKind("efficiency", patch_size),
    "key_files_read": TermKind("efficiency", key_files_read),
    "key_files_edited": TermKind("efficiency", key_files_edited),
    "compiles": TermKind("quality", compiles),
    "lint": TermKind("quality", lint),
    "coverage": TermKind("quality", coverage),
}
"""Every term by its name. Those of the second layer have a weight of the same name in ``TermWeights``."""


def names(arguments: Mapping[str, JsonValue], path: str) -> bool:
    """Whether the arguments of a call name a path of the workspace: as it is, behind ``./``, or at the end of an
    absolute path."""
    texts = [value for value in arguments.values() if isinstance(value, str) and path in value]
    words = (word for text in texts for word in (text, *_WORD.findall(text)))
    return any(
        word.removeprefix("./") == path or (word.startswith("/") and word.endswith(f"/{path}")) for word in words
    )


def _was_done(step: Step) -> bool | None:
    """Whether a call could be read and done; None where the record does not tell."""
    if step.action is None or step.observation is None:
        return False
    return step.observation.ok


def _repeats(calls: list[Step]) -> list[bool]:
    """Of each call, whether it was made before in the same state of the workspace."""
    seen: set[tuple[str, str, str]] = set()
    found = []
    for step in calls:
        if step.action is None or step.state_before is None:
            found.append(False)
            continue
        call = (step.state_before, step.action.tool, json.dumps(step.action.arguments, sort_keys=True))
        found.append(call in seen)
        seen.add(call)
    return found


def _changed_nothing(step: Step) -> bool:
    edits = step.action is not None and step.action.tool in _EDITS and bool(_was_done(step))
    return edits and step.state_before is not None and step.state_before == step.state_after
