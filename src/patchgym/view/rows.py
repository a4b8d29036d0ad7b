"""What lists and charts need of a trajectory: one flat row."""

from collections.abc import Mapping
from typing import NamedTuple

from patchgym.content import patched_paths
from patchgym.errors import PatchError
from patchgym.evaluate import failure_type
from patchgym.records import Task, Trajectory, Verdict
from patchgym.records.outcome import evidence_against, hacked, solved


class Row(NamedTuple):
    """One trajectory, flat. None: not measured, or not known."""

    id: str
    phase: str
    task: str
    split: str | None
    grp: str
    sample: int
    policy: str
    version: str | None
    tree: str | None
    offset: int
    bytes: int
    steps: int
    readable: int | None
    """Steps whose action could be read."""
    tokens: int | None
    """Sampled tokens, where every step says how many."""
    stop: str | None
    status: str
    verdict: str | None
    solved: int | None
    """1 or 0; None where infrastructure lost it or nobody graded it, which is in no denominator."""
    reward: float | None
    gate: str | None
    failure: str | None
    trusted: int
    baseline: int
    hacked: int
    """1 where hacking is proved, else 0."""
    proofs: int
    """Pieces of evidence that prove tampering."""
    marks: int
    """Pieces that are for a person to look at."""
    visible: float | None
    """Share of the failing tests that the agent could see that pass."""
    hidden: float | None
    """Share of those that it could not."""
    seconds: float | None
    started: str | None
    files: int | None
    """Files that its patch touches."""
    lines: int | None
    """Lines that its patch adds and removes."""
    timeout_of: str | None
    duplicate_of: str | None
    imported: int


_KINDS = {str: "TEXT", int: "INTEGER", float: "REAL"}
COLUMNS: dict[str, str] = {
    name: next(kind for python, kind in _KINDS.items() if python.__name__ in str(annotation))
    for name, annotation in Row.__annotations__.items()
}
"""Names and SQLite types, in order."""


def row_of(one: Trajectory, tasks: Mapping[str, Task], offset: int, length: int) -> Row:
    """The row of a trajectory whose line begins at ``offset`` and has ``length`` bytes."""
    task = tasks.get(one.task_id)
    report, reward = one.report, one.reward
    counts = [step.usage.sampled_tokens if step.usage is not None else None for step in one.steps]
    found, came = evidence_against(one), solved(one)
    proofs = sum(piece.proof for piece in found)
    visible, hidden = _fixed(one)
    patch = one.final_patch
    return Row(
        id=one.id,
        phase=one.phase,
        task=one.task_id,
        split=task.split if task is not None else None,
        grp=one.group_id,
        sample=one.sample_index,
        policy=one.policy.spec,
        version=one.policy.version,
        tree=one.tree_id,
        offset=offset,
        bytes=length,
        steps=len(one.steps),
        readable=sum(step.action is not None for step in one.steps),
        tokens=sum(count for count in counts if count is not None) if None not in counts else None,
        stop=one.stop,
        status=one.status,
        verdict=report.verdict if report is not None else None,
        solved=int(came) if came is not None else None,
        reward=reward.value if reward is not None else None,
        gate=reward.gate if reward is not None else None,
        failure=_failure(one, task),
        trusted=one.reward_trusted,
        baseline=one.in_baseline,
        hacked=hacked(one),
        proofs=proofs,
        marks=len(found) - proofs,
        visible=visible,
        hidden=hidden,
        seconds=one.timing.total_seconds,
        started=one.timing.started_at.isoformat() if one.timing.started_at is not None else None,
        files=_touched(patch),
        lines=_changed(patch),
        timeout_of=one.timeout_of,
        duplicate_of=one.duplicate_of,
        imported=one.origin is not None,
    )


def _failure(one: Trajectory, task: Task | None) -> str | None:
    """Why it failed; None where it did not, and where the run does not hold its task."""
    if task is None or (one.report is None and one.origin is not None):
        return None
    try:
        return failure_type(one, task)
    except PatchError:  # an imported patch may be anything
        return None


def _fixed(one: Trajectory) -> tuple[float | None, float | None]:
    report = one.report
    if report is None or report.verdict in (Verdict.INFRA_ERROR, Verdict.INVALID):
        return None, None
    seen = report.fail_to_pass.total - report.hidden.total
    visible = (report.fail_to_pass.passed - report.hidden.passed) / seen if seen > 0 else None
    return visible, report.hidden.share if report.hidden.total else None


def _touched(patch: str | None) -> int | None:
    if patch is None:
        return None
    try:
        return len(patched_paths(patch))
    except PatchError:
        return None


def _changed(patch: str | None) -> int | None:
    if patch is None:
        return None
    lines = patch.split("\n")
    return sum(line.startswith(("+", "-")) and not line.startswith(("+++ ", "--- ")) for line in lines)
