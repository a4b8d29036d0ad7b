"""Reward in two layers: what was achieved, then how.

The first layer is the outcome. Solved is worth 1. An attempt that breaks nothing and fixes a share s of the
fail-to-pass tests is worth ``min(cap, 2 * half * s)``: 0.3 at half and at most 0.5 with the default settings.
Everything else is worth 0.

The second layer takes off a little for wasted turns, unreadable or useless actions and needlessly large patches. All
that it can take off is less than half the distance to the next lower level of the first layer, so that it orders
attempts of equal outcome and never others. It leaves a first layer of 0 alone: a group in which everybody failed gets
no advantage from style.
"""

from collections.abc import Sequence

from pydantic import Field

from patchgym.config import Settings
from patchgym.records import Limits, Reward, Scope, Step, Term, TestReport, Verdict

_SMALL_PATCH_LINES = 20


class RewardSettings(Settings):
    """``half``: the value of fixing half of the tests. ``cap``: the most that an unsolved attempt can get.
    ``efficiency``: the most that the second layer takes off. The rest are the second layer's weights, relative to
    each other."""

    half: float = Field(0.3, ge=0.0, lt=0.5)
    cap: float = Field(0.5, ge=0.0, le=0.9)
    efficiency: float = Field(0.05, ge=0.0, le=0.05)
    steps_weight: float = Field(0.5, ge=0.0)
    invalid_weight: float = Field(0.3, ge=0.0)
    patch_weight: float = Field(0.2, ge=0.0)


def outcome_value(report: TestReport, settings: RewardSettings) -> tuple[str, float | None]:
    """The first layer: the gate that applies and its value; None where there is nothing to score."""
    match report.verdict:
        case Verdict.INFRA_ERROR | Verdict.ABSTAINED:
            return str(report.verdict), None
        case Verdict.RESOLVED:
            return "solved", 1.0
        case Verdict.TAMPERED | Verdict.INVALID | Verdict.TIMEOUT:
            return str(report.verdict), 0.0
    if report.pass_to_pass.passed < report.pass_to_pass.total:
        return "regressed", 0.0
    value = _partial(report.fail_to_pass.share, settings)
    return ("partial" if value > 0 else "failed"), value


def score(
    report: TestReport, steps: Sequence[Step], patch: Scope, gold: Scope, limits: Limits, settings: RewardSettings
) -> Reward:
    """The reward of a graded attempt, term by term. ``patch`` and ``gold`` are the sizes of its own patch and of the
    gold one."""
    gate, first = outcome_value(report, settings)
    fixed = report.fail_to_pass
    outcome = Term(
        raw=fixed.share,
        weight=1.0,
        value=first or 0.0,
        why=f"{gate}: {fixed.passed} of {fixed.total} failing tests fixed, "
        f"{report.pass_to_pass.total - report.pass_to_pass.passed} of {report.pass_to_pass.total} others broken",
    )
    if first is None:
        return Reward(value=None, gate=gate, terms={"outcome": outcome})
    scale = _efficiency_scale(first, fixed.total, settings) if first > 0 else 0.0
    terms = {"outcome": outcome, **_efficiency_terms(steps, patch, gold, limits, settings, scale)}
    return Reward(
        value=first + sum(term.value for name, term in terms.items() if name != "outcome"), gate=gate, terms=terms
    )


def _partial(share: float, settings: RewardSettings) -> float:
    return min(settings.cap, 2 * settings.half * share)


def _efficiency_scale(first: float, total: int, settings: RewardSettings) -> float:
    """The most that the second layer may take off an outcome worth ``first`` (above 0), with ``total`` fail-to-pass
    tests: under half of the distance to the next lower level of the first layer."""
    levels = sorted({0.0, 1.0, *(_partial(count / total, settings) for count in range(total))}) if total else [0.0, 1.0]
    gap = first - max(level for level in levels if level < first)
    return min(settings.efficiency, 0.49 * gap)


def _efficiency_terms(
    steps: Sequence[Step], patch: Scope, gold: Scope, limits: Limits, settings: RewardSettings, scale: float
) -> dict[str, Term]:
    total = settings.steps_weight + settings.invalid_weight + settings.patch_weight
    wasted = sum(step.action is None or step.observation is None or not step.observation.ok for step in steps)
    extra = max(0, patch.lines - gold.lines)
    measured = {
        "steps": (len(steps) / limits.turns, settings.steps_weight, f"{len(steps)} of {limits.turns} turns used"),
        "invalid_actions": (
            wasted / len(steps) if steps else 0.0,
            settings.invalid_weight,
            f"{wasted} of {len(steps)} actions could not be read or done",
        ),
        "patch_size": (
            min(1.0, extra / _SMALL_PATCH_LINES),
            settings.patch_weight,
            f"{patch.lines} changed lines against {gold.lines} of the gold patch",
        ),
    }
    return {
        name: Term(raw=raw, weight=weight, value=-scale * weight / total * min(1.0, raw) if total else 0.0, why=why)
        for name, (raw, weight, why) in measured.items()
    }
