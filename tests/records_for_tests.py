"""Small whole records to test with: real types, made-up values."""

from collections.abc import Sequence
from datetime import UTC, datetime

from patchgym.records import (
    Action,
    Environment,
    Limits,
    Message,
    Observation,
    Outcome,
    PolicyRef,
    Reward,
    RunManifest,
    Sampling,
    Scope,
    Source,
    Step,
    StepTokens,
    StopReason,
    Tally,
    Task,
    Term,
    TestReport,
    Tests,
    Timing,
    Trajectory,
    Usage,
    Verdict,
)

THEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def make_step(index: int = 0, *, ok: bool = True, readable: bool = True, tokens: StepTokens | None = None) -> Step:
    """A step that lists files."""
    return Step(
        index=index,
        parent=index - 1 if index else None,
        prompt=(Message(role="user", content="go on"),),
        message=Message(role="assistant", content="tool: list_files"),
        action=Action(tool="list_files", arguments={}) if readable else None,
        parse_error=None if readable else "No action found.",
        observation=Observation(shown="a.py", ok=ok),
        state_before=EMPTY_TREE,
        state_after=EMPTY_TREE,
        changed_paths=(),
        tokens=tokens,
        policy_version="test",
        sampling=Sampling(),
        usage=Usage(prompt_tokens=3, sampled_tokens=2),
        sampling_seconds=0.1,
        started_at=THEN,
    )


def make_report(
    verdict: Verdict = Verdict.UNRESOLVED, *, fixed: tuple[int, int] = (0, 2), kept: tuple[int, int] = (5, 5)
) -> TestReport:
    """A report with ``fixed`` = (passed, total) fail-to-pass and ``kept`` pass-to-pass tests."""
    return TestReport(
        verdict=verdict,
        tests={"t.py::a": Outcome.PASSED if verdict is Verdict.RESOLVED else Outcome.FAILED},
        fail_to_pass=Tally(passed=fixed[0], total=fixed[1]),
        pass_to_pass=Tally(passed=kept[0], total=kept[1]),
        hidden=Tally(passed=0, total=1),
        seconds=1.0,
        grader_version="test",
    )


def make_task(task_id: str = "demo-1", *, limits: Limits | None = None) -> Task:
    """A task whose tree is empty."""
    return Task(
        id=task_id,
        source=Source(kind="synthetic", repo="demo", change="swap < and <="),
        instruction="Two tests fail.",
        workspace=EMPTY_TREE,
        environment=Environment(python="3.11", lock=""),
        tests=Tests(
            fail_to_pass=("t.py::a", "t.py::b"),
            pass_to_pass=("t.py::c",),
            hidden=("t.py::b",),
            visible_files={},
            hidden_files={},
        ),
        gold_patch="",
        key_files=("src.py",),
        scope=Scope(files=1, hunks=1, lines=2),
        limits=limits or Limits(),
        split="train",
    )


def make_reward(first: float, *, gate: str, steps: float) -> Reward:
    """A reward whose second layer, a term ``steps``, waits for its group."""
    terms = {
        "outcome": Term(raw=first, weight=1.0, value=first, why="outcome", layer="outcome"),
        "steps": Term(raw=1.0, weight=1.0, value=steps, why="steps", layer="efficiency"),
    }
    return Reward(value=first, gate=gate, terms=terms, second_layer="waits")


def make_trajectory(
    sample: int = 0,
    *,
    task_id: str = "demo-1",
    phase: str = "round-1",
    steps: Sequence[Step] = (),
    report: TestReport | None = None,
    reward: float | None = None,
    patch: str = "",
    stop: StopReason = StopReason.SUBMITTED,
) -> Trajectory:
    """A trajectory; without a report it counts as lost to infrastructure."""
    return Trajectory(
        id=f"{phase}.{task_id}.{sample}",
        phase=phase,
        task_id=task_id,
        task_hash="0" * 64,
        group_id=f"{phase}/{task_id}",
        sample_index=sample,
        policy=PolicyRef(spec="noop", version="noop"),
        sandbox="namespace",
        steps=tuple(steps),
        final_state=EMPTY_TREE,
        final_patch=patch,
        stop=stop if report else StopReason.INFRASTRUCTURE,
        status="completed" if report else "infra_error",
        report=report,
        reward=Reward(value=reward, gate="test", terms={}) if report else None,
        reward_trusted=report is not None,
        in_baseline=report is not None,
        timing=Timing(
            started_at=THEN, total_seconds=2.0, sampling_seconds=1.0, acting_seconds=0.5, grading_seconds=0.5
        ),
    )


def make_manifest(**changes: object) -> RunManifest:
    """A run manifest."""
    values: dict[str, object] = {
        "id": "run",
        "command": "rollout",
        "config": {"samples": 2, "rollout": {"temperature": 1.0}},
        "versions": {"patchgym": "0"},
        "task_hashes": {"demo-1": "0"},
        "seed": 1,
        "created_at": THEN,
    }
    return RunManifest.model_validate({**values, **changes})
