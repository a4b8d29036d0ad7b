"""Token rows: what a trajectory means to an update, id for id as it was sampled.

A row is one root-to-leaf path. Where the policy recorded its ids, a row is their concatenation and nothing is ever
re-tokenized; trajectories of policies without ids (gold, scripted) are rebuilt from their messages, for imitation
only. A row that fails an integrity check (``integrity``) is left out under a named reason and counted, never dropped
in silence.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from patchgym.records import Message, Step, Trajectory
from patchgym.train.integrity import Encoder, Unusable, check_prompts, check_tokens, one_temperature
from patchgym.train.reasons import Reason
from patchgym.train.report import Mismatch


@dataclass(frozen=True, slots=True)
class TokenRow:
    """One path of a trajectory as token ids. All tuples have the length of ``ids``.

    ``trainable`` is 1 on sampled ids that may be trained on, 0 on prompts, observations and the rest. ``logprobs``
    holds the sampler's log-probability in nats, 0.0 where an id was not sampled or the sampler did not say.
    ``turns`` holds the step's index on sampled ids, -1 elsewhere. ``temperature`` is the one that the sampled
    distribution was taken at. ``advantages`` holds one for each id, 0.0 where it is not trained; None until a baseline
    gave them (and for imitation). ``reward`` is its trajectory's, for a baseline that is learned. ``versions`` names
    the policy version that sampled each turn, in order, None where the record does not say.
    """

    ids: tuple[int, ...]
    trainable: tuple[int, ...]
    logprobs: tuple[float, ...]
    turns: tuple[int, ...]
    trajectory_id: str
    group_id: str
    temperature: float = 1.0
    advantages: tuple[float, ...] | None = None
    reward: float | None = None
    versions: tuple[tuple[int, str | None], ...] = ()

    @property
    def trained(self) -> int:
        """How many ids the row trains."""
        return sum(self.trainable)


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows that may be trained on, and how many were left out for which reason (see ``reasons.Reason``).

    ``mismatches`` names each case that failed the integrity check. ``groups`` counts the groups that were looked at,
    ``zero_variance_groups`` those among them whose rewards are all equal; both are 0 for imitation.
    ``flat_groups`` are the ids of these and of those whose rewards differ too little: whoever samples may take others
    in their place.
    """

    rows: tuple[TokenRow, ...] = ()
    left_out: Counter[Reason] = field(default_factory=Counter)
    groups: int = 0
    zero_variance_groups: int = 0
    mismatches: tuple[Mismatch, ...] = ()
    flat_groups: tuple[str, ...] = ()


class _Turn(NamedTuple):
    """A step, and the ids that it adds to the row before its answer."""

    step: Step
    given: tuple[int, ...]


@dataclass(slots=True)
class _Collected:
    """What is made of one trajectory, or of several."""

    rows: list[TokenRow] = field(default_factory=list)
    left_out: Counter[Reason] = field(default_factory=Counter)
    mismatches: list[Mismatch] = field(default_factory=list)

    def refuse(self, trajectory: Trajectory, unusable: Unusable) -> None:
        reason = unusable.reason
        self.left_out[reason] += 1
        if reason.integrity:
            named = Mismatch(trajectory=trajectory.id, turn=unusable.turn, reason=reason, why=unusable.found)
            self.mismatches.append(named)

    def add(self, part: RowSet) -> None:
        self.rows += part.rows
        self.left_out.update(part.left_out)
        self.mismatches += part.mismatches

    def row_set(self) -> RowSet:
        return RowSet(rows=tuple(self.rows), left_out=self.left_out, mismatches=tuple(self.mismatches))


@dataclass(slots=True)
class _Builder:
    """A row being concatenated."""

    ids: list[int] = field(default_factory=list)
    trainable: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    versions: list[tuple[int, str | None]] = field(default_factory=list)

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
            raise Unusable(Reason.NOTHING_TRAINABLE)
        if len(self.ids) > max_length:
            raise Unusable(Reason.TOO_LONG)
        return TokenRow(
            ids=tuple(self.ids),
            trainable=tuple(self.trainable),
            logprobs=tuple(self.logprobs),
            turns=tuple(self.turns),
            trajectory_id=trajectory.id,
            group_id=trajectory.group_id,
            temperature=temperature,
            versions=tuple(self.versions),
        )


def rows_from_trajectory(
    trajectory: Trajectory, *, max_length: int, need_logprobs: bool = True, encoder: Encoder | None = None
) -> RowSet:
    """The rows of one trajectory, from ``Step.tokens`` as sampled.

    The context of step k is the concatenation of ``prompt_ids + sampled_ids`` over its path, back to the last
    ``restart``. A restart begins a new row, unless its prompt begins with everything before it (an endpoint tells the
    whole context at every turn). Every leaf gives a path; an id that several paths share is trainable in the first of
    them alone. ``max_length`` is in ids. ``need_logprobs`` is for policy gradients: it demands the sampler's
    log-probabilities, and one untruncated distribution for the row; imitation can do without. With an ``encoder``, the
    ids of every prompt are held against its messages (``integrity.check_prompts``).
    """
    made = _Collected()
    trained_steps: set[int] = set()
    try:
        paths = _paths(trajectory.steps)
        for step in trajectory.steps:
            check_tokens(step, need_logprobs)
    except Unusable as unusable:
        made.refuse(trajectory, unusable)
        return made.row_set()
    for path in paths:
        try:
            if encoder is not None:
                check_prompts(path, encoder)
        except Unusable as unusable:
            made.refuse(trajectory, unusable)
            continue
        for stretch in _stretches(path):
            if stretch[-1].step.index in trained_steps:
                continue  # a shared prefix before a restart: its row is there already
            try:
                temperature = one_temperature([turn.step for turn in stretch]) if need_logprobs else 1.0
                made.rows.append(_sampled_row(trajectory, stretch, trained_steps, max_length, temperature))
            except Unusable as unusable:
                made.refuse(trajectory, unusable)
    return made.row_set()


