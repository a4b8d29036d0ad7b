"""The simple row: what was asked, each action with an excerpt of its outcome, the tests, the patch, the reward. One for
each path of a trajectory. ``patchgym tasks build --log`` takes these rows."""

from collections.abc import Iterator, Mapping, Sequence

from pydantic import JsonValue

from patchgym.records import Observation, Outcome, Step, TestReport, Trajectory, Verdict
from patchgym.traces.formats import article as reader
from patchgym.traces.intake import Intake
from patchgym.traces.paths import paths
from patchgym.traces.writers.writer import Known, Reason, Row, Unwritable

NAME = reader.NAME
ABOUT = reader.ABOUT
FOLDER = False
HOLDS: frozenset[str] | None = None
_STEP = "STRUCT(step BIGINT, action VARCHAR, args VARCHAR, output_excerpt VARCHAR, success BOOLEAN)[]"
COLUMNS: Mapping[str, str] = {
    "task_id": "VARCHAR",
    "repo": "VARCHAR",
    "base_commit": "VARCHAR",
    "prompt": "VARCHAR",
    "trajectory": _STEP,
    "test_result": 'STRUCT("pass" BOOLEAN, passed_tests VARCHAR[], failed_tests VARCHAR[])',
    "final_patch": "VARCHAR",
    "reward": "DOUBLE",
}


def rows(trajectory: Trajectory, known: Known) -> Sequence[Row]:
    """See ``Writer.rows``."""
    if not trajectory.steps:
        raise Unwritable(Reason.NO_STEPS)
    whole = paths(trajectory)
    if whole is None:
        raise Unwritable(Reason.BROKEN_PATH)
    repo, commit = known.repo_and_commit(trajectory)
    task = known.tasks.get(trajectory.task_id)
    return [
        {
            "task_id": trajectory.task_id,
            "repo": repo,
            "base_commit": commit,
            "prompt": task.instruction if task else _asked(path),
            "trajectory": [_step(number, step) for number, step in enumerate(path, start=1)],
            "test_result": _tests(trajectory.report) if trajectory.report else None,
            "final_patch": trajectory.final_patch,
            "reward": trajectory.reward.value if trajectory.reward else None,
        }
        for path in whole
    ]


def read_back(rows: Sequence[Row], intake: Intake) -> Iterator[Trajectory]:
    """See ``Writer.read_back``."""
    for row in rows:
        found = reader.trajectory_of(row, "", "", intake)
        if found is not None:
            yield found


def _asked(path: Sequence[Step]) -> str | None:
    """What the first user said."""
    return next((message.content for step in path for message in step.prompt if message.role == "user"), None)


def _step(number: int, step: Step) -> dict[str, JsonValue]:
    seen = step.observation
    return {
        "step": number,
        "action": step.action.tool if step.action else None,
        "args": dict(step.action.arguments) if step.action else {},
        "output_excerpt": seen.shown if seen else None,
        "success": _success(seen) if seen else None,
    }


def _success(seen: Observation) -> bool | None:
    """Whether it went well: no failing exit code, no time that ran out, nothing that could not be done."""
    if seen.timed_out or seen.ok is False:
        return False
    return seen.exit_code == 0 if seen.exit_code is not None else seen.ok


def _tests(report: TestReport) -> dict[str, JsonValue]:
    passed: list[JsonValue] = [test for test, outcome in report.tests.items() if outcome is Outcome.PASSED]
    failed: list[JsonValue] = [test for test, outcome in report.tests.items() if outcome.failing]
    return {"pass": report.verdict is Verdict.RESOLVED, "passed_tests": passed, "failed_tests": failed}
