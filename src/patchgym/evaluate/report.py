"""One policy on one set of tasks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import ClassVar

from pydantic import Field

from patchgym.content import ObjectStore
from patchgym.evaluate.attempts import Attempt, attempt_of
from patchgym.evaluate.bootstrap import RESAMPLES, Estimate, ratio_estimates
from patchgym.evaluate.conditions import conditions_of
from patchgym.evaluate.estimates import PassAt, pass_at_each
from patchgym.evaluate.failures import FailureType, Places
from patchgym.evaluate.places import places_of
from patchgym.evaluate.power import Power, power_alone
from patchgym.evaluate.stability import Stability, stability_of
from patchgym.records import Task, Trajectory, VersionedRecord
from patchgym.records.timeouts import timeout_of

_FEW_TASKS = 30


class EvalReport(VersionedRecord):
    """What a policy did on a set of tasks.

    An attempt is valid where it was graded and infrastructure did not spoil it; all figures but counts are over valid
    attempts, and None where there is nothing to average or it was not recorded.
    """

    VERSION: ClassVar[int] = 1

    policy_version: str
    """The versions that acted, separated by commas."""
    tasks: int
    """Different tasks that were tried."""
    trajectories: int
    """Attempts, valid or not."""
    infra_failures: int
    """Attempts that say nothing of the policy: in no denominator."""
    ungraded: int = 0
    """Attempts that came to their end and that nobody graded (imported ones): in no denominator either."""
    solved: dict[str, tuple[bool, ...]]
    """Task ids to the outcomes of their valid attempts, in the order of their samples."""
    pass_at_1: Estimate | None
    """The mean over tasks of the share of their valid attempts that solved them."""
    pass_at_k: dict[int, float]
    """k to the mean over tasks with at least k valid attempts of the unbiased estimate."""
    pass_at: tuple[PassAt, ...] = ()
    """The same with intervals, and with how many tasks each rests on."""
    mean_steps: float | None
    """Steps of an attempt."""
    mean_tokens: float | None
    """Sampled tokens of an attempt, over those of which that is known."""
    mean_reward: float | None
    """Rewards, over those that have one."""
    steps: Estimate | None = None
    """``mean_steps`` with its interval, by tasks."""
    tokens: Estimate | None = None
    """``mean_tokens`` with its interval, by tasks."""
    steps_to_solve: Estimate | None = None
    """Steps of an attempt that solved its task."""
    valid_action_rate: float | None
    """The share of steps whose action could be read."""
    failures: dict[FailureType, int]
    """How many attempts failed in each way, infrastructure's among them."""
    timeouts: dict[str, int] = Field(default_factory=dict)
    """Attempts that time ran out for, by what used it up: ``policy``, ``machine``, ``sandbox``, ``endpoint``,
    ``unknown``. Those of policy and unknown are the policy's failures, the others infrastructure's."""
    stability: Stability | None = None
    """How far repeats agree; None with one sample a task."""
    power: Power | None = None
    """What these tasks can show of a difference between two policies like this one."""
    task_hashes: dict[str, str] = Field(default_factory=dict)
    """Task ids to the content hashes of the tasks, where they are known."""
    conditions: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """What was measured under, as the attempts record it (``patchgym.evaluate.conditions``)."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt, by task and sample."""
    notes: tuple[str, ...] = ()
    """What limits these figures, in words."""
    seed: int = 0
    """Of the bootstrap."""
    resamples: int = RESAMPLES
    """Draws of the bootstrap."""


def evaluate(
    trajectories: Iterable[Trajectory],
    tasks: Sequence[Task],
    *,
    seed: int = 0,
    objects: ObjectStore | None = None,
    notes: Sequence[str] = (),
) -> EvalReport:
    """Measure the trajectories of one policy, read once; ``tasks`` are those that they belong to (of another one only
    what the record itself holds is told). ``seed`` is of the bootstrap. ``objects``, a store that holds the tasks'
    workspaces, lets a patch to the right file and the wrong function be told from one to the right function. ``notes``
    are put before the report's own.

    Raises:
        DataError: a task's workspace is not in ``objects``.
    """
    by_id = {task.id: task for task in tasks}
    places = _places(objects) if objects is not None else None
    reading = _Reading()
    attempts = []
    for trajectory in trajectories:
        attempt = attempt_of(trajectory, by_id.get(trajectory.task_id), places)
        attempts.append(attempt)
        reading.add(trajectory, attempt)
    attempts.sort(key=lambda one: (one.task, one.sample, one.id))
    valid = [one for one in attempts if one.solved is not None]
    solved: dict[str, list[bool]] = {}
    for one in valid:
        solved.setdefault(one.task, []).append(bool(one.solved))
    each = pass_at_each(solved, most=1 if reading.tree_paths else None, seed=seed)
    failures = Counter(one.failure for one in attempts if one.failure is not None)
    return EvalReport(
        policy_version=", ".join(sorted(reading.versions)),
        tasks=len({one.task for one in attempts}),
        trajectories=len(attempts),
        infra_failures=failures[FailureType.INFRASTRUCTURE],
        ungraded=sum(one.solved is None and one.failure is None for one in attempts),
        solved={task: tuple(outcomes) for task, outcomes in solved.items()},
        pass_at_1=each[0].estimate if each else None,
        pass_at_k={one.k: one.estimate.value for one in each},
        pass_at=tuple(each),
        mean_steps=_mean([one.steps for one in valid]),
        mean_tokens=_mean([one.tokens for one in valid if one.tokens is not None]),
        mean_reward=_mean([one.reward for one in valid if one.reward is not None]),
        steps=_clustered({one.id: (one.task, one.steps) for one in valid}, seed),
        tokens=_clustered({one.id: (one.task, one.tokens) for one in valid if one.tokens is not None}, seed),
        steps_to_solve=_clustered({one.id: (one.task, one.steps) for one in valid if one.solved}, seed),
        valid_action_rate=reading.readable / reading.steps if reading.steps else None,
        failures={kind: failures[kind] for kind in FailureType if failures[kind]},
        timeouts=dict(reading.timeouts),
        stability=stability_of(attempts) if not reading.tree_paths else None,
        power=power_alone(solved),
        task_hashes=reading.task_hashes,
        conditions=reading.conditions(),
        attempts=tuple(attempts),
        notes=(*notes, *_notes(attempts, valid, solved, reading)),
        seed=seed,
    )


