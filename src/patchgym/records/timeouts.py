"""Whose fault a time-out was."""

import re
from typing import Literal

from patchgym.records.report import Verdict
from patchgym.records.trajectory import StopReason, Trajectory

WhoseTime = Literal["policy", "sandbox", "endpoint", "unknown"]

_TIMED_OUT = re.compile(r"time[ds]?[ -]?out|deadline exceeded|did not (?:answer|finish|come up) in", re.IGNORECASE)
_SLOW_TOKENS_PER_S = 5.0


def timeout_of(trajectory: Trajectory) -> WhoseTime | None:
    """What used the time up of a trajectory that ended because time ran out; None where none did.

    - A fault that tells of a time-out is the endpoint's where the policy was asked, else the sandbox's.
    - Patched code that does not finish in a time in which the proved solution does is the policy's.
    - Where the time limit of the task ended the episode, what most of the time went to decides: the commands that the
      policy chose are its own; what acting took beyond them (making and reading sandboxes) is the sandbox's; waiting
      for answers is the policy's where it was answered at 5 tokens a second or more, for then it wrote that much, and
      else the endpoint's.
    - ``unknown`` where the time limit ended it and the record does not say what time went to.

    A command that timed out within an episode ends nothing, and is no time-out of the trajectory.
    """
    for fault in trajectory.faults:
        if _TIMED_OUT.search(fault.message) or _TIMED_OUT.search(fault.kind):
            return "endpoint" if fault.where == "policy" else "sandbox"
    if trajectory.stop is StopReason.TIME_LIMIT:
        return _most_of(trajectory)
    if trajectory.report is not None and trajectory.report.verdict is Verdict.TIMEOUT:
        return "policy"
    return None


def _most_of(trajectory: Trajectory) -> WhoseTime:
    sampling, acting = trajectory.timing.sampling_seconds, trajectory.timing.acting_seconds
    if sampling is None or acting is None:
        return "unknown"
    commands = sum(step.observation.seconds or 0.0 for step in trajectory.steps if step.observation is not None)
    beyond = max(0.0, acting - commands)
    if max(commands, beyond, sampling) == 0:
        return "unknown"
    if commands >= max(beyond, sampling):
        return "policy"
    if beyond > sampling:
        return "sandbox"
    tokens = sum(step.usage.sampled_tokens for step in trajectory.steps if step.usage is not None)
    return "policy" if tokens / sampling >= _SLOW_TOKENS_PER_S else "endpoint"
