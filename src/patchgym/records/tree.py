"""A search tree: many episodes of one task that share their beginnings."""

from collections.abc import Iterator
from typing import Literal

from pydantic import JsonValue

from patchgym.records.base import Record, VersionedRecord
from patchgym.records.message import ToolSpec
from patchgym.records.report import TestReport
from patchgym.records.reward import Reward
from patchgym.records.trajectory import Fault, PolicyRef, Step, StopReason, Timing, Trajectory


class TreeNode(Record):
    """One step of the tree, with what the search thought of it."""

    step: Step
    """Its ``index`` is its place in the tree's nodes, its ``parent`` that of the step before it."""
    value: float | None = None
    """How good the state after it looked, from 0 to 1; None where nobody asked."""
    visits: int = 0
    """How often the search passed through it."""
    pruned: Literal["duplicate_state", "low_value"] | None = None
    """Why nothing follows it, where the search cut it off."""


class Leaf(Record):
    """The end of one path."""

    node: int | None
    """The index of its last step; None where the episode ended before its first."""
    stop: StopReason | None
    """None where the search left it unfinished: it was cut off, or the budget was spent."""
    final_state: str
    final_patch: str
    faults: tuple[Fault, ...] = ()
    report: TestReport | None = None
    reward: Reward | None = None


class Tree(VersionedRecord):
    """A search over one task, whole. Every path from the root to a leaf that came to its end is a trajectory."""

    id: str
    phase: str
    task_id: str
    task_hash: str
    policy: PolicyRef
    sandbox: str
    tools: tuple[ToolSpec, ...] = ()
    search: dict[str, JsonValue]
    """The settings of the search."""
    nodes: tuple[TreeNode, ...]
    leaves: tuple[Leaf, ...]
    timing: Timing

    @property
    def sampled_tokens(self) -> int:
        """Tokens that were sampled for all of it."""
        return sum(node.step.usage.sampled_tokens for node in self.nodes if node.step.usage is not None)

    @property
    def states(self) -> frozenset[str]:
        """The different states of the workspace that were reached."""
        return frozenset(node.step.state_after for node in self.nodes if node.step.state_after is not None)

    def path(self, leaf: Leaf) -> list[Step]:
        """The steps that lead to a leaf, the first one first, with their places in the tree."""
        steps: list[Step] = []
        at = leaf.node
        while at is not None:
            steps.append(self.nodes[at].step)
            at = self.nodes[at].step.parent
        return steps[::-1]

    def trajectories(self) -> Iterator[Trajectory]:
        """Each path to a leaf that came to its end, as a trajectory. Their steps keep their places in the tree, so that
        what two paths share can be told."""
        for number, leaf in enumerate(self.leaves):
            if leaf.stop is None:
                continue
            sound = not leaf.faults
            yield Trajectory(
                id=f"{self.id}.{number}",
                phase=self.phase,
                task_id=self.task_id,
                task_hash=self.task_hash,
                group_id=f"{self.phase}/{self.task_id}",
                sample_index=number,
                policy=self.policy,
                sandbox=self.sandbox,
                tools=self.tools,
                steps=tuple(self.path(leaf)),
                final_state=leaf.final_state,
                final_patch=leaf.final_patch,
                stop=leaf.stop,
                status="completed" if sound else "infra_error",
                faults=leaf.faults,
                report=leaf.report,
                reward=leaf.reward,
                reward_trusted=sound,
                in_baseline=sound,
                timing=Timing(started_at=self.timing.started_at),
                tree_id=self.id,
            )


class SiblingLabel(Record):
    """What a step was worth against its siblings: the mean reward of the finished leaves below it, less that of all
    finished leaves below its parent. ``leaves`` says how many that first mean is of."""

    node: int
    value: float
    advantage: float
    leaves: int


def sibling_labels(tree: Tree) -> list[SiblingLabel]:
    """Step-level labels of a tree, of each node that has a sibling and a scored leaf below it."""
    below: dict[int | None, list[float]] = {}
    for leaf in tree.leaves:
        if leaf.stop is None or leaf.reward is None or leaf.reward.value is None:
            continue
        at = leaf.node
        while at is not None:
            below.setdefault(at, []).append(leaf.reward.value)
            at = tree.nodes[at].step.parent
        below.setdefault(None, []).append(leaf.reward.value)
    children: dict[int | None, list[int]] = {}
    for index, node in enumerate(tree.nodes):
        children.setdefault(node.step.parent, []).append(index)
    labels = []
    for parent, siblings in children.items():
        scored = [index for index in siblings if index in below]
        if len(siblings) < 2 or not scored:
            continue
        baseline = sum(sum(below[index]) for index in scored) / sum(len(below[index]) for index in scored)
        assert parent is None or parent in below
        for index in scored:
            value = sum(below[index]) / len(below[index])
            labels.append(SiblingLabel(node=index, value=value, advantage=value - baseline, leaves=len(below[index])))
    return sorted(labels, key=lambda label: label.node)
