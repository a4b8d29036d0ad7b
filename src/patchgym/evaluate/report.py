"""One policy on one set of tasks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from patchgym.evaluate.estimates import Estimate, pass_at_1, pass_at_k
from patchgym.evaluate.failures import FailureType, failure_type
from patchgym.records import Record, Task, Trajectory, Verdict


class EvalReport(Record):
    """What a policy did on a set of tasks.

    ``solved`` maps task ids to the outcomes of their valid samples, in order. ``infra_failures`` are in no
    denominator. ``pass_at_k`` maps k to the mean over tasks with at least k valid samples. ``mean_steps`` and
    ``mean_tokens`` (sampled) are over valid trajectories, ``valid_action_rate`` over their steps; None where there is
    nothing to average.
    """

    policy_version: str
    tasks: int
    trajectories: int
    infra_failures: int
    solved: dict[str, tuple[bool, ...]]
    pass_at_1: Estimate | None
    pass_at_k: dict[int, float]
    mean_steps: float | None
    mean_tokens: float | None
    mean_reward: float | None
    valid_action_rate: float | None
    failures: dict[FailureType, int]


def evaluate(trajectories: Iterable[Trajectory], tasks: Sequence[Task], *, seed: int = 0) -> EvalReport:
    """Measure the trajectories of one policy; ``tasks`` are those that they belong to.

    Raises:
        KeyError: a trajectory belongs to none of ``tasks``.
    """
    found = list(trajectories)
    by_id = {task.id: task for task in tasks}
    valid = [t for t in found if t.report is not None and t.report.verdict is not Verdict.INFRA_ERROR]
    solved: dict[str, list[bool]] = {}
    for trajectory in sorted(valid, key=lambda t: (t.task_id, t.sample_index)):
        assert trajectory.report is not None
        solved.setdefault(trajectory.task_id, []).append(trajectory.report.verdict is Verdict.RESOLVED)
    steps = [step for trajectory in valid for step in trajectory.steps]
    rewards = [t.reward.value for t in valid if t.reward is not None and t.reward.value is not None]
    failures = Counter(failure_type(trajectory, by_id[trajectory.task_id]) for trajectory in found)
    return EvalReport(
        policy_version=", ".join(sorted({str(trajectory.policy.version) for trajectory in found})),
        tasks=len({trajectory.task_id for trajectory in found}),
        trajectories=len(found),
        infra_failures=len(found) - len(valid),
        solved={task: tuple(outcomes) for task, outcomes in solved.items()},
        pass_at_1=pass_at_1(solved, seed=seed),
        pass_at_k=_pass_at_ks(solved),
        mean_steps=_mean([len(trajectory.steps) for trajectory in valid]),
        mean_tokens=_mean(
            [sum(step.usage.sampled_tokens for step in trajectory.steps if step.usage) for trajectory in valid]
        ),
        mean_reward=_mean(rewards),
        valid_action_rate=_mean([step.action is not None for step in steps]),
        failures={kind: failures[kind] for kind in FailureType if failures[kind]},
    )


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _pass_at_ks(solved: Mapping[str, Sequence[bool]]) -> dict[int, float]:
    """pass@k for k = 1, 2, 4, ... as far as the samples of some task reach."""
    found: dict[int, float] = {}
    k = 1
    while values := [pass_at_k(len(o), sum(o), k) for o in solved.values() if len(o) >= k]:
        found[k] = fmean(values)
        k *= 2
    return found
