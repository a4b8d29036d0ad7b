"""The value of a verdict: pure functions of records."""

from patchgym.reward.score import RewardSettings, outcome_value, score

__all__ = ["RewardSettings", "outcome_value", "score"]
