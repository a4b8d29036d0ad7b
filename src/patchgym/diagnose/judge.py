"""The order of looking: tasks, trajectories, rewards, updates, held-out. The first broken link is what to mend first.

Thresholds are stated where they are used. Nothing here reads anything but trajectories and metrics.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum

from patchgym.records import Record, Trajectory, Verdict
from patchgym.reward import first_layer

_SAMPLER_GAP = 0.05
"""Mean |trainer log-prob - sampler log-prob| above which the update is not of the policy that sampled. Float32 against
float32 on one machine stays under 0.001; engines of different precision reach a few hundredths."""

_EXTREME = 0.02


class Level(StrEnum):
    """``ok``: as it should be. ``note``: sound, with a limit worth knowing. ``broken``: mend it before going on."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


class Finding(Record):
    """One link of the chain: how it stands, the evidence, and what to do where something is to be done."""

    check: str
    level: Level
    evidence: str
    action: str = ""


class Judgement(Record):
    """All findings in order, whether the pipeline is sound, whether there is process signal, and whether to go on."""

    findings: tuple[Finding, ...]
    sound: bool
    signal: bool
    go_on: bool
    verdict: str


class HeldOut(Record):
    """Held-out pass@1 at two times, and the interval of their paired difference over tasks."""

    before: float
    after: float
    low: float
    high: float
    tasks: int


class UpdateFacts(Record):
    """What an update said of itself: its name, whether its gradient was zero and why, and the sampler gap."""

    name: str
    nonzero: bool
    why: str
    sampler_gap: float | None
    trained_tokens: int


def judge(
    demonstrations: Sequence[Trajectory],
    rounds: Mapping[str, Sequence[Trajectory]],
    updates: Sequence[UpdateFacts],
    held_out: HeldOut | None,
) -> Judgement:
    """Judge a run of the closed loop. ``rounds`` maps each sampling round's name, in order, to its trajectories."""
    sampled = [trajectory for found in rounds.values() for trajectory in found]
    rewards, signal = _reward_findings(rounds)
    findings = (
        _tasks(demonstrations),
        _trajectories([*demonstrations, *sampled]),
        rewards,
        _updates(updates),
        _held_out(rounds, held_out),
    )
    broken = [finding for finding in findings if finding.level is Level.BROKEN]
    sound = not any(finding.check in ("tasks", "trajectories", "updates") for finding in broken)
    go_on = sound and signal and not broken
    if broken:
        verdict = f"Stop here: {broken[0].check}. {broken[0].action}"
    elif not signal:
        verdict = f"The pipeline is sound, but there is no process signal. {rewards.action}"
    else:
        verdict = (
            "The pipeline is sound and rewards tell attempts apart: it is worth going on to more tasks and rounds."
        )
    return Judgement(findings=findings, sound=sound, signal=signal, go_on=go_on, verdict=verdict)


def _tasks(demonstrations: Sequence[Trajectory]) -> Finding:
    solved = sum(t.report is not None and t.report.verdict is Verdict.RESOLVED for t in demonstrations)
    evidence = f"{solved} of {len(demonstrations)} gold demonstrations solved their task through the agent's tools"
    if demonstrations and solved == len(demonstrations):
        return Finding(check="tasks", level=Level.OK, evidence=evidence)
    return Finding(
        check="tasks",
        level=Level.BROKEN,
        evidence=evidence,
        action="Prove the tasks again (patchgym validate) before looking at any model.",
    )


def _trajectories(found: Sequence[Trajectory]) -> Finding:
    faults = [fault for trajectory in found for fault in trajectory.faults]
    models = [trajectory for trajectory in found if trajectory.policy.spec.startswith("local:")]
    bare = [t.id for t in models for step in t.steps if step.tokens is None or step.tokens.logprobs is None]
    evidence = (
        f"{len(found)} trajectories, {sum(len(t.steps) for t in found)} steps, {len(faults)} infrastructure faults"
    )
    if bare:
        return Finding(
            check="trajectories",
            level=Level.BROKEN,
            evidence=f"{evidence}; {len(bare)} sampled steps lack token ids or log-probs, first in {bare[0]}",
            action="Without them no update can be exact: mend the collection first.",
        )
    if len(faults) * 20 > len(found):
        return Finding(
            check="trajectories",
            level=Level.BROKEN,
            evidence=f"{evidence}, the first: {faults[0].kind} in {faults[0].where}",
            action="More than one in twenty was lost to infrastructure: mend that first.",
        )
    return Finding(check="trajectories", level=Level.OK if not faults else Level.NOTE, evidence=evidence)


