"""Step 4, the trend over steps: did the updates train what was sampled, how far did they move, and does reward rise?

A reward that falls or swings is the learning rate's or a coefficient's before it is the model's size.
"""

import itertools
from collections.abc import Sequence
from statistics import fmean

from patchgym.diagnose.change import LIKELY, SURE, change, rounds_of, sides
from patchgym.diagnose.facts import Facts, Update
from patchgym.diagnose.rule import Rule, by_count
from patchgym.diagnose.seen import Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.records import Finding
from patchgym.train import Reason, StepReport

_INTEGRITY_SHARE = 0.05
_NO_UPDATE = "no update by reward was made"


def rows(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The records that are trained on do not contradict themselves or the model."""
    rule = Rule(4, "rows", f"{_INTEGRITY_SHARE:.0%} of the rows refused because their record is wrong", "convention")
    if facts.unread or not facts.updates:
        return rule.unknown(facts.unread[0] if facts.unread else "no update was made")
    for update in facts.updates:
        report = update.report
        refused = {name: count for name, count in report.left_out.items() if _is_wrong(name)}
        whole = report.rows_used + sum(report.left_out.values())
        if sum(refused.values()) > _INTEGRITY_SHARE * whole:
            name, count = max(refused.items(), key=lambda item: item[1])
            first = report.mismatches[0] if report.mismatches else None
            told = f"; {first.trajectory}: {first.why}" if first is not None else ""
            return rule.broken(
                f"{update.name}: {sum(refused.values())} of {whole} rows were refused, {count} because "
                f"{Reason(name).meaning}{told}",
                "What was sampled is not what would be trained: mend how ids, log-probs and prompts are recorded.",
                [one.trajectory for one in report.mismatches],
                dict(refused),
            )
    used = sum(update.report.rows_used for update in facts.updates)
    return rule.ok(f"{used} rows of {len(facts.updates)} updates agree with what was sampled", {"rows": used})


def _is_wrong(name: str) -> bool:
    return name in set(Reason) and (Reason(name).integrity or Reason(name) is Reason.NO_LOGPROBS)


def sampler_gap(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Trainer and sampler give the same log-probabilities before any weight moves."""
    rule = Rule(
        4,
        "sampler gap",
        f"{settings.sampler_gap} nats on average; float32 against itself stays under 0.001, engines of different "
        "precision reach a few hundredths",
        "measured",
    )
    gaps = [(update.name, update.report.sampler_gap.mean) for update in facts.learning if update.report.sampler_gap]
    if not gaps:
        return rule.unknown(_NO_UPDATE)
    name, worst = max(gaps, key=lambda item: item[1])
    told = f"at most {worst:.1e} nats, in {name}"
    if worst > settings.sampler_gap:
        return rule.broken(
            told,
            "The update is not of the policy that sampled: check versions, precision, temperature and templates.",
            [name],
            {"nats": worst},
        )
    return rule.ok(told, {"nats": worst})


def gradients(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The updates move the weights."""
    rule = Rule(4, "gradients", "2 updates in a row, or the only one of a train run, without a gradient", "convention")
    if not facts.updates:
        return rule.unknown("no update was made")
    last = facts.learning[-2:] or facts.updates[-1:]
    still = [update for update in facts.updates if update.report.gradient == "zero"]
    told = f"{len(facts.updates) - len(still)} of {len(facts.updates)} updates had a gradient"
    figures = {"zero": len(still), "updates": len(facts.updates)}
    if all(update.report.gradient == "zero" for update in last):
        told += f"; {last[-1].name}: {last[-1].report.why}"
        if len(last) == 1 and facts.command == "loop":
            return rule.unknown(f"{told}; the next update will tell", figures=figures)
        return rule.broken(
            told,
            "Nothing was learned: take tasks that the policy solves at times, more samples of each, or a mask that "
            "trains what was sampled.",
            [update.name for update in last],
            figures,
        )
    return rule.ok(told, figures)


def step_size(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """No update moves the policy further than its own samples can tell."""
    rule = Rule(
        4,
        "step size",
        f"{settings.moved_nats:g} nats that a sampled id moves on average, {settings.clip_share:.0%} of the ids "
        f"clipped, {settings.loss_growth:g} times the first loss of imitation",
        "measured",
    )
    steps = sum(len(update.report.steps) for update in facts.updates)
    if not steps:
        return rule.unknown("no step was taken")
    for update in facts.updates:
        why = too_far(update.report.steps, settings, imitation=update.report.algorithm == "sft")
        if why:
            return rule.broken(
                f"{update.name}: {why}",
                "Lower the learning rate first (a third of it), then rows per step; not the model's size.",
                [update.name],
                {"steps": len(update.report.steps)},
            )
    moved = max((_moved(update) for update in facts.learning), default=0.0)
    return rule.ok(
        f"{steps} steps; a sampled id moves {moved:.3f} nats on average at most", {"steps": steps, "nats": moved}
    )


def too_far(steps: Sequence[StepReport], settings: DiagnoseSettings, *, imitation: bool) -> str:
    """Why these steps of one update move too far, in words; empty where they do not."""
    if len(steps) < 2:
        return ""
    if imitation:
        best, last = min(step.loss for step in steps), fmean(step.loss for step in steps[-3:])
        if last > settings.loss_growth * steps[0].loss:
            return f"the loss rose from {steps[0].loss:.3g} (at best {best:.3g}) to {last:.3g}"
        return ""
    gaps = [step.sampler_gap for step in steps if step.sampler_gap is not None]
    if gaps and max(gaps) - gaps[0] > settings.moved_nats:
        return f"the mean move of a sampled id's log-probability reached {max(gaps) - gaps[0]:.2f} nats"
    half = [step.clip_share for step in steps[len(steps) // 2 :] if step.clip_share is not None]
    if half and fmean(half) > settings.clip_share:
        return f"{fmean(half):.0%} of the ids of its later steps were clipped"
    return ""


def _moved(update: Update) -> float:
    gaps = [step.sampler_gap for step in update.report.steps if step.sampler_gap is not None]
    return max(gaps) - gaps[0] if gaps else 0.0


def reward_trend(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """On the tasks that rounds share, reward rises, and does not fall or swing."""
    rule = Rule(
        4,
        "reward trend",
        f"no fall beyond chance at 1%, no swings over {settings.swing:g} from round to round, a rise within "
        f"{settings.trend_steps} steps",
        "article",
    )
    rounds = rounds_of(facts)
    steps = sum(len(update.report.steps) for update in facts.learning)
    two = sides(facts)
    if two is None:
        return rule.unknown("there is one round, and nothing to compare it with")
    swings = _swings(list(rounds.values()), settings) if facts.against is None else 0
    mend = "Lower the learning rate, or the coefficients of the reward's terms, before changing the model."
    if swings >= 2:
        return rule.broken(
            f"reward changed its direction {swings} times by more than {settings.swing:g} on the same tasks",
            mend,
            list(rounds),
            {"swings": swings},
        )
    moved = change(two.before, two.after, reward_of)
    if moved is None:
        return rule.unknown(f"{two.earlier} and {two.later} share too few attempts at the same tasks")
    told = (
        f"{moved.before:.3f} in {two.earlier}, {moved.after:.3f} in {two.later} on {moved.tasks} shared tasks "
        f"({moved.errors:+.1f} standard errors)"
    )
    figures = {"before": moved.before, "after": moved.after, "steps": steps, "tasks": moved.tasks}
    if moved.errors < -SURE:
        return rule.broken(f"reward falls: {told}", mend, [two.later], figures)
    if moved.errors > LIKELY:
        return rule.ok(f"reward rises: {told}", figures, confidence="high" if moved.errors > SURE else "medium")
    if steps >= settings.trend_steps:
        return rule.broken(
            f"reward is flat after {steps} steps: {told}",
            "Look at the groups that have variance and at the gradient's norm; raise the learning rate or take tasks "
            "that are solved at times.",
            [two.later],
            figures,
            confidence="medium",
        )
    return rule.unknown(
        f"neither way beyond chance: {told}; {steps} of {settings.trend_steps} steps",
        figures=figures,
        confidence=by_count(len(two.after)),
    )


def reward_of(one: Seen) -> float | None:
    """Its reward, where that may be used."""
    return one.value if one.light.reward_trusted else None


def _swings(rounds: Sequence[Sequence[Seen]], settings: DiagnoseSettings) -> int:
    """How often the change from round to round turns around, counting only changes that are large and no chance."""
    changes = [change(a, b, reward_of) for a, b in itertools.pairwise(rounds)]
    large = [one.moved for one in changes if one and abs(one.moved) > settings.swing and abs(one.errors) > SURE]
    return sum(a * b < 0 for a, b in itertools.pairwise(large))
