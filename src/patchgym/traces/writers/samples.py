"""Token samples for trainers: id for id as they were sampled, never made again from text.

A sample is one stretch of a root-to-leaf path: the prompt, and all that came after it, of which the ids that the policy
sampled are marked. An id that several paths share is marked in the first of them alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from patchgym.records import Step, StopReason, Trajectory
from patchgym.traces.paths import Stretch, contexts
from patchgym.traces.writers.writer import Reason, Unwritable

TOKEN_PARTS = frozenset(
    {"id", "task_id", "group_id", "sample_index", "reward.value", "steps.tokens", "steps.message.sampled_ids"}
)
"""What every format of token samples holds of a trajectory."""
_CUT = frozenset({StopReason.TOKEN_LIMIT, StopReason.CONTEXT_LIMIT, StopReason.TURN_LIMIT, StopReason.TIME_LIMIT})


@dataclass(frozen=True)
class TokenSample:
    """One sample. ``mask`` and ``logprobs`` have the length of ``response_ids``; ``logprobs`` is 0.0 where an id was
    not sampled, and None as a whole where a sampled one has none."""

    stretch: Stretch
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]
    mask: tuple[int, ...]
    logprobs: tuple[float, ...] | None


def token_samples(trajectory: Trajectory, *, need_logprobs: bool = False) -> list[TokenSample]:
    """The samples of a trajectory.

    Raises:
        Unwritable: it has no reward that may be used, or a step has no ids that fit.
    """
    check(trajectory, need_logprobs=need_logprobs)
    stretches = contexts(trajectory)
    if stretches is None:
        raise Unwritable(Reason.BROKEN_PATH)
    marked: set[int] = set()
    samples = [_sample(stretch, marked) for stretch in stretches]
    kept = [sample for sample in samples if any(sample.mask)]
    if not kept:
        raise Unwritable(Reason.NOTHING_TRAINABLE)
    return kept


def check(trajectory: Trajectory, *, need_logprobs: bool) -> None:
    """See that a trajectory may be trained on.

    Raises:
        Unwritable: it may not.
    """
    if trajectory.status == "infra_error":
        raise Unwritable(Reason.INFRASTRUCTURE)
    if not trajectory.steps:
        raise Unwritable(Reason.NO_STEPS)
    if reward_of(trajectory) is None:
        raise Unwritable(Reason.NOT_SCORED)
    if not trajectory.reward_trusted:
        raise Unwritable(Reason.NOT_TRUSTED)
    for step in trajectory.steps:
        if not step.continues:
            _check_step(step, trajectory, need_logprobs)


def reward_of(trajectory: Trajectory) -> float | None:
    """The reward's value; None where it was not scored."""
    return trajectory.reward.value if trajectory.reward else None


def was_cut(trajectory: Trajectory) -> bool:
    """Whether a limit ended it."""
    return trajectory.stop in _CUT


def turns(stretch: Stretch) -> int:
    """How many messages the policy wrote."""
    return sum(not step.continues for step in stretch.steps)


def _check_step(step: Step, trajectory: Trajectory, need_logprobs: bool) -> None:
    tokens = step.tokens
    if tokens is None:
        raise Unwritable(Reason.REDACTED if trajectory.redacted else Reason.NO_TOKENS)
    if len(tokens.mask) != len(tokens.sampled_ids):
        raise Unwritable(Reason.LENGTH_MISMATCH)
    if tokens.logprobs is None and need_logprobs:
        raise Unwritable(Reason.NO_LOGPROBS)
    if tokens.logprobs is not None:
        if len(tokens.logprobs) != len(tokens.sampled_ids):
            raise Unwritable(Reason.LENGTH_MISMATCH)
        if not all(map(math.isfinite, tokens.logprobs)):
            raise Unwritable(Reason.NO_LOGPROBS)


def _sample(stretch: Stretch, marked: set[int]) -> TokenSample:
    steps = [step for step in stretch.steps if step.tokens is not None and not step.continues]
    prompt: Sequence[int] = ()
    ids: list[int] = []
    mask: list[int] = []
    logprobs: list[float] = []
    whole = True
    for position, step in enumerate(steps):
        tokens = step.tokens
        if tokens is None:
            continue
        if position == 0:
            prompt = tokens.prompt_ids
        else:
            ids += tokens.prompt_ids
            mask += [0] * len(tokens.prompt_ids)
            logprobs += [0.0] * len(tokens.prompt_ids)
        ids += tokens.sampled_ids
        mask += [0] * len(tokens.sampled_ids) if step.index in marked else tokens.mask
        logprobs += tokens.logprobs or [0.0] * len(tokens.sampled_ids)
        whole = whole and tokens.logprobs is not None
        marked.add(step.index)
    return TokenSample(stretch, tuple(prompt), tuple(ids), tuple(mask), tuple(logprobs) if whole else None)
