"""One row a trajectory: ``task_id, repo, base_commit, prompt, trajectory[{step, action, args, output_excerpt,
success}], test_result{pass, passed_tests, failed_tests}, final_patch, reward``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Action, Message, Observation, Trajectory
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, text_of

NAME = "article"
ABOUT = "rows of task_id, prompt, trajectory[step, action, args, output_excerpt, success], final_patch"
_KNOWN = {"task_id", "repo", "base_commit", "prompt", "trajectory", "final_patch"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return b'"prompt"' in head and b'"trajectory"' in head and b'"final_patch"' in head


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    for number, row in intake.lines(path):
        steps = row.get("trajectory")
        if not isinstance(steps, list):
            intake.damaged("no_trajectory", f"{path.name}, line {number}")
            continue
        yield _trajectory(row, steps, f"{path.stem}-{number}", path)


def _trajectory(row: dict[str, Any], steps: list[Any], name: str, path: Path) -> Trajectory:
    task = text_of(row.get("task_id")) or None
    draft = Draft(
        id=task or name,
        format=NAME,
        file=path.name,
        task_id=task,
        repo=text_of(row.get("repo")) or None,
        base_commit=text_of(row.get("base_commit")) or None,
    )
    draft.left_out.update(key for key in row if key not in _KNOWN)
    if row.get("prompt"):
        draft.given(Message(role="user", content=text_of(row["prompt"])))
    for step in steps:
        if not isinstance(step, dict):
            draft.left_out["steps_that_are_no_objects"] += 1
            continue
        arguments = step.get("args")
        tool = text_of(step.get("action"))
        action = Action(tool=tool, arguments=arguments if isinstance(arguments, dict) else {}) if tool else None
        draft.answered(Message(role="assistant", content=""), [action] if action else [])
        success = step.get("success")
        draft.observed(
            Observation(shown=text_of(step.get("output_excerpt")), ok=success if isinstance(success, bool) else None)
        )
    return draft.finished(final_patch=row.get("final_patch") if isinstance(row.get("final_patch"), str) else None)
