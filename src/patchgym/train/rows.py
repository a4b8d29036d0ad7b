"""Token rows: what a trajectory means to an update, id for id as it was sampled.

A row is one root-to-leaf path. Where the policy recorded its ids, a row is their concatenation and nothing is ever
re-tokenized; trajectories of policies without ids (gold, scripted) are rebuilt from their messages, for imitation
only. A row that fails an integrity check is left out under a named reason and counted, never dropped in silence.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from patchgym.records import Message, Step, Trajectory


class Reason(StrEnum):
    """Why a trajectory, or one path of it, gives no row."""

    NO_STEPS = "no_steps"
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    BROKEN_PATH = "broken_path"
    LENGTH_MISMATCH = "length_mismatch"
    BAD_MASK = "bad_mask"
    BAD_LOGPROBS = "bad_logprobs"
    OTHER_DISTRIBUTION = "other_distribution"
    NATIVE_CALLS = "native_calls"
    TOO_LONG = "too_long"
    NOTHING_TRAINABLE = "nothing_trainable"
    UNKNOWN_IDS = "unknown_ids"
    NOT_TRUSTED = "not_trusted"
    NOT_SCORED = "not_scored"
    SMALL_GROUP = "small_group"
    ZERO_VARIANCE = "zero_variance"
    ZERO_ADVANTAGE = "zero_advantage"

    @property
    def meaning(self) -> str:
        """The reason in one plain clause."""
        return _MEANINGS[self]


_MEANINGS = {
    Reason.NO_STEPS: "the trajectory has no steps",
    Reason.NO_TOKENS: "a step carries no token ids",
    Reason.NO_LOGPROBS: "a step carries no sampler log-probabilities",
    Reason.BROKEN_PATH: "a step names a parent that is not before it",
    Reason.LENGTH_MISMATCH: "ids, log-probabilities and mask differ in length",
    Reason.BAD_MASK: "a mask holds something other than 0 and 1",
    Reason.BAD_LOGPROBS: "a log-probability is not finite, or above 0",
    Reason.OTHER_DISTRIBUTION: "it was sampled greedily, with truncation or at several temperatures",
    Reason.NATIVE_CALLS: "an answer is a native tool call, which has no text to imitate",
    Reason.TOO_LONG: "the row is longer than the limit",
    Reason.NOTHING_TRAINABLE: "no sampled id may be trained on",
    Reason.UNKNOWN_IDS: "an id lies outside the model's vocabulary",
    Reason.NOT_TRUSTED: "its reward is not to be trusted",
    Reason.NOT_SCORED: "it has no reward",
    Reason.SMALL_GROUP: "its group has fewer than two members with a reward",
    Reason.ZERO_VARIANCE: "all rewards of its group are equal",
    Reason.ZERO_ADVANTAGE: "its reward equals its group's mean",
}


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One path of a trajectory as token ids. All tuples have the length of ``ids``.

    ``trainable`` is 1 on sampled ids that may be trained on, 0 on prompts, observations and the rest. ``logprobs``
    holds the sampler's log-probability in nats, 0.0 where an id was not sampled or the sampler did not say.
    ``turns`` holds the step's index on sampled ids, -1 elsewhere. ``temperature`` is the one that the sampled
    distribution was taken at. ``advantage`` is None until a baseline gave one (and for imitation).
    """

    ids: tuple[int, ...]
    trainable: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[int, ...]
    trajectory_id: str
    group_id: str
    temperature: float = 1.0
    advantage: float | None = None

    @property
    def trained(self) -> int:
        """How many ids the row trains."""
        return sum(self.trainable)


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows that may be trained on, and how many were left out for which reason (see ``Reason``).

    ``groups`` counts the groups that were looked at, ``zero_variance_groups`` those among them whose rewards are all
    equal; both are 0 for imitation.
    """

    rows: tuple[TokenRow, ...] = ()
    left_out: Counter[Reason] = field(default_factory=Counter)
    groups: int = 0
    zero_variance_groups: int = 0


class Encoder(Protocol):
    """The part of ``patchgym.policy.chat.ChatEncoder`` that rows need."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a whole context, up to and with the generation prompt."""
        ...

    def encode_answer(self, text: str) -> list[int]:
        """Ids of an assistant's answer, its end-of-turn id included."""
        ...


