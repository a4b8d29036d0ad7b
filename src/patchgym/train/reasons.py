"""Why something gives no row, or not this time. Nothing is left out without one of these, and each is counted."""

from enum import StrEnum


class Reason(StrEnum):
    """Why a trajectory, or one path of it, gives no row."""

    NO_STEPS = "no_steps"
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    BROKEN_PATH = "broken_path"
    LENGTH_MISMATCH = "length_mismatch"
    BAD_MASK = "bad_mask"
    BAD_LOGPROBS = "bad_logprobs"
    PROMPT_MISMATCH = "prompt_mismatch"
    SAMPLER_GAP = "sampler_gap"
    OTHER_DISTRIBUTION = "other_distribution"
    NATIVE_CALLS = "native_calls"
    TOO_LONG = "too_long"
    OVERLONG = "overlong"
    STALE = "stale"
    NOTHING_TRAINABLE = "nothing_trainable"
    UNKNOWN_IDS = "unknown_ids"
    NOT_TRUSTED = "not_trusted"
    NOT_SCORED = "not_scored"
    SMALL_GROUP = "small_group"
    ZERO_VARIANCE = "zero_variance"
    SMALL_SPREAD = "small_spread"
    ZERO_ADVANTAGE = "zero_advantage"
    NO_TREE = "no_tree"

    @property
    def meaning(self) -> str:
        """The reason in one plain clause."""
        return _MEANINGS[self]

    @property
    def integrity(self) -> bool:
        """Whether it says that a record contradicts itself or the model: such a case is named, not only counted."""
        return self in _INTEGRITY


_MEANINGS = {
    Reason.NO_STEPS: "the trajectory has no steps",
    Reason.NO_TOKENS: "a step carries no token ids",
    Reason.NO_LOGPROBS: "a step carries no sampler log-probabilities",
    Reason.BROKEN_PATH: "a step names a parent that is not before it",
    Reason.LENGTH_MISMATCH: "ids, log-probabilities and mask differ in length",
    Reason.BAD_MASK: "a mask holds something other than 0 and 1",
    Reason.BAD_LOGPROBS: "a log-probability is not finite, or above 0",
    Reason.PROMPT_MISMATCH: "the ids of a prompt are not those of its messages",
    Reason.SAMPLER_GAP: "trainer and sampler do not agree on a turn's log-probabilities",
    Reason.OTHER_DISTRIBUTION: "it was sampled greedily, with truncation or at several temperatures",
    Reason.NATIVE_CALLS: "an answer is a native tool call, which has no text to imitate",
    Reason.TOO_LONG: "the row is longer than the limit",
    Reason.OVERLONG: "a limit of turns, tokens, time or context cut it off, and mask_overlong leaves it out",
    Reason.STALE: "a version sampled it that is more than max_staleness updates behind",
    Reason.NOTHING_TRAINABLE: "no sampled id may be trained on",
    Reason.UNKNOWN_IDS: "an id lies outside the model's vocabulary",
    Reason.NOT_TRUSTED: "its reward is not to be trusted",
    Reason.NOT_SCORED: "it has no reward",
    Reason.SMALL_GROUP: "its group has fewer members with a reward than min_group",
    Reason.ZERO_VARIANCE: "all rewards of its group are equal",
    Reason.SMALL_SPREAD: "the rewards of its group differ by no more than min_spread",
    Reason.ZERO_ADVANTAGE: "its reward equals its baseline",
    Reason.NO_TREE: "it is no path of a search tree that was given, so that its steps have no siblings",
}

_INTEGRITY = frozenset(
    {
        Reason.NO_TOKENS,
        Reason.BROKEN_PATH,
        Reason.LENGTH_MISMATCH,
        Reason.BAD_MASK,
        Reason.BAD_LOGPROBS,
        Reason.PROMPT_MISMATCH,
        Reason.SAMPLER_GAP,
    }
)
