"""From graded trajectories to rows with advantages."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from patchgym.records import StopReason, Trajectory, Tree, sibling_labels
from patchgym.reward import first_layer, settle_group
from patchgym.reward.credit import step_credits
from patchgym.train.advantages import credit_shifts, deviation, group_advantages, leave_one_out_advantages
from patchgym.train.integrity import Encoder
from patchgym.train.reasons import Reason
from patchgym.train.report import Mismatch, PolicyGradientSettings
from patchgym.train.rows import RowSet, TokenRow, rows_from_trajectory
from patchgym.train.spread import NOISE, unscored, useless, value_of

CUT_OFF = frozenset({StopReason.TURN_LIMIT, StopReason.TOKEN_LIMIT, StopReason.TIME_LIMIT, StopReason.CONTEXT_LIMIT})
"""How an attempt ends that a limit cut off."""

_CHECKPOINT = re.compile(r"[a-z_]+-(\d+)-[0-9a-f]{8}(?:@|$)")

Turns = Mapping[int, float]
"""The advantage of each step, by its index."""


def policy_gradient_rows(
    trajectories: Iterable[Trajectory],
    settings: PolicyGradientSettings,
    *,
    updates: int = 0,
    trees: Iterable[Tree] = (),
    key_files: Mapping[str, Collection[str]] | None = None,
    encoder: Encoder | None = None,
) -> RowSet:
    """Rows of graded trajectories, with the advantage of each trained id.

    Rewards are first settled in their groups, which must be whole (``patchgym.reward.settle``). Only a trusted reward
    that is a number counts; no reward is not a reward of 0. Baselines are over the members with ``in_baseline``,
    whether or not their rows are fit to train. Groups and rows without an advantage to speak of (their gradient would
    be zero) are left out before they cost time.

    ``updates`` is how many updates led to the weights that are trained, for ``max_staleness``. ``trees`` are what the
    trajectories are paths of, for the baseline ``siblings``. ``key_files`` are the paths that each task's solution
    touches, by task id, for ``step_credit``; of a task that is missing no file pays. With an ``encoder``, prompts are
    checked (``integrity.check_prompts``).
    """
    groups: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        groups.setdefault(trajectory.group_id, []).append(trajectory)
    made = _Gathering(settings, updates, {tree.id: tree for tree in trees}, key_files or {}, encoder)
    for name, members in groups.items():
        made.take(name, settle_group(members))
    return RowSet(
        rows=tuple(made.rows),
        left_out=made.left_out,
        groups=len(groups),
        zero_variance_groups=made.without_variance,
        mismatches=tuple(made.mismatches),
        flat_groups=tuple(made.flat),
    )


def updates_behind(version: str | None, updates: int) -> int:
    """How many updates lie between a policy version and weights that ``updates`` updates led to. A version is
    ``ALGORITHM-STEP-HASH`` where a checkpoint was published (``checkpoint.publish_checkpoint``); any other, a base
    model for example, is before the first update."""
    found = _CHECKPOINT.match(version or "")
    return updates - (int(found[1]) if found else 0)


@dataclass
class _Gathering:
    """Rows and what was left out, group by group."""

    settings: PolicyGradientSettings
    updates: int
    trees: Mapping[str, Tree]
    key_files: Mapping[str, Collection[str]]
    encoder: Encoder | None
    rows: list[TokenRow] = field(default_factory=list)
    left_out: Counter[Reason] = field(default_factory=Counter)
    mismatches: list[Mismatch] = field(default_factory=list)
    flat: list[str] = field(default_factory=list)
    without_variance: int = 0

    def take(self, name: str, members: Sequence[Trajectory]) -> None:
        """Add the rows of one whole group."""
        scored = []
        for member in members:
            reason = unscored(member)
            if reason:
                self.left_out[reason] += 1
            else:
                scored.append(member)
        if not scored:
            return
        why = useless(scored, self.settings)
        if why:
            self.left_out[why] += len(scored)
            self.without_variance += why is Reason.ZERO_VARIANCE
            self.flat += [name] if why in (Reason.ZERO_VARIANCE, Reason.SMALL_SPREAD) else []
            return
        for member, turns in zip(scored, self._advantages(scored), strict=True):
            reason = self._left_out(member, turns)
            if reason:
                self.left_out[reason] += 1
            else:
                self._add(member, turns or {})

    def _advantages(self, scored: Sequence[Trajectory]) -> Sequence[Turns | None]:
        """For each member the advantages of its steps, noise as exactly 0; None where there is nothing to compare it
        with, and nothing in it where the baseline is learned later."""
        if self.settings.choices.baseline == "value":
            return [{}] * len(scored)
        if self.settings.choices.baseline == "siblings":
            return self._among_siblings(scored)
        return self._in_group(scored)

    def _in_group(self, scored: Sequence[Trajectory]) -> Sequence[Turns]:
        chosen = self.settings.choices
        in_baseline_G = torch.tensor([member.in_baseline for member in scored], dtype=torch.bool)
        rewards_G = torch.tensor([value_of(member) for member in scored], dtype=torch.float64)
        if chosen.baseline == "leave_one_out":
            advantages_G = leave_one_out_advantages(rewards_G, in_baseline_G)
        else:
            advantages_G = group_advantages(rewards_G, in_baseline_G, divide_by_std=chosen.divide_by_std)
        places = [(at, step.index) for at, member in enumerate(scored) for step in member.steps]
        members_S = torch.tensor([at for at, _ in places], dtype=torch.long)
        advantages_S = advantages_G[members_S]
        if self.settings.step_credit:
            shifts_S = self._shifts(scored, members_S, rewards_G, in_baseline_G)
            scale = deviation(rewards_G, in_baseline_G) if chosen.divide_by_std else 1.0
            advantages_S = advantages_S + shifts_S / scale
        turns: list[dict[int, float]] = [{} for _ in scored]
        for (at, step), advantage in zip(places, advantages_S.tolist(), strict=True):
            turns[at][step] = _quiet(advantage)
        return turns

    def _shifts(
        self, scored: Sequence[Trajectory], members_S: Tensor, rewards_G: Tensor, in_baseline_G: Tensor
    ) -> Tensor:
        keys = [self.key_files.get(member.task_id) for member in scored]
        credits = [step_credits(member.steps, files) for member, files in zip(scored, keys, strict=True)]
        return credit_shifts(
            torch.tensor([credit.value for part in credits for credit in part], dtype=torch.float64),
            members_S,
            rewards_G,
            torch.tensor([_outcome(member) for member in scored], dtype=torch.float64),
            in_baseline_G,
            share=self.settings.step_credit,
        )

    def _among_siblings(self, scored: Sequence[Trajectory]) -> list[Turns | None]:
        """A step with siblings has its label; those below it up to the next fork carry it on, for what they do came of
        it; those before the first fork have nothing to be compared with."""
        rewards = {member.id: member.reward for member in scored if member.in_baseline}
        labels: dict[str | None, dict[int, float]] = {}
        for name in {member.tree_id for member in scored}:
            tree = self.trees.get(name or "")
            if tree is not None:
                leaves = enumerate(tree.leaves)
                settled = (one.model_copy(update={"reward": rewards.get(f"{name}.{at}")}) for at, one in leaves)
                labels[name] = _labels(tree.model_copy(update={"leaves": tuple(settled)}))
        return [_carried(member, labels[member.tree_id]) if member.tree_id in labels else None for member in scored]

    def _left_out(self, member: Trajectory, turns: Turns | None) -> Reason | None:
        if turns is None:
            return Reason.NO_TREE
        if turns and not any(turns.values()):
            return Reason.ZERO_ADVANTAGE
        return Reason.OVERLONG if self.settings.mask_overlong and member.stop in CUT_OFF else None

    def _add(self, member: Trajectory, turns: Turns) -> None:
        settings = self.settings
        part = rows_from_trajectory(member, max_length=settings.max_row_tokens, encoder=self.encoder)
        self.left_out.update(part.left_out)
        self.mismatches += part.mismatches
        for row in part.rows:
            trained = {turn for turn, bit in zip(row.turns, row.trainable, strict=True) if bit}
            if turns and not any(turns[turn] for turn in trained):
                self.left_out[Reason.ZERO_ADVANTAGE] += 1
            elif self._stale(row, trained):
                self.left_out[Reason.STALE] += 1
            else:
                self.rows.append(_with_advantages(row, turns, value_of(member)))

    def _stale(self, row: TokenRow, trained: Collection[int]) -> bool:
        most = self.settings.max_staleness
        versions = [version for turn, version in row.versions if turn in trained]
        return most is not None and any(updates_behind(version, self.updates) > most for version in versions)


def _outcome(scored: Trajectory) -> float:
    assert scored.reward is not None
    outcome = first_layer(scored.reward)
    assert outcome is not None
    return outcome


def _labels(tree: Tree) -> dict[int, float]:
    """Advantages by node, where at least two siblings have a scored leaf below them: one alone shows nothing."""
    forks: dict[int | None, dict[int, float]] = {}
    for label in sibling_labels(tree):
        forks.setdefault(tree.nodes[label.node].step.parent, {})[label.node] = label.advantage
    return {node: advantage for fork in forks.values() if len(fork) > 1 for node, advantage in fork.items()}


def _carried(path: Trajectory, labels: Turns) -> Turns:
    advantage, turns = 0.0, {}
    for step in path.steps:
        advantage = labels.get(step.index, advantage)
        turns[step.index] = _quiet(advantage)
    return turns


def _quiet(advantage: float) -> float:
    return 0.0 if abs(advantage) < NOISE else advantage


def _with_advantages(row: TokenRow, turns: Turns, reward: float) -> TokenRow:
    pairs = zip(row.turns, row.trainable, strict=True)
    return replace(row, advantages=tuple(turns.get(turn, 0.0) if bit else 0.0 for turn, bit in pairs), reward=reward)
