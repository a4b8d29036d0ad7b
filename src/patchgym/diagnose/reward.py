"""Checks of rewards before training on them, in the order in which causes hide each other.

Grading that does not agree with itself makes every other figure meaningless, so it comes first; then whether rewards
say anything of attempts between failure and success, whether samples of one task differ, and whether what differs is
the outcome or style. Each finding says its threshold and where that comes from.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from math import comb

from patchgym.diagnose.rule import Rule, by_count
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.diagnose.variance import Grading, VarianceSplit, recorded_grading, split_variance, unstable
from patchgym.records import Finding, Record, Status, Trajectory, Verdict
from patchgym.records.outcome import hacked
from patchgym.reward import RewardLog, first_layer, log_of, settle

_EXTREME = 0.02
_SOLVED = 0.95
_ALIKE = 1e-9
_BEARABLE = 0.75  # of the share that is held to be broken: at that many flat groups a model still learned
_MOST_GROUPS = 300


class RewardJudgement(Record):
    """All findings in order, and the verdict, which names the first cause. ``alarm``: something must be mended first.
    ``enough``: there were samples enough to say so."""

    findings: tuple[Finding, ...]
    alarm: bool
    enough: bool
    verdict: str
    log: RewardLog
    variance: VarianceSplit


def judge_rewards(
    trajectories: Iterable[Trajectory],
    regraded: Sequence[Grading] = (),
    settings: DiagnoseSettings | None = None,
) -> RewardJudgement:
    """Judge the rewards of a run whose groups are whole. ``regraded`` are further gradings of its patches."""
    wanted = settings or DiagnoseSettings()
    settled = settle(trajectories)
    log = log_of(settled)
    gradings = [*(made for one in settled if (made := recorded_grading(one)) is not None), *regraded]
    split = split_variance(gradings)
    findings = (
        _samples(settled, log, wanted),
        _grading(gradings, split, wanted),
        _bounds(settled),
        _extremes(settled, wanted),
        _groups(settled, log, wanted),
        _phantoms(log),
        _terms(log, wanted),
    )
    alarms = [finding for finding in findings if finding.status is Status.BROKEN]
    enough = findings[0].status is Status.OK
    if alarms:
        verdict = f"Do not train on these rewards yet: {alarms[0].check}. {alarms[0].action}"
    elif not enough:
        verdict = f"Too few samples to say whether these rewards can be trained on. {findings[0].action}"
    else:
        verdict = "These rewards can be trained on."
    return RewardJudgement(
        findings=findings, alarm=bool(alarms), enough=enough, verdict=verdict, log=log, variance=split
    )


def _samples(settled: Sequence[Trajectory], log: RewardLog, settings: DiagnoseSettings) -> Finding:
    # Where a quarter of all lie between the extremes, none of ten does by chance in 6% of cases (0.75^10), and none of
    # five in 24%.
    rule = Rule(
        3,
        "samples",
        f"{settings.few} scored attempts and one group: of fewer, nothing between the extremes shows nothing",
        "article",
    )
    verdicts = Counter(str(one.report.verdict) for one in settled if one.report is not None and _value(one) is None)
    lost = sum(one.report is None for one in settled)
    left_out = [f"{count} {name}" for name, count in [*sorted(verdicts.items()), ("lost to infrastructure", lost)]]
    named = f" ({', '.join(each for each in left_out if not each.startswith('0 '))})" if log.not_scored else ""
    evidence = f"{log.scored} attempts scored, {log.not_scored} not{named}; {log.groups} groups of two and more"
    figures = {"scored": log.scored, "not_scored": log.not_scored, "groups": log.groups}
    if log.scored < settings.few or not log.groups:
        action = "Collect more: at least two samples of each of five tasks (patchgym rollout --samples 4)."
        return rule.unknown(evidence, action, figures)
    return rule.ok(evidence, figures)


def _grading(gradings: Sequence[Grading], split: VarianceSplit, settings: DiagnoseSettings) -> Finding:
    rule = Rule(3, "grading", "0: grading the same patch again must give the same value", "article")
    apart = [group for group in unstable(gradings) if len({one.value for one in group}) > 1]
    shares = f"variance by the policy {_figure(split.policy)}, by grading {_figure(split.grading)}"
    if not split.repeats:
        return rule.unknown("no patch was graded twice", "Grade some again: patchgym diagnose RUN --regrade 20.")
    counted = f"{split.patches} patches graded {split.gradings} times"
    figures = {"patches": float(split.patches), "gradings": float(split.gradings)}
    if split.grading_share is not None:
        figures["grading_share"] = split.grading_share
    if not apart:
        return rule.ok(f"{counted}, each always the same; {shares}", figures, confidence=by_count(split.repeats))
    first = apart[0]
    gates = ", ".join(f"{count} x {gate}" for gate, count in Counter(one.gate for one in first).items())
    share = f" ({split.grading_share:.0%} of both)" if split.grading_share is not None else ""
    return rule.broken(
        f"{counted}, {len(apart)} of them with different values; {shares}{share}. The patch of "
        f"{first[0].trajectory}: {gates}{_differing(first)}",
        f"The environment of {first[0].task_id} is not stable: prove its tests again (patchgym validate) and "
        "leave out what is flaky before comparing samples.",
        [group[0].task_id for group in apart],
        figures,
    )


def _bounds(settled: Sequence[Trajectory]) -> Finding:
    rule = Rule(3, "bounds", "rewards from 0 to 1, as every recipe that is accepted gives them", "convention")
    wild = [one for one in settled if one.reward is not None and not 0 <= (one.reward.value or 0.0) <= 1]
    if not wild:
        return rule.ok("every reward lies between 0 and 1")
    worst = max(wild, key=lambda one: abs(_value(one) or 0.0))
    reward = worst.reward
    assert reward is not None
    name = max(reward.terms, key=lambda each: abs(reward.terms[each].value), default="a term")
    return rule.broken(
        f"{len(wild)} rewards outside of 0 to 1, the farthest {reward.value:.3g} of {worst.id}, by {name}",
        f"{name} has no bound: compute the rewards again (patchgym score RUN --out RUN2).",
        [one.id for one in wild],
        {"rewards": len(wild), "farthest": reward.value or 0.0},
    )


def _extremes(settled: Sequence[Trajectory], settings: DiagnoseSettings) -> Finding:
    firsts = [first for one in settled if (first := _first(one)) is not None]
    low, high = sum(first <= _EXTREME for first in firsts), sum(first >= _SOLVED for first in firsts)
    between = len(firsts) - low - high
    evidence = f"{low} at 0, {between} between, {high} solved"
    threshold = (
        f"one attempt between {_EXTREME} and {_SOLVED}: of {settings.few} attempts that come out alike or cannot count "
        f"in part, else of attempts at {settings.few} tasks"
    )
    rule = Rule(3, "process signal", threshold, "article")
    tasks = {one.task_id for one in settled if _first(one) is not None and _in_part(one)}
    figures = {"zero": low, "between": between, "solved": high, "tasks": len(tasks)}
    if between:
        return rule.ok(evidence, figures, confidence=by_count(len(firsts)))
    if len(firsts) < settings.few:
        return rule.unknown(f"{evidence}: too little to tell, {settings.few} would be enough", figures=figures)
    action = _without_parts(settled, tasks, low, high)
    if not action and len(tasks) < settings.few:
        return rule.unknown(
            f"{evidence}, at {len(tasks)} tasks: too little to tell, {settings.few} tasks would be enough",
            "More tasks, or tasks with more failing tests, tell whether attempts ever get a part right.",
            figures,
        )
    # Attempts at one task come out alike, so tasks are what is counted.
    most = 1 - 0.05 ** (1 / max(1, len(tasks)))
    told = f" (of further tasks at most {most:.0%} have an attempt between, at 95%)" if not action else ""
    return rule.broken(
        f"{evidence}: all at the extremes{told}",
        action or "Attempts solve a task or nothing of it: take tasks with more failing tests, or add process rewards.",
        figures=figures,
        confidence=by_count(len(firsts)),
    )


def _without_parts(settled: Sequence[Trajectory], tasks: Collection[str], low: int, high: int) -> str:
    """What to do where it is plain why nothing lies between the extremes, however few the attempts are: nothing can, or
    nothing differs, and then there is nothing to learn from either; empty where chance may have done it."""
    unpaid = [one.id for one in settled if _mended_in_part(one)]
    if unpaid:
        return f"{len(unpaid)} attempts mend a part of their tests and get nothing for it: pay for parts (reward.half)."
    if not tasks:
        return (
            "Every task has one failing test, so nothing can be fixed in part: take tasks with several, or add process "
            "rewards."
        )
    if not high:
        return "Nobody fixes even a part: take easier tasks or a longer warm start."
    return "" if low else "Everybody solves everything: take harder tasks."


def _in_part(one: Trajectory) -> bool:
    """Whether its task can be solved in part."""
    return one.report is not None and one.report.fail_to_pass.total > 1


def _mended_in_part(one: Trajectory) -> bool:
    """Whether it mended some failing tests, broke nothing, and is worth nothing all the same."""
    report, first = one.report, _first(one)
    if report is None or first is None or first > _ALIKE or report.verdict is not Verdict.UNRESOLVED or hacked(one):
        return False
    return report.fail_to_pass.passed > 0 and report.pass_to_pass.passed == report.pass_to_pass.total


def _groups(settled: Sequence[Trajectory], log: RewardLog, settings: DiagnoseSettings) -> Finding:
    rule = Rule(
        3,
        "groups",
        f"{settings.flat_share:.0%} of {settings.few_groups} groups and more without variance, and beyond chance at 5% "
        f"more than {_BEARABLE * settings.flat_share:.0%}: at 60% a model of 135M still learned",
        "measured",
    )
    kinds = Counter(_ending(gates) for gates in _gates(settled).values() if len(gates) > 1)
    flat = _flat(settled)
    evidence = (
        f"{flat} of {log.groups} groups have no variance in outcome; in {kinds['solved']} all solved, in "
        f"{kinds['failed']} all came to nothing"
    )
    figures = {"flat": flat, "groups": log.groups}
    if log.groups < settings.few_groups:
        return rule.unknown(evidence, figures=figures)
    if flat <= settings.flat_share * log.groups:
        return rule.ok(evidence, figures)
    bearable = _BEARABLE * settings.flat_share
    if _chance(flat, log.groups, bearable) > 0.05:
        enough = _enough(flat / log.groups, bearable)
        return rule.unknown(
            f"{evidence}: too little to tell, {enough} groups like these would be enough",
            figures=figures,
        )
    easier = "Take easier tasks, a longer warm start or more samples of each task."
    harder = "Take harder tasks, or a higher temperature."
    return rule.broken(
        evidence,
        harder if kinds["solved"] > kinds["failed"] else easier,
        figures=figures,
        confidence="medium" if log.groups < 4 * settings.few_groups else "high",
    )


def _chance(flat: int, groups: int, bearable: float) -> float:
    """How often so many groups of these and more are flat where the share ``bearable`` of all groups is (binomial)."""
    return sum(
        comb(groups, count) * bearable**count * (1 - bearable) ** (groups - count) for count in range(flat, groups + 1)
    )


def _enough(share: float, bearable: float) -> int:
    """How many groups, of which such a share is flat, are beyond chance."""
    found = (count for count in range(1, _MOST_GROUPS) if _chance(int(share * count), count, bearable) <= 0.05)
    return next(found, _MOST_GROUPS)


def _phantoms(log: RewardLog) -> Finding:
    rule = Rule(
        3,
        "phantom advantages",
        "0: with such a gate a published run reached 0.75 held out, without it 0.10",
        "convention",
    )
    evidence = f"{log.phantom} of {log.groups} groups differ by style alone though not all solved the task"
    figures = {"groups": log.phantom}
    if not log.phantom:
        return rule.ok(evidence, figures)
    action = "Compute the rewards again, which gates the second layer: patchgym score RUN --out RUN2."
    return rule.broken(evidence, action, figures=figures)


def _terms(log: RewardLog, settings: DiagnoseSettings) -> Finding:
    rule = Rule(
        3,
        "terms",
        f"{settings.dominant_share:.0%} of the variance within groups: above, style outweighs the outcome",
        "convention",
    )
    shares = {name: term.variance_share or 0.0 for name, term in log.terms.items() if name != "outcome"}
    known = {name: share for name, share in shares.items() if share > 0}
    if not known:
        return rule.ok("no term beside the outcome makes a difference within groups")
    name, share = max(known.items(), key=lambda item: item[1])
    evidence = f"the largest beside the outcome is {name} with {share:.0%} of the variance within groups"
    figures = {name: share}
    if share <= settings.dominant_share:
        return rule.ok(evidence, figures)
    return rule.broken(
        evidence,
        f"The policy would be trained for {name}: take tasks whose outcomes differ between samples, or lower "
        "its weight.",
        [name],
        figures,
        confidence=by_count(log.scored),
    )


def _flat(settled: Sequence[Trajectory]) -> int:
    """How many groups of two and more came out alike, but for style."""
    firsts: dict[str, list[float]] = {}
    for one in settled:
        first = _first(one)
        if one.in_baseline and first is not None:
            firsts.setdefault(one.group_id, []).append(first)
    return sum(len(values) > 1 and max(values) - min(values) <= _ALIKE for values in firsts.values())


def _gates(settled: Sequence[Trajectory]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in settled:
        if one.in_baseline and one.reward is not None and one.reward.value is not None:
            first = first_layer(one.reward) or 0.0
            gate = "solved" if first >= _SOLVED else "failed" if first <= _EXTREME else "partial"
            found.setdefault(one.group_id, []).append(gate)
    return found


def _ending(gates: Sequence[str]) -> str:
    return gates[0] if len(set(gates)) == 1 else "mixed"


def _value(one: Trajectory) -> float | None:
    return one.reward.value if one.reward is not None else None


def _first(one: Trajectory) -> float | None:
    return first_layer(one.reward) if one.reward is not None and one.reward_trusted else None


def _differing(gradings: Sequence[Grading]) -> str:
    names = sorted({name for one in gradings for name in one.tests})
    apart = [name for name in names if len({one.tests.get(name) for one in gradings}) > 1]
    return f"; {len(apart)} tests differ, first {apart[0]}" if apart else ""


def _figure(value: float | None) -> str:
    return "not known" if value is None else f"{value:.4f}"
