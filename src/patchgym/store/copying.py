"""What a trajectory names in its run's object store, taken along to another run."""

from collections.abc import Iterable

from patchgym.content import ObjectStore
from patchgym.records import Step, Task, Trajectory, Tree


def copy_objects(trajectory: Trajectory, source: ObjectStore, target: ObjectStore) -> None:
    """Copy the states, whole streams and attachments of a trajectory from one store to another.

    Raises:
        DataError: one of them is missing.
        StorageError: the disk is full.
    """
    _copy(trajectory.steps, {trajectory.final_state}, source, target)


def copy_tree_objects(tree: Tree, source: ObjectStore, target: ObjectStore) -> None:
    """Copy the same of a search tree, its unfinished paths included.

    Raises:
        DataError: one of them is missing.
        StorageError: the disk is full.
    """
    _copy([node.step for node in tree.nodes], {leaf.final_state for leaf in tree.leaves}, source, target)


def named_objects(trajectory: Trajectory) -> frozenset[str]:
    """The ids of the states, whole streams and attachments that a trajectory names."""
    states, blobs = _named(trajectory.steps, {trajectory.final_state})
    return frozenset(one for one in states | blobs if one is not None)


def _copy(steps: Iterable[Step], finals: Iterable[str | None], source: ObjectStore, target: ObjectStore) -> None:
    states, blobs = _named(steps, finals)
    for state in states - {None}:
        assert state is not None
        source.copy_tree(state, target)
    for blob in blobs - {None}:
        assert blob is not None
        if blob not in target:
            target.put(source.get(blob))


def _named(steps: Iterable[Step], finals: Iterable[str | None]) -> tuple[set[str | None], set[str | None]]:
    """The states and the blobs that steps name, with the states they end in."""
    states, blobs = set(finals), set[str | None]()
    for step in steps:
        states |= {step.state_before, step.state_after}
        if step.observation is not None:
            streams = (step.observation.stdout, step.observation.stderr)
            blobs |= {stream.blob for stream in streams if stream is not None}
        blobs |= {one.blob for message in (*step.prompt, step.message) for one in message.attachments}
    return states, blobs


def copy_task(task: Task, source: ObjectStore, target: ObjectStore) -> None:
    """Copy the workspace of a task, and all that it needs beside it, from one store to another.

    Raises:
        DataError: one of them is missing.
        StorageError: the disk is full.
    """
    source.copy_tree(task.workspace, target)
    for blob in sorted(task.blobs):
        if blob not in target:
            target.put(source.get(blob))
