"""One row a trajectory: ``task_id, repo, base_commit, prompt, trajectory[{step, action, args, output_excerpt,
success}], test_result{pass, passed_tests, failed_tests}, final_patch, reward``. The logs that ``patchgym tasks build``
takes are such rows."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from patchgym.records import Action, Message, Observation, Outcome, TestReport, Trajectory
from patchgym.traces.draft import Draft
from patchgym.traces.formats.outcome import report_of, reward_of
from patchgym.traces.formats.rows import rows
from patchgym.traces.intake import Intake, text_of

NAME = "article"
ABOUT = "rows of task_id, prompt, trajectory[step, action, args, output_excerpt, success], final_patch"
_KNOWN = {"task_id", "repo", "base_commit", "prompt", "trajectory", "test_result", "final_patch", "reward"}
_STEP = {"step", "action", "args", "output_excerpt", "success"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return b'"prompt"' in head and b'"trajectory"' in head and (b'"final_patch"' in head or b'"output_excerpt"' in head)


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    for number, (where, row) in enumerate(rows(path, intake), start=1):
        found = trajectory_of(row, f"{path.stem}-{number}", path.name, intake)
        if found is None:
            intake.damaged("no_trajectory", where)
        else:
            yield found


def trajectory_of(row: Mapping[str, Any], name: str, file: str, intake: Intake) -> Trajectory | None:
    """The trajectory of a row; None where it holds no steps. ``name`` is its id where the row names no task."""
    steps = row.get("trajectory")
    if not isinstance(steps, list):
        return None
    task = text_of(row.get("task_id")) or None
    draft = Draft(
        id=task or name,
        format=NAME,
        file=file,
        task_id=task,
        repo=text_of(row.get("repo")) or None,
        base_commit=text_of(row.get("base_commit")) or None,
    )
    draft.left_out.update(key for key in row if key not in _KNOWN and row[key] not in (None, "", [], {}))
    if row.get("prompt"):
        draft.given(Message(role="user", content=text_of(row["prompt"])))
    for step in steps:
        if isinstance(step, dict):
            _step(draft, step)
        else:
            draft.left_out["steps_that_are_no_objects"] += 1
    report = _report(draft, row.get("test_result"))
    reward = reward_of(row.get("reward"))
    if row.get("reward") is not None and reward is None:
        draft.left_out["reward"] += 1
    patch = row.get("final_patch")
    trajectory = draft.finished(final_patch=patch if isinstance(patch, str) else None, report=report)
    return trajectory.model_copy(update={"reward": reward})


def _step(draft: Draft, step: dict[str, Any]) -> None:
    draft.left_out.update(f"step_{key}" for key in step if key not in _STEP)
    arguments = step.get("args")
    tool = text_of(step.get("action"))
    if arguments is not None and not isinstance(arguments, dict):
        draft.left_out["args_that_are_no_object"] += 1
    action = Action(tool=tool, arguments=arguments if isinstance(arguments, dict) else {}) if tool else None
    draft.answered(Message(role="assistant", content=""), [action] if action else [])
    shown, success = step.get("output_excerpt"), step.get("success")
    if shown is None and success is None:
        return
    observation = Observation(shown=text_of(shown), ok=success if isinstance(success, bool) else None)
    draft.observed(observation, None, Message(role="tool", content=observation.shown))


def _report(draft: Draft, told: object) -> TestReport | None:
    tests = {
        text_of(test): outcome
        for key, outcome in (("passed_tests", Outcome.PASSED), ("failed_tests", Outcome.FAILED))
        for test in _listed(told, key)
    }
    report = report_of(told.get("pass"), tests) if isinstance(told, dict) else None
    if report is None and told is not None:
        draft.left_out["test_result"] += 1
    return report


def _listed(told: object, key: str) -> list[Any]:
    found = told.get(key) if isinstance(told, dict) else None
    return found if isinstance(found, list) else []
