"""The reward of one attempt: the outcome, and a second layer that waits for the group.

The second layer takes off a little for waste and for careless work. Whether it is applied is decided by the outcomes of
the whole group (``settle``), which is not known while its attempts are still being made. Until then the value is that
of the first layer, and each term says what it would add.
"""

from collections.abc import Sequence

from patchgym.records import Evidence, Reward, Step, Task, Term, TestReport, Trajectory
from patchgym.reward.attempt import Attempt
from patchgym.reward.curve import reach
from patchgym.reward.outcome import outcome_value
from patchgym.reward.settings import RewardSettings
from patchgym.reward.terms import TERMS


def score(attempt: Attempt, settings: RewardSettings, evidence: Sequence[Evidence] = ()) -> Reward:
    """The reward of a graded attempt, term by term. ``evidence`` is what detectors of reward hacking found."""
    gate, first = outcome_value(attempt.report, settings, evidence)
    fixed, held = attempt.report.fail_to_pass, attempt.report.pass_to_pass
    why = (
        f"{gate}: {fixed.passed} of {fixed.total} failing tests fixed, {held.total - held.passed} of {held.total} "
        f"others broken"
    )
    terms = {"outcome": Term(raw=fixed.share, weight=1.0, value=first or 0.0, why=why, layer="outcome")}
    scored = first is not None
    scale = reach(first, fixed.total, settings.half, settings.cap, settings.second_layer) if first is not None else 0.0
    weights: dict[str, float] = settings.weights.model_dump()
    shares = settings.weights.shares()
    for name, kind in TERMS.items():
        measured = kind.measure(attempt)
        if measured is None:
            continue
        value = -scale * shares.get(name, 0.0) * measured.cost
        terms[name] = Term(
            raw=measured.raw, weight=weights.get(name, 0.0), value=value or 0.0, why=measured.why, layer=kind.layer
        )
    return Reward(
        value=first, gate=gate, terms=terms, evidence=tuple(evidence), second_layer="waits" if scored else None
    )


def score_patch(
    task: Task,
    report: TestReport,
    steps: Sequence[Step],
    patch: str | None,
    settings: RewardSettings,
    evidence: Sequence[Evidence] = (),
) -> Reward:
    """The reward of an attempt at ``task`` whose patch, a unified diff, was graded."""
    return score(Attempt.of(task, report, steps, patch), settings, evidence)


def rescored(
    trajectory: Trajectory, task: Task, settings: RewardSettings, evidence: Sequence[Evidence] | None = None
) -> Reward | None:
    """The reward that a recorded trajectory has under ``settings``; None where it has no report, or infrastructure
    failed. Without ``evidence`` that of its present reward is taken over."""
    if trajectory.report is None or trajectory.faults:
        return None
    if evidence is None:
        evidence = trajectory.reward.evidence if trajectory.reward is not None else ()
    return score_patch(task, trajectory.report, trajectory.steps, trajectory.final_patch, settings, evidence)
