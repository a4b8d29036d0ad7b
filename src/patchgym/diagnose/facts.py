"""The figures of a run that the checks share, read once.

A trajectory belongs to a side by the phase that it was made in: ``demonstrate`` shows solutions, ``eval...`` measures,
everything else was sampled for training. Sampled phases are the rounds, in the order in which they were made.
"""

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import JsonValue, ValidationError

from patchgym.content import ObjectStore
from patchgym.diagnose.seen import Edit, Seen, seen
from patchgym.diagnose.variance import Grading
from patchgym.errors import DataError, PatchError
from patchgym.records import Task, Trajectory, Tree
from patchgym.reward import settle
from patchgym.reward.value import outcome_of
from patchgym.rollout.replay import Certificate
from patchgym.store import RunDirectory
from patchgym.train import UpdateReport

if TYPE_CHECKING:
    from patchgym.tasks.gates.findings import Finding as TaskFinding
    from patchgym.tasks.overlap.fingerprints import Fingerprint

DEMONSTRATED, MEASURED = "demonstrate", "eval"
WITHOUT_CHANCE = ("gold", "noop", "scripted")
"""Policies that do the same every time, and are never trained."""


@dataclass(frozen=True)
class Update:
    """One update as the run keeps it."""

    name: str
    report: UpdateReport


@dataclass(frozen=True)
class Valued:
    """A finished path of a search tree: what the value model said at its end, and what such a model learns of it (None
    where it does not learn of it)."""

    phase: str
    value: float
    outcome: float | None


@dataclass(frozen=True)
class TaskFacts:
    """The tasks that a run keeps, and what their own texts tell. Nothing is run. What was found is kept: tasks do not
    change while a run is made, and neither does what lies in its store (``looked_up``: what is wrong with an edit)."""

    tasks: Mapping[str, Task]
    objects: ObjectStore | None
    others: "tuple[TaskFacts, ...]" = ()
    looked_up: dict[Edit, str] = field(default_factory=dict)
    pairs: dict[tuple[frozenset[str], frozenset[str]], list[tuple[str, str, str]]] = field(default_factory=dict)

    def with_more(self, other: "TaskFacts") -> "TaskFacts":
        """These tasks and those of another run."""
        return TaskFacts(self.tasks, self.objects, (*self.others, other))

    @cached_property
    def leaks(self) -> "tuple[TaskFinding, ...]":
        """What statements give away, and hidden tests that can be read. A benchmark's statements are as they are."""
        from patchgym.tasks.gates.audit import Subject, check_hidden, check_statement

        found: list[TaskFinding] = []
        if self.objects is None:
            return ()
        with ExitStack() as stack:
            # Patched trees go into a store of their own: the run is not written to.
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="patchgym-diagnose-"))
            objects = ObjectStore(Path(scratch), self.objects)
            for task in (task for task in self.tasks.values() if task.source.kind != "benchmark"):
                subject = Subject(task, objects)
                try:
                    found += [*check_statement(subject), *check_hidden(subject)]
                except (DataError, PatchError) as error:
                    found.append(subject.finding("statement", "not_checked", str(error), "Make the run again."))
        return tuple(found)

    def overlap(self, train: frozenset[str], heldout: frozenset[str]) -> list[tuple[str, str, str]]:
        """Pairs of a training and a held-out task that have too much in common, with what that is."""
        from patchgym.tasks.overlap.refuse import overlap_between

        if (train, heldout) not in self.pairs:
            first, second = (self._fingerprints(side) for side in (train, heldout))
            found = [(first[p.first].id, second[p.second].id, p.why.value) for p in overlap_between(first, second)]
            self.pairs[train, heldout] = found
        return self.pairs[train, heldout]

    def _fingerprints(self, wanted: frozenset[str]) -> "list[Fingerprint]":
        from patchgym.tasks.overlap.fingerprints import fingerprint_tasks

        found, left = [], set(wanted)
        for about in (self, *self.others):
            mine = sorted(left & about.tasks.keys())
            if about.objects is not None:
                found += fingerprint_tasks([about.tasks[name] for name in mine], about.objects)
            left -= set(mine)
        return found


