"""What an evaluation keeps of each attempt."""

from patchgym.evaluate.failures import FailureType, Places, failure_of
from patchgym.records import Record, Task, Trajectory, Verdict
from patchgym.records.outcome import solved


class Attempt(Record):
    """One attempt at one task.

    ``solved`` is that of ``patchgym.records.outcome``: None where infrastructure lost the attempt (``failure`` says so)
    or nobody graded it (``verdict`` is None). ``why`` is what in the record shows the type of its failure. ``steps`` is
    how many the record holds, ``tokens`` how many were sampled, None where a step does not say.
    """

    id: str
    task: str
    sample: int
    solved: bool | None
    verdict: Verdict | None
    failure: FailureType | None
    why: str = ""
    steps: int
    tokens: int | None
    reward: float | None


def attempt_of(trajectory: Trajectory, task: Task | None, places: Places | None = None) -> Attempt:
    """What is kept of a trajectory; ``task`` is None where it is not at hand, ``places`` as in ``failure_of``."""
    failure = failure_of(trajectory, task, places)
    report = trajectory.report
    return Attempt(
        id=trajectory.id,
        task=trajectory.task_id,
        sample=trajectory.sample_index,
        solved=solved(trajectory),
        verdict=report.verdict if report is not None else None,
        failure=failure.kind if failure is not None else None,
        why=failure.why if failure is not None else "",
        steps=len(trajectory.steps),
        tokens=_tokens(trajectory),
        reward=trajectory.reward.value if trajectory.reward is not None else None,
    )


def _tokens(trajectory: Trajectory) -> int | None:
    """Sampled tokens of all steps. Of several calls in one message, the first bears what it took."""
    if not trajectory.steps or any(step.usage is None and not step.continues for step in trajectory.steps):
        return None
    return sum(step.usage.sampled_tokens for step in trajectory.steps if step.usage is not None)