def _reward_findings(rounds: Mapping[str, Sequence[Trajectory]]) -> tuple[Finding, bool]:
    groups: dict[str, list[float]] = {}
    outcomes: list[float] = []
    for trajectory in (trajectory for found in rounds.values() for trajectory in found):
        if trajectory.in_baseline and trajectory.reward is not None and trajectory.reward.value is not None:
            groups.setdefault(trajectory.group_id, []).append(trajectory.reward.value)
            outcomes.append(first_layer(trajectory.reward) or 0.0)
    values = [value for members in groups.values() for value in members]
    varied = sum(max(members) - min(members) > 1e-9 for members in groups.values())
    low = sum(value <= _EXTREME for value in outcomes)
    high = sum(value >= 1 - _EXTREME for value in outcomes)
    evidence = (
        f"{len(values)} rewards: {low} at 0, {len(values) - low - high} between, {high} solved; "
        f"{varied} of {len(groups)} groups have variance"
    )
    if not varied:
        return (
            Finding(
                check="rewards",
                level=Level.NOTE,
                evidence=evidence,
                action="No group's samples differ, so nothing can be learned from comparing them: take easier tasks, "
                "a longer warm start or more samples a task.",
            ),
            False,
        )
    between = len(values) - low - high
    action = "" if between else "All rewards lie at the extremes: partial credit adds nothing on these tasks."
    return Finding(check="rewards", level=Level.NOTE if action else Level.OK, evidence=evidence, action=action), True


def _updates(updates: Sequence[UpdateFacts]) -> Finding:
    if not updates:
        return Finding(check="updates", level=Level.NOTE, evidence="no update was made")
    gaps = [update.sampler_gap for update in updates if update.sampler_gap is not None]
    worst = max(gaps, default=None)
    moved = sum(update.nonzero for update in updates)
    evidence = f"{moved} of {len(updates)} updates had a non-zero gradient"
    if worst is not None:
        evidence += f"; trainer and sampler log-probs differ by {worst:.1e} on average at most"
    if worst is not None and worst > _SAMPLER_GAP:
        return Finding(
            check="updates",
            level=Level.BROKEN,
            evidence=evidence,
            action=f"Over {_SAMPLER_GAP} the update is not of the policy that sampled: check precision and templates.",
        )
    still = [update for update in updates if not update.nonzero]
    action = f"{still[0].name}: {still[0].why}" if still else ""
    return Finding(check="updates", level=Level.NOTE if still else Level.OK, evidence=evidence, action=action)


def _held_out(rounds: Mapping[str, Sequence[Trajectory]], held_out: HeldOut | None) -> Finding:
    if held_out is None:
        return Finding(check="held-out", level=Level.NOTE, evidence="nothing was measured on held-out tasks")
    evidence = (
        f"pass@1 {held_out.before:.2f} after the warm start, {held_out.after:.2f} after RL; difference "
        f"{held_out.after - held_out.before:+.2f}, 95% interval {held_out.low:+.2f} to {held_out.high:+.2f} over "
        f"{held_out.tasks} tasks"
    )
    means = [_mean_reward(found) for found in rounds.values()]
    known = [mean for mean in means if mean is not None]
    if held_out.low > 0:
        return Finding(check="held-out", level=Level.OK, evidence=evidence)
    if held_out.high < 0:
        return Finding(
            check="held-out",
            level=Level.BROKEN,
            evidence=evidence,
            action="Held-out success fell: lower the learning rate before anything else.",
        )
    climbing = len(known) > 2 and known[-1] > known[0] + 0.1
    action = (
        "Training reward rises and held-out success does not: look for leaks and reward hacking before training on."
        if climbing
        else "The interval holds zero: this run cannot show learning either way. More held-out tasks narrow it."
    )
    return Finding(check="held-out", level=Level.NOTE, evidence=evidence, action=action)


def _mean_reward(found: Sequence[Trajectory]) -> float | None:
    values = [t.reward.value for t in found if t.reward is not None and t.reward.value is not None]
    return sum(values) / len(values) if values else None