@dataclass(frozen=True)
class Facts:
    """A run, read. ``attempts`` are all trajectories with the rewards that they have in their groups; ``unread`` says
    why updates cannot be read."""

    run: str
    command: str
    config: Mapping[str, JsonValue]
    attempts: tuple[Seen, ...]
    about: TaskFacts
    updates: tuple[Update, ...] = ()
    unread: tuple[str, ...] = ()
    certificate: Certificate | None = None
    problems: tuple[str, ...] = ()
    in_progress: bool = False
    valued: tuple[Valued, ...] = ()
    regraded: Sequence[Grading] = ()
    against: "Facts | None" = None

    @property
    def tasks(self) -> Mapping[str, Task]:
        """The tasks by id."""
        return self.about.tasks

    @cached_property
    def demonstrations(self) -> tuple[Seen, ...]:
        """Attempts that follow the known solution."""
        return tuple(one for one in self.attempts if one.light.phase == DEMONSTRATED or one.light.policy.spec == "gold")

    @cached_property
    def rounds(self) -> dict[str, list[Seen]]:
        """What was sampled for training, by phase in order."""
        found: dict[str, list[Seen]] = {}
        for one in self.attempts:
            if one.light.phase != DEMONSTRATED and not one.light.phase.startswith(MEASURED):
                found.setdefault(one.light.phase, []).append(one)
        return found

    @cached_property
    def sampled(self) -> tuple[Seen, ...]:
        """All of that which a policy with chance in it did."""
        every = (one for members in self.rounds.values() for one in members)
        return tuple(one for one in every if not one.imported and has_chance(one))

    @cached_property
    def measured(self) -> dict[str, list[Seen]]:
        """Evaluations, by phase in order."""
        found: dict[str, list[Seen]] = {}
        for one in self.attempts:
            if one.light.phase.startswith(MEASURED):
                found.setdefault(one.light.phase, []).append(one)
        return found

    @property
    def own(self) -> tuple[Seen, ...]:
        """What was made here, and not imported."""
        return tuple(one for one in self.attempts if not one.imported)

    @property
    def learning(self) -> tuple[Update, ...]:
        """Updates by reward, without those that imitate."""
        return tuple(update for update in self.updates if update.report.algorithm != "sft")


def has_chance(one: Seen) -> bool:
    """Whether its policy draws what it does."""
    return not one.light.policy.spec.startswith(WITHOUT_CHANCE)


@dataclass
class Reader:
    """Reads runs, and of each trajectory its steps only once. ``regraded`` are further gradings of patches."""

    about: TaskFacts | None = None
    known: dict[str, Seen] = field(default_factory=dict)
    valued: dict[str, tuple[Valued, ...]] = field(default_factory=dict)

    def read(self, run: RunDirectory) -> None:
        """Read what was not read yet of a run, trees first: their paths are trajectories too."""
        if self.about is None:
            self.about = TaskFacts(run.tasks(), run.objects)
        for name in run.tree_ids:
            if name not in self.valued:
                tree = run.tree(name)
                self.take(tree.trajectories(), self.about.tasks)
                self.valued[name] = tuple(_valued(tree))
        self.take((run.trajectory(name) for name in run.ids if name not in self.known), self.about.tasks)

    def take(self, found: Iterable[Trajectory], tasks: Mapping[str, Task]) -> None:
        """Read trajectories that were not read yet."""
        for one in found:
            if one.id not in self.known:
                self.known[one.id] = seen(one, tasks.get(one.task_id))

    def settled(self) -> tuple[Seen, ...]:
        """All that was read, with the rewards that they have in their groups."""
        every = list(self.known.values())
        lights = settle(one.light for one in every)
        return tuple(replace(one, light=light) for one, light in zip(every, lights, strict=True))


def read_facts(
    run: RunDirectory, regraded: Sequence[Grading] = (), against: Facts | None = None, reader: Reader | None = None
) -> Facts:
    """Read a run directory. With a ``reader``, what that has read before is not read again.

    Raises:
        DataError: its tasks or metrics are damaged or of another version.
    """
    reader = reader or Reader()
    reader.read(run)
    assert reader.about is not None
    rows = _metrics(run)
    updates, unread = _updates(rows)
    return Facts(
        run=run.manifest.id,
        command=run.manifest.command,
        config=run.manifest.config,
        attempts=reader.settled(),
        about=reader.about,
        updates=tuple(updates),
        unread=tuple(unread),
        certificate=_certificate(run),
        problems=tuple(run.problems),
        in_progress=run.in_progress,
        valued=tuple(one for of_tree in reader.valued.values() for one in of_tree),
        regraded=regraded,
        against=against,
    )


def _metrics(run: RunDirectory) -> list[dict[str, JsonValue]]:
    try:
        return run.metrics()
    except ValueError as error:
        raise DataError(
            f"{run.path}/metrics.jsonl holds a line that is not JSON",
            why=str(error),
            mend="Remove or repair that line.",
        ) from error


def _updates(rows: Iterable[Mapping[str, JsonValue]]) -> tuple[list[Update], list[str]]:
    """The updates, and why others cannot be read."""
    found, unread = [], []
    for row in rows:
        if row.get("kind") != "update":
            continue
        try:
            found.append(Update(str(row.get("name")), UpdateReport.model_validate(row.get("report"))))
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            unread.append(
                f"the update {row.get('name')} is damaged or was written by another release ({place}: {first['msg']})"
            )
    return found, unread


def _certificate(run: RunDirectory) -> Certificate | None:
    path = run.path / "replay.json"
    if not path.is_file():
        return None
    try:
        return Certificate.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(
            f"{path} is no certificate of this release", mend=f"Make it again: patchgym replay {run.path}"
        ) from error


def _valued(tree: Tree) -> Iterable[Valued]:
    finished = (leaf for leaf in tree.leaves if leaf.stop is not None)
    for leaf, path in zip(finished, tree.trajectories(), strict=True):
        value = tree.nodes[leaf.node].value if leaf.node is not None else None
        if value is not None:
            yield Valued(tree.phase, value, outcome_of(path))
