"""What a set of trajectories comes to, in the words of the command line."""

from collections import Counter
from collections.abc import Iterable

from patchgym.records import Record, StopReason, Trajectory, Verdict
from patchgym.records.outcome import solved


class RunCounts(Record):
    """Counts of trajectories, and of their verdicts. ``solved`` is that of ``patchgym.records.outcome``: resolved,
    without proof of hacking, and not lost. ``tasks`` counts different tasks; ``mean_reward`` is over scored ones and
    None where there is none; ``valid_action_rate`` is the share of steps whose action could be read; ``submitted``
    counts episodes that the agent itself ended. Of a run on a cluster, ``redone`` counts attempts that were made again
    because their worker was lost, and ``set_aside`` those that were given up for it; both are None elsewhere."""

    tasks: int
    trajectories: int
    solved: int
    resolved: int
    unresolved: int
    tampered: int
    invalid: int
    timeout: int
    infra_error: int
    abstained: int
    submitted: int
    steps: int
    mean_reward: float | None
    valid_action_rate: float | None
    redone: int | None = None
    set_aside: int | None = None


class Counting:
    """Counts trajectories one by one, without keeping them."""

    def __init__(self) -> None:
        self._tasks: set[str] = set()
        self._verdicts: Counter[str] = Counter()
        self._submitted = self._steps = self._readable = self._solved = 0
        self._rewards: list[float] = []

    def add(self, trajectory: Trajectory) -> None:
        """Count one more."""
        self._tasks.add(trajectory.task_id)
        self._verdicts[(trajectory.report.verdict if trajectory.report else Verdict.INFRA_ERROR).value] += 1
        self._solved += solved(trajectory) is True
        self._submitted += trajectory.stop is StopReason.SUBMITTED
        self._steps += len(trajectory.steps)
        self._readable += sum(step.action is not None for step in trajectory.steps)
        if trajectory.reward is not None and trajectory.reward.value is not None:
            self._rewards.append(trajectory.reward.value)

    def counts(self) -> RunCounts:
        """What was counted so far."""
        return RunCounts(
            tasks=len(self._tasks),
            trajectories=self._verdicts.total(),
            solved=self._solved,
            **{verdict.value: self._verdicts[verdict.value] for verdict in Verdict},
            submitted=self._submitted,
            steps=self._steps,
            mean_reward=sum(self._rewards) / len(self._rewards) if self._rewards else None,
            valid_action_rate=self._readable / self._steps if self._steps else None,
        )


def count_run(trajectories: Iterable[Trajectory]) -> RunCounts:
    """Count them."""
    counting = Counting()
    for trajectory in trajectories:
        counting.add(trajectory)
    return counting.counts()