class _Unusable(Exception):
    """A path that gives no row."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.meaning)
        self.reason = reason


@dataclass(slots=True)
class _Builder:
    """A row being concatenated."""

    ids: list[int] = field(default_factory=list)
    trainable: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)

    def given(self, ids: Sequence[int]) -> None:
        self.sampled(ids, mask=[0] * len(ids), logprobs=[0.0] * len(ids), turn=-1)

    def sampled(self, ids: Sequence[int], *, mask: Sequence[int], logprobs: Sequence[float], turn: int) -> None:
        self.ids += ids
        self.trainable += mask
        self.logprobs += logprobs
        self.turns += [turn] * len(ids)

    def row(self, trajectory: Trajectory, max_length: int, temperature: float = 1.0) -> TokenRow:
        if self.trainable:
            self.trainable[0] = 0  # nothing comes before the first id, so nothing predicts it
        if not any(self.trainable):
            raise _Unusable(Reason.NOTHING_TRAINABLE)
        if len(self.ids) > max_length:
            raise _Unusable(Reason.TOO_LONG)
        return TokenRow(
            ids=tuple(self.ids),
            trainable=tuple(self.trainable),
            logprobs=tuple(self.logprobs),
            turns=tuple(self.turns),
            trajectory_id=trajectory.id,
            group_id=trajectory.group_id,
            temperature=temperature,
        )


def rows_from_trajectory(trajectory: Trajectory, *, max_length: int, need_logprobs: bool = True) -> RowSet:
    """The rows of one trajectory, from ``Step.tokens`` as sampled.

    The context of step k is the concatenation of ``prompt_ids + sampled_ids`` over its path, back to the last
    ``restart``, which begins a new row. Every leaf gives a path; an id that several paths share is trainable in the
    first of them alone. ``max_length`` is in ids. ``need_logprobs`` is for policy gradients: it demands the sampler's
    log-probabilities, and one untruncated distribution for the row; imitation can do without.
    """
    kept: list[TokenRow] = []
    left_out: Counter[Reason] = Counter()
    trained_steps: set[int] = set()
    try:
        paths = _paths(trajectory.steps)
        for step in trajectory.steps:
            _check_tokens(step, need_logprobs)
    except _Unusable as unusable:
        return RowSet(left_out=Counter({unusable.reason: 1}))
    for stretch in (stretch for path in paths for stretch in _split_at_restarts(path)):
        if stretch[-1].index in trained_steps:
            continue  # a shared prefix before a restart: its row is there already
        try:
            temperature = _temperature(stretch) if need_logprobs else 1.0
            kept.append(_sampled_row(trajectory, stretch, trained_steps, max_length, temperature))
        except _Unusable as unusable:
            left_out[unusable.reason] += 1
    return RowSet(rows=tuple(kept), left_out=left_out)


def demonstration_rows(trajectory: Trajectory, encoder: Encoder, *, max_length: int) -> RowSet:
    """Rows for imitating a trajectory whose policy recorded no ids, rebuilt through a chat encoder.

    The context before a step is every earlier message and ``Step.prompt``; the answer is the text of
    ``Step.message``, trainable with its end-of-turn id. An answer that could not be parsed into an action stays in
    the context but is not trained. Where a context does not continue the ids before it, a new row begins. Only for
    trajectories that are one path.
    """
    if not trajectory.steps:
        return RowSet(left_out=Counter({Reason.NO_STEPS: 1}))
    kept: list[TokenRow] = []
    left_out: Counter[Reason] = Counter()
    messages: list[Message] = []
    builder = _Builder()

    def finish() -> None:
        try:
            kept.append(builder.row(trajectory, max_length))
        except _Unusable as unusable:
            left_out[unusable.reason] += 1

    for position, step in enumerate(trajectory.steps):
        if step.message.tool_calls:
            return RowSet(left_out=Counter({Reason.NATIVE_CALLS: 1}))
        if step.parent != (trajectory.steps[position - 1].index if position else None):
            return RowSet(left_out=Counter({Reason.BROKEN_PATH: 1}))
        messages += step.prompt
        context = encoder.encode(messages)
        if context[: len(builder.ids)] != builder.ids:
            finish()
            builder = _Builder()
        builder.given(context[len(builder.ids) :])
        answer = encoder.encode_answer(step.message.content)
        mask = [0 if step.parse_error else 1] * len(answer)
        builder.sampled(answer, mask=mask, logprobs=[0.0] * len(answer), turn=step.index)
        messages.append(step.message)
    finish()
    return RowSet(rows=tuple(kept), left_out=left_out)


def imitation_rows(trajectories: Iterable[Trajectory], encoder: Encoder, *, max_length: int) -> RowSet:
    """Rows for supervised fine-tuning: ids as sampled where every step has them, else rebuilt from the messages.

    Which trajectories are worth imitating is the caller's choice.
    """
    rows: list[TokenRow] = []
    left_out: Counter[Reason] = Counter()
    for trajectory in trajectories:
        if trajectory.steps and all(step.tokens for step in trajectory.steps):
            part = rows_from_trajectory(trajectory, max_length=max_length, need_logprobs=False)
        else:
            part = demonstration_rows(trajectory, encoder, max_length=max_length)
        rows += part.rows
        left_out.update(part.left_out)
    return RowSet(rows=tuple(rows), left_out=left_out)


def _paths(steps: Sequence[Step]) -> list[list[Step]]:
    """Root-to-leaf paths, in order of their leaves."""
    if not steps:
        raise _Unusable(Reason.NO_STEPS)
    paths: dict[int, list[Step]] = {}
    parents = {step.parent for step in steps}
    for step in steps:
        if step.index in paths or (step.parent is not None and step.parent not in paths):
            raise _Unusable(Reason.BROKEN_PATH)
        before = paths[step.parent] if step.parent is not None else []
        paths[step.index] = [*before, step]
    return [path for index, path in paths.items() if index not in parents]


def _check_tokens(step: Step, need_logprobs: bool) -> None:
    tokens = step.tokens
    if tokens is None:
        raise _Unusable(Reason.NO_TOKENS)
    if len(tokens.mask) != len(tokens.sampled_ids):
        raise _Unusable(Reason.LENGTH_MISMATCH)
    if any(bit not in (0, 1) for bit in tokens.mask):
        raise _Unusable(Reason.BAD_MASK)
    if not need_logprobs:
        return
    if tokens.logprobs is None:
        raise _Unusable(Reason.NO_LOGPROBS)
    if len(tokens.logprobs) != len(tokens.sampled_ids):
        raise _Unusable(Reason.LENGTH_MISMATCH)
    if not all(math.isfinite(value) and value <= 1e-4 for value in tokens.logprobs):
        raise _Unusable(Reason.BAD_LOGPROBS)  # the slack above 0 is float32's rounding of a log-softmax


def _temperature(path: Sequence[Step]) -> float:
    """The one temperature of a path, which the trainer's softmax must share. Greedy, truncated and mixed sampling
    follow distributions that the trainer would not see."""
    known = [step.sampling for step in path if step.sampling is not None]
    first = known[0].temperature if known else 0.0
    if (
        first <= 0
        or len(known) < len(path)
        or any(sampling.temperature != first or sampling.top_p < 1 for sampling in known)
    ):
        raise _Unusable(Reason.OTHER_DISTRIBUTION)
    return first


def _split_at_restarts(path: Sequence[Step]) -> list[list[Step]]:
    stretches: list[list[Step]] = [[]]
    for step in path:
        if step.tokens and step.tokens.restart and stretches[-1]:
            stretches.append([])
        stretches[-1].append(step)
    return stretches


def _sampled_row(
    trajectory: Trajectory, path: Sequence[Step], trained: set[int], max_length: int, temperature: float
) -> TokenRow:
    """One row; adds the steps that it trains to ``trained``."""
    builder = _Builder()
    for step in path:
        tokens = step.tokens
        if tokens is None:
            raise _Unusable(Reason.NO_TOKENS)
        ids = tokens.sampled_ids
        mask = [0] * len(ids) if step.index in trained else tokens.mask
        builder.given(tokens.prompt_ids)
        builder.sampled(ids, mask=mask, logprobs=tokens.logprobs or [0.0] * len(ids), turn=step.index)
    row = builder.row(trajectory, max_length, temperature)
    trained.update(step.index for step in path)
    return row
