"""The token-integrity check: whether what would be trained is what was sampled. Nothing here needs torch.

Before any step: ids, masks and log-probabilities fit each other, one distribution was sampled from, and the ids of
every prompt are those of its messages. After the first forward pass: trainer and sampler agree on each turn. What fails
is left out, and named with its turn.
"""

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from patchgym.records import Message, Step, StepTokens
from patchgym.train.reasons import Reason
from patchgym.train.report import Mismatch

if TYPE_CHECKING:
    from torch import Tensor

    from patchgym.train.rows import TokenRow

_ROUNDING = 1e-4  # of float32's log-softmax, which can end above 0
_SHOWN = 40
_MOST_IDS = 2**31


class Encoder(Protocol):
    """The part of ``patchgym.policy.chat.ChatEncoder`` that rows need."""

    def encode(self, messages: Sequence[Message]) -> list[int]:
        """Ids of a whole context, up to and with the generation prompt."""
        ...

    def encode_answer(self, text: str) -> list[int]:
        """Ids of an assistant's answer, its end-of-turn id included."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        ...


class Unusable(Exception):
    """A path that gives no row: for which reason, at which turn (None: all of it), and what was found."""

    def __init__(self, reason: Reason, turn: int | None = None, found: str = "") -> None:
        super().__init__(reason.meaning)
        self.reason = reason
        self.turn = turn
        self.found = found or reason.meaning


def check_tokens(step: Step, need_logprobs: bool) -> StepTokens:
    """The ids of a step, whose mask and (if needed) log-probabilities fit them.

    Raises:
        Unusable: they do not.
    """
    tokens = step.tokens
    if tokens is None:
        raise Unusable(Reason.NO_TOKENS, step.index)
    if any(not 0 <= one < _MOST_IDS for one in (*tokens.prompt_ids, *tokens.sampled_ids)):
        raise Unusable(Reason.UNKNOWN_IDS, step.index)  # before anything is asked to decode them
    ids = len(tokens.sampled_ids)
    if len(tokens.mask) != ids:
        raise Unusable(Reason.LENGTH_MISMATCH, step.index, f"{ids} sampled ids have a mask of {len(tokens.mask)}")
    if any(bit not in (0, 1) for bit in tokens.mask):
        raise Unusable(Reason.BAD_MASK, step.index)
    if not need_logprobs:
        return tokens
    if tokens.logprobs is None:
        raise Unusable(Reason.NO_LOGPROBS, step.index)
    if len(tokens.logprobs) != ids:
        found = f"{ids} sampled ids have {len(tokens.logprobs)} log-probabilities"
        raise Unusable(Reason.LENGTH_MISMATCH, step.index, found)
    wrong = [value for value in tokens.logprobs if not math.isfinite(value) or value > _ROUNDING]
    if wrong:
        raise Unusable(Reason.BAD_LOGPROBS, step.index, f"a log-probability is {wrong[0]}")
    return tokens


def one_temperature(path: Sequence[Step]) -> float:
    """The one temperature of a path, which the trainer's softmax must share.

    Raises:
        Unusable: it was sampled greedily, with truncation or at several temperatures, which are distributions that the
            trainer would not see; or nobody knows.
    """
    first = path[0].sampling
    for step in path:
        sampling = step.sampling
        if sampling is None or first is None or sampling.temperature <= 0 or sampling.top_p < 1:
            raise Unusable(Reason.OTHER_DISTRIBUTION, step.index)
        if sampling.temperature != first.temperature:
            raise Unusable(Reason.OTHER_DISTRIBUTION, step.index)
    assert first is not None
    return first.temperature


def check_prompts(path: Sequence[Step], encoder: Encoder) -> None:
    """Hold the ids of a path from its root against its messages: the context that each answer was sampled in must read
    as the messages before it do in this model's template, with every earlier answer as it was sampled. So each turn's
    context begins with all of the turn before, and the tokenizer is the one that sampled.

    Texts are compared, not ids: what an endpoint renders again may be cut into other ids and still be what the model
    was shown. A path whose messages are not all there, or with native tool calls (which templates show in ways of their
    own), is not checked.

    Raises:
        Unusable: they do not agree, at the first turn where they do not.
    """
    if any(step.tokens is None or not step.prompt or step.continues or step.message.tool_calls for step in path):
        return
    contexts = _contexts(path)
    # A context that the next one begins with is right if that one is: all are looked at only to name the first that is
    # wrong.
    longest = [one for one, after in itertools.pairwise(contexts) if after[1][: len(one[1])] != one[1]]
    if all(_disagreement(ids, messages, encoder) is None for _, ids, messages in [*longest, contexts[-1]]):
        return
    for turn, ids, messages in contexts:
        found = _disagreement(ids, messages, encoder)
        if found is not None:
            raise Unusable(Reason.PROMPT_MISMATCH, turn, found)


def sampler_mismatches(
    rows: Sequence["TokenRow"],
    logprobs_N: "Tensor",
    sampler_N: "Tensor",
    rows_N: "Tensor",
    turns_N: "Tensor",
    *,
    max_gap: float,
) -> dict["TokenRow", Mismatch]:
    """The rows of a batch that trainer and sampler do not agree on, with the first turn that shows it.

    The other arguments are of the batch's trained ids: log-probabilities in nats of the trainer, before any weight
    moved, and of the sampler; the place of the id's row in ``rows``; the index of its step. A turn is wrong where the
    mean of ``|trainer - sampler|`` is above ``max_gap``, or no number.
    """
    gap_N = (logprobs_N.detach() - sampler_N).abs()
    found: dict[TokenRow, Mismatch] = {}
    for row, turn in sorted(set(zip(rows_N.tolist(), turns_N.tolist(), strict=True))):
        gap = gap_N[(rows_N == row) & (turns_N == turn)].mean().item()
        if rows[row] in found or gap <= max_gap:
            continue
        why = (
            f"log-probabilities of trainer and sampler differ by {gap:.3g} nats on average, and {max_gap:g} is allowed"
        )
        trajectory = rows[row].trajectory_id
        found[rows[row]] = Mismatch(trajectory=trajectory, turn=turn, reason=Reason.SAMPLER_GAP, why=why)
    return found


def _contexts(path: Sequence[Step]) -> list[tuple[int, list[int], list[Message]]]:
    """The index of each step, and what its answer was sampled in: as ids, and as messages."""
    found: list[tuple[int, list[int], list[Message]]] = []
    ids: list[int] = []
    messages: list[Message] = []
    for step in path:
        tokens = step.tokens
        assert tokens is not None
        ids = [*([] if tokens.restart else ids), *tokens.prompt_ids]
        messages = [*([] if step.compacted else messages), *step.prompt]
        found.append((step.index, ids, messages))
        ids = [*ids, *tokens.sampled_ids]
        messages = [*messages, step.message.model_copy(update={"sampled_ids": tokens.sampled_ids})]
    return found


def _disagreement(ids: Sequence[int], messages: Sequence[Message], encoder: Encoder) -> str | None:
    rendered = encoder.encode(messages)
    if rendered == ids:
        return None
    was, told = encoder.decode(ids), encoder.decode(rendered)
    if was == told:
        return None
    pairs = enumerate(zip(was, told, strict=False))
    at = next((place for place, (left, right) in pairs if left != right), min(len(was), len(told)))
    end = at + _SHOWN
    return f"from character {at} on, the ids read {was[at:end]!r} and the messages {told[at:end]!r}"
