"""Held-out measurement: pure functions of trajectories, and of what other evaluations said."""

from patchgym.evaluate.attempts import Attempt
from patchgym.evaluate.bootstrap import Estimate
from patchgym.evaluate.compare import Comparison, compare
from patchgym.evaluate.estimates import PassAt, paired_difference, pass_at_1, pass_at_each, pass_at_k
from patchgym.evaluate.failures import FailureType, failure_type
from patchgym.evaluate.power import Power
from patchgym.evaluate.report import EvalReport, evaluate
from patchgym.evaluate.stability import Stability

__all__ = [
    "Attempt",
    "Comparison",
    "Estimate",
    "EvalReport",
    "FailureType",
    "PassAt",
    "Power",
    "Stability",
    "compare",
    "evaluate",
    "failure_type",
    "paired_difference",
    "pass_at_1",
    "pass_at_each",
    "pass_at_k",
]
