"""What attempts were made under, so far as that decides what their figures may be compared with."""

from collections.abc import Mapping

from patchgym.records import Trajectory

TELLING: Mapping[str, str] = {
    "policy": "who acted",
    "version": "which version of it",
    "temperature": "sampling temperature",
    "top_p": "nucleus of sampling",
    "max_tokens": "most tokens of one message",
    "tools": "native tool calls or plain text",
    "sandbox": "kind of sandbox that was acted in",
    "grader": "version of the grader",
    "grading_sandbox": "kind of sandbox that was graded in",
    "format": "format of an imported log",
}
"""The names of conditions, and what each says. One that no attempt records is not there."""
MEASURING = frozenset({"grader", "grading_sandbox", "sandbox", "format"})
"""Those that belong to the measurement: where they differ, a difference may be theirs and not the policies'."""
CHOSEN = frozenset({"temperature", "top_p", "max_tokens", "tools"})
"""Those that were chosen for a policy: where they differ, it is policies with their settings that are compared."""


def conditions_of(trajectory: Trajectory) -> dict[str, frozenset[str]]:
    """What one trajectory records of each condition."""
    found: dict[str, set[str]] = {"policy": {trajectory.policy.spec}}
    if trajectory.policy.version is not None:
        found["version"] = {trajectory.policy.version}
    for step in trajectory.steps:
        if step.sampling is not None:
            for name in ("temperature", "top_p", "max_tokens"):
                found.setdefault(name, set()).add(f"{getattr(step.sampling, name):g}")
    if trajectory.origin is None and trajectory.steps:
        found["tools"] = {"native" if trajectory.tools else "text"}
    if trajectory.sandbox is not None:
        found["sandbox"] = {trajectory.sandbox}
    if trajectory.report is not None:
        found["grader"] = {trajectory.report.grader_version}
        if trajectory.report.sandbox:
            found["grading_sandbox"] = {trajectory.report.sandbox}
    if trajectory.origin is not None:
        found["format"] = {trajectory.origin.format}
    return {name: frozenset(values) for name, values in found.items()}
