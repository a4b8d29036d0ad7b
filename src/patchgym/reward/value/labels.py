"""Labels of steps, made without a person: what became of attempts that passed through the place that a step leads to.

Three sources, the best first. Below a node of a *search tree*: the share of the finished leaves there that are
solved. In a *group* of repeated samples: the share of the attempts that were in the same state of the workspace at
about the same turn that came to a solution. Else the attempt's *own outcome*.

A state's tree id tells nothing of how many turns are left: of two attempts that both changed nothing so far, the one at
its last turn has lost. So a group's attempts count for a step only where they were in its state within ``NEAR`` turns.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from patchgym.records import Step, Trajectory, Tree, Verdict
from patchgym.records.outcome import hacked, solved

NEAR = 1
"""Turns that two visits of one state may lie apart and still be the same place."""


class LabelledPath(NamedTuple):
    """The steps of one attempt with a label for each (None: do not learn from this one, it stands elsewhere too)."""

    id: str
    task_id: str
    group_id: str
    steps: tuple[Step, ...]
    labels: tuple[float | None, ...]
    counts: tuple[int, ...]
    """How many finished attempts each label is the mean of."""
    source: Literal["tree", "group", "outcome"]
    """Where the labels come from; ``outcome`` where no label rests on more than this attempt."""
    outcome: float
    """1 where this attempt solved its task, else 0."""


def outcome_of(trajectory: Trajectory) -> float | None:
    """1 where the attempt solved its task (``patchgym.records.outcome``), 0 where it did not; None where that is not
    known, where its reward may not be used, and where it waits for a person: nothing is learned of such a one."""
    came = solved(trajectory)
    if came is None or not trajectory.reward_trusted or _waits(trajectory):
        return None
    return float(came)


def _waits(trajectory: Trajectory) -> bool:
    report = trajectory.report
    return report is not None and report.verdict is Verdict.ABSTAINED and not hacked(trajectory)


def label_paths(
    trajectories: Iterable[Trajectory], trees: Iterable[Tree] = (), *, near: int = NEAR, own_outcome: bool = False
) -> list[LabelledPath]:
    """Every graded attempt with the labels of its steps. Paths of a search tree are labelled from the ``trees`` and are
    left out of ``trajectories``. With ``own_outcome`` each step is labelled with its attempt's outcome alone."""
    found: list[LabelledPath] = []
    groups: dict[str, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        if outcome_of(trajectory) is not None and trajectory.tree_id is None and trajectory.steps:
            groups[trajectory.group_id].append(trajectory)
    for members in groups.values():
        found += [_plain(one) for one in members] if own_outcome else _group(members, near)
    for tree in trees:
        paths = _tree(tree)
        found += [path._replace(labels=(path.outcome,) * len(path.steps)) for path in paths] if own_outcome else paths
    return found


def _plain(one: Trajectory) -> LabelledPath:
    outcome = _known(one)
    size = len(one.steps)
    return LabelledPath(
        one.id, one.task_id, one.group_id, one.steps, (outcome,) * size, (1,) * size, "outcome", outcome
    )


def _group(members: Sequence[Trajectory], near: int) -> list[LabelledPath]:
    """Label the steps of a group's attempts by all of them."""
    visits: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for number, one in enumerate(members):
        for turn, step in enumerate(one.steps):
            if step.state_after is not None:
                visits[step.state_after].setdefault(number, []).append(turn)
    outcomes = [_known(one) for one in members]
    paths = []
    for number, one in enumerate(members):
        labels, counts = [], []
        for turn, step in enumerate(one.steps):
            passed = {number}
            if step.state_after is not None and turn < len(one.steps) - 1:
                # The last step is where this attempt ended: nobody goes on from there.
                for other, turns in visits[step.state_after].items():
                    ends = len(members[other].steps) - 1
                    if any(abs(at - turn) <= near and at < ends for at in turns):
                        passed.add(other)
            labels.append(sum(outcomes[other] for other in passed) / len(passed))
            counts.append(len(passed))
        source: Literal["group", "outcome"] = "group" if max(counts) > 1 else "outcome"
        paths.append(
            LabelledPath(
                one.id, one.task_id, one.group_id, one.steps, tuple(labels), tuple(counts), source, outcomes[number]
            )
        )
    return paths


def _tree(tree: Tree) -> list[LabelledPath]:
    """Every finished path of a tree; a node that several share is labelled in the first of them alone."""
    below: dict[int, list[float]] = defaultdict(list)
    finished = [(one, outcome) for one in tree.trajectories() if (outcome := outcome_of(one)) is not None]
    for one, outcome in finished:
        for step in one.steps:
            below[step.index].append(outcome)
    seen: set[int] = set()
    paths = []
    for one, outcome in finished:
        labels = tuple(
            sum(below[step.index]) / len(below[step.index]) if step.index not in seen else None for step in one.steps
        )
        counts = tuple(len(below[step.index]) for step in one.steps)
        seen |= {step.index for step in one.steps}
        if one.steps:
            paths.append(LabelledPath(one.id, one.task_id, one.group_id, one.steps, labels, counts, "tree", outcome))
    return paths


def _known(trajectory: Trajectory) -> float:
    outcome = outcome_of(trajectory)
    assert outcome is not None
    return outcome
