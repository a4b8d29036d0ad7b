"""Collecting trajectories: every task, several samples each, concurrently, resumably."""

from patchgym.rollout.attempts import RolloutSettings
from patchgym.rollout.collect import Collector, Phase
from patchgym.rollout.policies import (
    LocalSource,
    PolicyOptions,
    PolicySource,
    ServerSource,
    TrainableSource,
    open_policy,
)
from patchgym.rollout.summary import Counting, RunCounts, count_run

__all__ = [
    "Collector",
    "Counting",
    "LocalSource",
    "Phase",
    "PolicyOptions",
    "PolicySource",
    "RolloutSettings",
    "RunCounts",
    "ServerSource",
    "TrainableSource",
    "count_run",
    "open_policy",
]
