"""Cleaning: what a run is worth training on, without secrets.

Empty trajectories are dropped and counted; failures are kept, and time-outs marked apart from them; duplicates are
marked; secrets and personal data are taken out.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Step, Trajectory
from patchgym.records.timeouts import timeout_of
from patchgym.redact import Known, Redactor
from patchgym.store import RunDirectory
from patchgym.store.copying import copy_task
from patchgym.traces.redaction import TrajectoryRedactor

_DURATION = re.compile(r"\d+\.\d+ ?s\b")


@dataclass
class Cleaning:
    """What cleaning did. ``timeouts`` counts by what used the time up, ``redacted`` what was taken out by its kind,
    ``without_ids`` the steps whose token ids went with it. ``problems`` says what could not be read."""

    read: int = 0
    kept: int = 0
    empty: int = 0
    empty_by_infrastructure: int = 0
    failures: int = 0
    duplicates: int = 0
    trajectories_redacted: int = 0
    without_ids: int = 0
    timeouts: Counter[str] = field(default_factory=Counter)
    redacted: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


class Cleaner:
    """Cleans trajectories one at a time, and remembers of each no more than a digest. What they name is read from
    ``source``, and what the cleaned ones reach is written to ``target``."""

    def __init__(self, source: ObjectStore, target: ObjectStore, known: Iterable[str | bytes] = ()) -> None:
        """``known`` are secrets to take out wherever they stand.

        Raises:
            UsageError: one of them is too short.
        """
        self.source = source
        self.done = Cleaning()
        self._redactor = TrajectoryRedactor(source, target, Redactor(Known(known)))
        self._seen: dict[bytes, str] = {}

    def clean(self, trajectory: Trajectory) -> Trajectory | None:
        """A trajectory as it is kept; None where it is empty.

        Raises:
            DataError: an object that it names is missing or damaged.
            StorageError: the disk is full.
        """
        done = self.done
        done.read += 1
        if is_empty(trajectory):
            done.empty += 1
            done.empty_by_infrastructure += trajectory.status == "infra_error"
            return None
        redacted = self._redactor.redacted(trajectory)
        first = self._seen.setdefault(signature(trajectory), redacted.id)
        whose = timeout_of(trajectory)
        cleaned = redacted.model_copy(
            update={"timeout_of": whose, "duplicate_of": first if first != redacted.id else None}
        )
        done.kept += 1
        done.failures += trajectory.report is not None and trajectory.report.verdict != "resolved"
        done.duplicates += cleaned.duplicate_of is not None
        done.timeouts.update([whose] if whose else [])
        before = Counter(trajectory.redacted or {})
        taken = Counter(cleaned.redacted or {}) - before
        done.redacted += taken
        done.trajectories_redacted += bool(taken)
        done.without_ids += sum(
            old.tokens is not None and new.tokens is None
            for old, new in zip(trajectory.steps, cleaned.steps, strict=True)
        )
        return cleaned


def clean_run(
    old: RunDirectory,
    new: RunDirectory,
    known: Iterable[str | bytes] = (),
    on_trajectory: Callable[[Cleaning], None] = lambda done: None,
) -> Cleaning:
    """Write the cleaned trajectories of one run into another, one at a time, with the tasks that they are of. The old
    run is not changed. A trajectory that cannot be read is left out, and said to be. The paths of search trees come
    along as trajectories of their own, without the trees.

    Raises:
        UsageError: a known secret is too short.
        StorageError: the disk is full.
    """
    cleaner = Cleaner(old.objects, new.objects, known)
    done = cleaner.done
    done.problems += old.problems
    used = set()
    for trajectory in old.trajectories:
        try:
            cleaned = cleaner.clean(trajectory)
        except DataError as error:
            done.problems.append(f"{trajectory.id}: {error}; it is left out")
            continue
        if cleaned is not None:
            new.append(cleaned)
            used.add(cleaned.task_id)
        on_trajectory(done)
    _keep_tasks(old, new, used)
    return done


def _keep_tasks(old: RunDirectory, new: RunDirectory, used: set[str]) -> None:
    tasks = [task for task in old.tasks().values() if task.id in used]
    for task in tasks:
        copy_task(task, old.objects, new.objects)
    if tasks:
        new.keep_tasks(tasks)


def is_empty(trajectory: Trajectory) -> bool:
    """Whether the policy did nothing at all: no step holds an action or an answer."""
    return not any(
        step.action is not None or step.message.content.strip() or step.message.reasoning or step.message.tool_calls
        for step in trajectory.steps
    )


def signature(trajectory: Trajectory) -> bytes:
    """What is equal for two trajectories of one task with the same actions and observations. Durations in what a
    command printed do not count. A trajectory that names no task is of the task that it was first asked."""
    digest = hashlib.sha256(_task_of(trajectory).encode("utf-8", "surrogatepass"))
    for step in trajectory.steps:
        digest.update(_told(step).encode("utf-8", "surrogatepass"))
    return digest.digest()


def _task_of(trajectory: Trajectory) -> str:
    if trajectory.task_id != trajectory.id or trajectory.origin is None:
        return trajectory.task_id
    asked = [message.content for step in trajectory.steps[:1] for message in step.prompt]
    return json.dumps([trajectory.origin.repo, trajectory.origin.base_commit, asked])


def _told(step: Step) -> str:
    action, seen = step.action, step.observation
    asked = [action.tool, action.arguments] if action is not None else [step.message.content]
    answered = [seen.exit_code, seen.ok, _DURATION.sub("", seen.shown)] if seen is not None else None
    return json.dumps([step.parent, asked, answered], sort_keys=True)
