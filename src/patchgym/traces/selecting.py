"""Rejection sampling: the trajectories that are worth learning from, out of samples and search trees alike."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.config import Settings
from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_objects, copy_task


class AcceptanceRule(Settings):
    """What is accepted: a verdict among ``verdicts``, a reward of at least ``min_reward`` (None: any), at most
    ``most_steps`` steps (0: any number), and not the same actions as one that is accepted already. Of each task at most
    ``per_task`` (0: all), those that are ``prefer``red: the shortest, of the highest reward, or the first made."""

    verdicts: tuple[str, ...] = ("resolved",)
    min_reward: float | None = None
    most_steps: int = 0
    per_task: int = 0
    prefer: Literal["shortest", "reward", "first"] = "shortest"


@dataclass(frozen=True)
class _Candidate:
    run: int
    id: str
    task: str
    steps: int
    reward: float
    actions: bytes


@dataclass
class Selection:
    """What became of the trajectories: how many there were, which are accepted, and the others counted by reason."""

    read: int
    accepted: list[str]
    refused: dict[str, int]


def accepted(trajectories: Iterable[Trajectory], rule: AcceptanceRule) -> Selection:
    """What the rule accepts of trajectories whose ids differ; nothing is copied."""
    refused: dict[str, int] = {}
    able: list[_Candidate] = []
    read = 0
    for one in trajectories:
        read += 1
        _sort_in(0, one, rule, able, refused)
    return Selection(read, [candidate.id for candidate in _chosen(able, rule, refused)], refused)


def select(
    runs: Sequence[RunDirectory],
    new: RunDirectory,
    rule: AcceptanceRule,
    on_read: Callable[[int], None] = lambda count: None,
) -> Selection:
    """Copy what the rule accepts of some runs into a new one, with its tasks. Only one trajectory is held at a time.

    Raises:
        DataError: two runs have a trajectory of one id, or an object is missing.
        StorageError: the disk is full.
    """
    refused: dict[str, int] = {}
    able: list[_Candidate] = []
    read = 0
    for number, run in enumerate(runs):
        for one in run.trajectories:
            read += 1
            on_read(read)
            _sort_in(number, one, rule, able, refused)
    chosen = _chosen(able, rule, refused)
    for candidate in chosen:
        trajectory = runs[candidate.run].trajectory(candidate.id)
        copy_objects(trajectory, runs[candidate.run].objects, new.objects)
        new.append(trajectory)
    tasks = {}
    for number, run in enumerate(runs):
        wanted = {candidate.task for candidate in chosen if candidate.run == number}
        for name, task in run.tasks().items():
            if name in wanted and name not in tasks:
                copy_task(task, run.objects, new.objects)
                tasks[name] = task
    new.keep_tasks(tasks.values())
    return Selection(read, [candidate.id for candidate in chosen], refused)


def _sort_in(run: int, one: Trajectory, rule: AcceptanceRule, able: list[_Candidate], refused: dict[str, int]) -> None:
    reason = _refused(one, rule)
    if reason is None:
        reward = one.reward.value if one.reward and one.reward.value is not None else 0.0
        able.append(_Candidate(run, one.id, one.task_id, len(one.steps), reward, _actions(one)))
    else:
        refused[reason] = refused.get(reason, 0) + 1


def _refused(one: Trajectory, rule: AcceptanceRule) -> str | None:
    if not one.reward_trusted and one.origin is None:
        return "infrastructure"
    if one.report is None or one.report.verdict not in rule.verdicts:
        return "verdict"
    if rule.min_reward is not None and (
        one.reward is None or one.reward.value is None or one.reward.value < rule.min_reward
    ):
        return "reward"
    return "too_long" if rule.most_steps and len(one.steps) > rule.most_steps else None


def _actions(one: Trajectory) -> bytes:
    digest = hashlib.sha256(one.task_id.encode())
    for step in one.steps:
        digest.update((step.action.model_dump_json(exclude={"call_id"}) if step.action else "-").encode() + b"\0")
    return digest.digest()


def _chosen(able: Sequence[_Candidate], rule: AcceptanceRule, refused: dict[str, int]) -> list[_Candidate]:
    order: dict[str, Callable[[_Candidate], tuple[float, ...]]] = {
        "shortest": lambda one: (one.steps, -one.reward),
        "reward": lambda one: (-one.reward, one.steps),
        "first": lambda one: (),
    }
    chosen: list[_Candidate] = []
    seen: set[bytes] = set()
    counts: dict[str, int] = {}
    for one in sorted(able, key=order[rule.prefer]):
        if one.actions in seen:
            refused["the_same_actions"] = refused.get("the_same_actions", 0) + 1
        elif rule.per_task and counts.get(one.task, 0) >= rule.per_task:
            refused["enough_of_its_task"] = refused.get("enough_of_its_task", 0) + 1
        else:
            chosen.append(one)
            seen.add(one.actions)
            counts[one.task] = counts.get(one.task, 0) + 1
    return chosen