class _Reading:
    """What is gathered while trajectories go by, so that none has to be kept."""

    def __init__(self) -> None:
        self.versions: set[str] = set()
        self.task_hashes: dict[str, str] = {}
        self.timeouts: Counter[str] = Counter()
        self.steps = self.readable = self.tree_paths = 0
        self._conditions: dict[str, set[str]] = {}

    def add(self, trajectory: Trajectory, attempt: Attempt) -> None:
        self.versions.add(str(trajectory.policy.version))
        self.tree_paths += trajectory.tree_id is not None
        if trajectory.task_hash is not None:
            self.task_hashes[trajectory.task_id] = trajectory.task_hash
        report = trajectory.report
        whose = (report.timeout_of if report is not None else None) or timeout_of(trajectory)
        if whose is not None:
            self.timeouts[whose] += 1
        for name, values in conditions_of(trajectory).items():
            self._conditions.setdefault(name, set()).update(values)
        if attempt.solved is not None:
            self.steps += len(trajectory.steps)
            self.readable += sum(step.action is not None for step in trajectory.steps)

    def conditions(self) -> dict[str, tuple[str, ...]]:
        return {name: tuple(sorted(values)) for name, values in self._conditions.items()}


def _places(objects: ObjectStore) -> Places:
    known: dict[tuple[str, str], frozenset[str] | None] = {}

    def places(task: Task, patch: str) -> frozenset[str] | None:
        key = task.workspace, patch
        if key not in known:
            known[key] = places_of(patch, task.workspace, objects)
        return known[key]

    return places


def _clustered(values: Mapping[str, tuple[str, float]], seed: int) -> Estimate | None:
    """The mean over attempts of a value, with an interval by tasks."""
    sums: dict[str, list[float]] = {}
    for task, value in values.values():
        sums.setdefault(task, []).append(value)
    if not sums:
        return None
    numerators, denominators = (
        [[sum(found)] for found in sums.values()],
        [[float(len(found))] for found in sums.values()],
    )
    return ratio_estimates(numerators, denominators, None, seed=seed)[0]


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _notes(
    attempts: Sequence[Attempt], valid: Sequence[Attempt], solved: Mapping[str, Sequence[bool]], reading: _Reading
) -> list[str]:
    """What limits the figures."""
    found = []
    if not attempts:
        found.append("There is no attempt.")
    elif not valid:
        found.append("No attempt is valid: nothing was measured.")
    lost = sorted({one.task for one in attempts} - solved.keys())
    if valid and lost:
        found.append(f"{len(lost)} tasks have no valid attempt and are in no figure, first {lost[0]}.")
    if 0 < len(solved) < _FEW_TASKS:
        found.append(f"Fewer than {_FEW_TASKS} tasks: an interval of so few says little of others.")
    if len(reading.versions) > 1:
        found.append(f"{len(reading.versions)} policy versions acted: this is no frozen policy.")
    if reading.tree_paths:
        found.append("Paths of search trees are no independent attempts: only pass@1 is told, as the mean of paths.")
    told = sum(one.verdict is not None for one in valid) and "imported" in reading.conditions().get("grader", ())
    if told:
        found.append("Some verdicts are what a log says; nobody here ran the tests.")
    looked = sum(one.failure is FailureType.ABSTAINED for one in valid)
    if looked:
        found.append(f"{looked} attempts pass their tests and wait for a person to look; they count as not solved.")
    counts = {len(outcomes) for outcomes in solved.values()}
    if len(counts) > 1:
        found.append(f"Tasks have {min(counts)} to {max(counts)} valid attempts; each task counts alike in pass@1.")
    return found
