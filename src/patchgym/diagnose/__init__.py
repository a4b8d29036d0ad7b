"""Judgement on runs: is the pipeline sound, is there signal, what to mend first."""

from patchgym.diagnose.judge import Finding, HeldOut, Judgement, Level, UpdateFacts, judge
from patchgym.diagnose.reward import RewardFinding, RewardJudgement, judge_rewards
from patchgym.diagnose.variance import Grading, VarianceSplit, split_variance

__all__ = [
    "Finding",
    "Grading",
    "HeldOut",
    "Judgement",
    "Level",
    "RewardFinding",
    "RewardJudgement",
    "UpdateFacts",
    "VarianceSplit",
    "judge",
    "judge_rewards",
    "split_variance",
]