def demonstration_rows(trajectory: Trajectory, encoder: Encoder, *, max_length: int) -> RowSet:
    """Rows for imitating a trajectory whose policy recorded no ids, rebuilt through a chat encoder.

    The context before a step is every earlier message and ``Step.prompt``; the answer is the text of
    ``Step.message``, trainable with its end-of-turn id. An answer that could not be parsed into an action stays in
    the context but is not trained. Where a context does not continue the ids before it, a new row begins. Only for
    trajectories that are one path.
    """
    made = _Collected()
    messages: list[Message] = []
    builder = _Builder()

    def finish() -> None:
        try:
            made.rows.append(builder.row(trajectory, max_length))
        except Unusable as unusable:
            made.refuse(trajectory, unusable)

    try:
        _check_demonstration(trajectory.steps)
    except Unusable as unusable:
        made.refuse(trajectory, unusable)
        return made.row_set()
    for step in trajectory.steps:
        messages = [*([] if step.compacted else messages), *step.prompt]
        context = encoder.encode(messages)
        if context[: len(builder.ids)] != builder.ids:
            finish()
            builder = _Builder()
        builder.given(context[len(builder.ids) :])
        answer = encoder.encode_answer(step.message.content)
        mask = [0 if step.parse_error else 1] * len(answer)
        builder.sampled(answer, mask=mask, logprobs=[0.0] * len(answer), turn=step.index)
        builder.versions.append((step.index, step.policy_version))
        messages.append(step.message)
    finish()
    return made.row_set()


def imitation_rows(trajectories: Iterable[Trajectory], encoder: Encoder, *, max_length: int) -> RowSet:
    """Rows for supervised fine-tuning: ids as sampled where every step has them, else rebuilt from the messages.

    Ids as sampled are held against their messages, so that those of another tokenizer are not taken for this model's.
    Which trajectories are worth imitating is the caller's choice.
    """
    made = _Collected()
    for trajectory in trajectories:
        if trajectory.steps and all(step.tokens for step in trajectory.steps):
            part = rows_from_trajectory(trajectory, max_length=max_length, need_logprobs=False, encoder=encoder)
            made.add(part)
        else:
            made.add(demonstration_rows(trajectory, encoder, max_length=max_length))
    return made.row_set()


def _check_demonstration(steps: Sequence[Step]) -> None:
    if not steps:
        raise Unusable(Reason.NO_STEPS)
    before: int | None = None
    for step in steps:
        if step.message.tool_calls:
            raise Unusable(Reason.NATIVE_CALLS, step.index)
        if step.parent != before:
            raise Unusable(Reason.BROKEN_PATH, step.index)
        before = step.index


def _paths(steps: Sequence[Step]) -> list[list[Step]]:
    """Root-to-leaf paths, in order of their leaves."""
    if not steps:
        raise Unusable(Reason.NO_STEPS)
    paths: dict[int, list[Step]] = {}
    parents = {step.parent for step in steps}
    for step in steps:
        if step.index in paths or (step.parent is not None and step.parent not in paths):
            raise Unusable(Reason.BROKEN_PATH, step.index)
        before = paths[step.parent] if step.parent is not None else []
        paths[step.index] = [*before, step]
    return [path for index, path in paths.items() if index not in parents]


def _stretches(path: Sequence[Step]) -> list[list[_Turn]]:
    """The path cut where a context does not go on with what was there before."""
    stretches: list[list[_Turn]] = [[]]
    context: tuple[int, ...] = ()
    for step in path:
        tokens = step.tokens
        assert tokens is not None
        given = tokens.prompt_ids
        if tokens.restart and given[: len(context)] == context:
            given = given[len(context) :]
        elif tokens.restart:
            context = ()
            stretches.append([])
        stretches[-1].append(_Turn(step, given))
        context = (*context, *given, *tokens.sampled_ids)
    return [stretch for stretch in stretches if stretch]


def _sampled_row(
    trajectory: Trajectory, stretch: Sequence[_Turn], trained: set[int], max_length: int, temperature: float
) -> TokenRow:
    """One row; adds the steps that it trains to ``trained``."""
    builder = _Builder()
    for step, given in stretch:
        tokens = step.tokens
        assert tokens is not None
        ids = tokens.sampled_ids
        mask = [0] * len(ids) if step.index in trained else tokens.mask
        builder.given(given)
        builder.sampled(ids, mask=mask, logprobs=tokens.logprobs or [0.0] * len(ids), turn=step.index)
        builder.versions.append((step.index, step.policy_version))
    row = builder.row(trajectory, max_length, temperature)
    trained.update(turn.step.index for turn in stretch)
    return row
