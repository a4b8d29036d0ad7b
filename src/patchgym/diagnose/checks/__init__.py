"""The checks, in the order in which causes hide each other. One more is one more function in its place.

A check is a pure function of the facts and the thresholds. What a run does not hold is ``unknown``, never ``broken``.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from patchgym.diagnose.checks.distribution import computed, distribution
from patchgym.diagnose.checks.drifting import (
    diversity,
    entropy,
    failures,
    hacks,
    hidden_gap,
    reward_model,
    step_count,
)
from patchgym.diagnose.checks.heldout import heldout
from patchgym.diagnose.checks.recording import (
    complete,
    copies,
    infrastructure,
    readable,
    replayed,
    states,
    timeouts,
)
from patchgym.diagnose.checks.sample import leaks, reproducible, solvable, split
from patchgym.diagnose.checks.trend import gradients, reward_trend, rows, sampler_gap, step_size
from patchgym.diagnose.facts import Facts
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.records import Finding


class Check(NamedTuple):
    """A check with the names of what it finds."""

    names: tuple[str, ...]
    look: Callable[[Facts, DiagnoseSettings], Finding | Iterable[Finding]]


_DISTRIBUTION = ("samples", "grading", "bounds", "process signal", "groups", "phantom advantages", "terms")

CHECKS: tuple[Check, ...] = (
    Check(("reproducible",), reproducible),
    Check(("solvable",), solvable),
    Check(("leaks",), leaks),
    Check(("split",), split),
    Check(("complete",), complete),
    Check(("states",), states),
    Check(("replay",), replayed),
    Check(("infrastructure",), infrastructure),
    Check(("time-outs",), timeouts),
    Check(("protocol",), readable),
    Check(("copies",), copies),
    Check(("computed",), computed),
    Check(_DISTRIBUTION, distribution),
    Check(("rows",), rows),
    Check(("sampler gap",), sampler_gap),
    Check(("gradients",), gradients),
    Check(("step size",), step_size),
    Check(("reward trend",), reward_trend),
    Check(("held-out",), heldout),
    Check(("reward model",), reward_model),
    Check(("hacks",), hacks),
    Check(("hidden gap",), hidden_gap),
    Check(("entropy",), entropy),
    Check(("diversity",), diversity),
    Check(("step count",), step_count),
    Check(("failure types",), failures),
)
"""Every check, in order."""
