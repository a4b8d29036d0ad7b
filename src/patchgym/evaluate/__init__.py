"""Held-out measurement: pure functions of trajectories."""

from patchgym.evaluate.estimates import Estimate, paired_difference, pass_at_1, pass_at_k
from patchgym.evaluate.failures import FailureType, failure_type
from patchgym.evaluate.report import EvalReport, evaluate

__all__ = [
    "Estimate",
    "EvalReport",
    "FailureType",
    "evaluate",
    "failure_type",
    "paired_difference",
    "pass_at_1",
    "pass_at_k",
]
