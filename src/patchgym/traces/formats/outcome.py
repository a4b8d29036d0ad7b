"""What became of an episode, where a log tells it as a flag, a number or a word."""

import math

from patchgym.records import Outcome, Reward, StopReason, Tally, TestReport, Verdict

_STOPS = {
    "submit": StopReason.SUBMITTED,
    "submitted": StopReason.SUBMITTED,
    "finished": StopReason.SUBMITTED,
    "exit_context": StopReason.CONTEXT_LIMIT,
    "context_limit": StopReason.CONTEXT_LIMIT,
    "context_window_exceeded": StopReason.CONTEXT_LIMIT,
    "exit_format": StopReason.PROTOCOL,
    "max_iterations": StopReason.TURN_LIMIT,
    "max_iteration": StopReason.TURN_LIMIT,
    "max_turns": StopReason.TURN_LIMIT,
    "limitsexceeded": StopReason.TURN_LIMIT,
    "timeout": StopReason.TIME_LIMIT,
    "stuck": StopReason.HOPELESS_LOOP,
}
_NONE = Tally(passed=0, total=0)


def stop_of(value: object) -> StopReason | None:
    """Why an episode ended, in the word of this or another project; None where it is none that says so."""
    word = value.strip().lower() if isinstance(value, str) else ""
    if word in set(StopReason):
        return StopReason(word)
    return _STOPS.get(word)


def report_of(resolved: object, tests: dict[str, Outcome] | None = None) -> TestReport | None:
    """A report that holds a bare verdict, and outcomes where they are told; None where ``resolved`` is no flag. Which
    tests decided is not known, so none is tallied."""
    if isinstance(resolved, int | float) and resolved in (0, 1):
        resolved = bool(resolved)
    if not isinstance(resolved, bool):
        return None
    return TestReport(
        verdict=Verdict.RESOLVED if resolved else Verdict.UNRESOLVED,
        tests=tests or {},
        fail_to_pass=_NONE,
        pass_to_pass=_NONE,
        hidden=_NONE,
        why="as the log says",
        seconds=None,
        grader_version="imported",
    )


def reward_of(value: object) -> Reward | None:
    """A reward that is a bare number; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return Reward(value=float(value), gate="imported", terms={})
