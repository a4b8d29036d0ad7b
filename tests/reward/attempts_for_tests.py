"""Small attempts to reward: real types, made-up values."""

from collections.abc import Mapping, Sequence

from patchgym.records import (
    Action,
    Limits,
    Message,
    Observation,
    Quality,
    Scope,
    Step,
    TestReport,
    Trajectory,
    Usage,
    Verdict,
)
from patchgym.reward import Attempt, RewardSettings, TaskFacts, score
from tests.records_for_tests import make_report, make_step, make_trajectory

GOLD = Scope(files=1, hunks=1, lines=2)
CLEAN = Quality(compiles=True, lint_added=0, tests_added=1, mutants_killed_added=3)
CARELESS = Quality(compiles=False, lint_added=9, tests_added=0, mutants_killed_added=0)


def facts(**changes: object) -> TaskFacts:
    """What is known of a task with one key file."""
    values: dict[str, object] = {"gold": GOLD, "key_files": ("src/calc.py",), "limits": Limits(turns=12, tokens=100)}
    return TaskFacts(**{**values, **changes})  # type: ignore[arg-type]  # the keys are those of the fields


def make_attempt(
    report: TestReport | None = None,
    steps: Sequence[Step] = (),
    *,
    lines: int | None = 2,
    touched: Sequence[str] = ("src/calc.py",),
    task: TaskFacts | None = None,
) -> Attempt:
    """An attempt; with ``lines`` None nothing is known of its patch."""
    size = Scope(files=1, hunks=1, lines=lines) if lines is not None else None
    paths = frozenset(touched) if lines is not None else None
    return Attempt(report or make_report(), tuple(steps), size, paths, task or facts())


def call(
    index: int,
    tool: str,
    arguments: Mapping[str, str],
    *,
    ok: bool | None = True,
    before: str = "a",
    after: str = "a",
    sampled: int = 2,
) -> Step:
    """A step with a call, between two states."""
    return make_step(index).model_copy(
        update={
            "message": Message(role="assistant", content=""),
            "action": Action(tool=tool, arguments=dict(arguments)),
            "observation": Observation(shown="", ok=ok),
            "state_before": before,
            "state_after": after,
            "usage": Usage(prompt_tokens=0, sampled_tokens=sampled),
        }
    )


def worst(report: TestReport) -> Attempt:
    """The most wasteful and careless attempt with this outcome."""
    steps = [make_step(index, ok=False) for index in range(60)]
    return make_attempt(report.model_copy(update={"quality": CARELESS}), steps, lines=5000, touched=())


def best(report: TestReport) -> Attempt:
    """The neatest one."""
    steps = [call(0, "read_file", {"path": "src/calc.py"}, sampled=0)]
    return make_attempt(report.model_copy(update={"quality": CLEAN}), steps)


def rewarded(
    sample: int,
    verdict: Verdict,
    *,
    fixed: tuple[int, int] = (0, 2),
    turns: int = 1,
    task_id: str = "demo-1",
    settings: RewardSettings | None = None,
    quality: Quality | None = None,
) -> Trajectory:
    """A trajectory that took so many turns, with the reward that it gets by itself."""
    report = make_report(verdict, fixed=fixed).model_copy(update={"quality": quality})
    steps = [make_step(index) for index in range(turns)]
    attempt = make_attempt(report, steps)
    trajectory = make_trajectory(sample, task_id=task_id, report=report, reward=0.0, steps=steps)
    return trajectory.model_copy(update={"reward": score(attempt, settings or RewardSettings())})
