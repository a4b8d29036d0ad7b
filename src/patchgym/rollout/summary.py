"""What a set of trajectories comes to, in the words of the command line."""

from collections.abc import Iterable

from patchgym.records import Record, StopReason, Trajectory, Verdict


class RunCounts(Record):
    """Counts of trajectories by verdict. ``tasks`` counts different tasks; ``mean_reward`` is over scored ones and
    None where there is none; ``valid_action_rate`` is the share of steps whose action could be read; ``submitted``
    counts episodes that the agent itself ended."""

    tasks: int
    trajectories: int
    resolved: int
    unresolved: int
    tampered: int
    invalid: int
    timeout: int
    infra_error: int
    submitted: int
    steps: int
    mean_reward: float | None
    valid_action_rate: float | None


def count_run(trajectories: Iterable[Trajectory]) -> RunCounts:
    """Count them."""
    found = list(trajectories)
    verdicts = [trajectory.report.verdict if trajectory.report else Verdict.INFRA_ERROR for trajectory in found]
    rewards = [t.reward.value for t in found if t.reward is not None and t.reward.value is not None]
    steps = [step for trajectory in found for step in trajectory.steps]
    return RunCounts(
        tasks=len({trajectory.task_id for trajectory in found}),
        trajectories=len(found),
        **{verdict.value: verdicts.count(verdict) for verdict in Verdict},
        submitted=sum(trajectory.stop is StopReason.SUBMITTED for trajectory in found),
        steps=len(steps),
        mean_reward=sum(rewards) / len(rewards) if rewards else None,
        valid_action_rate=sum(step.action is not None for step in steps) / len(steps) if steps else None,
    )
