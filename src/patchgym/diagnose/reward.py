"""Checks of rewards before training on them, in the order in which causes hide each other.

Grading that does not agree with itself makes every other figure meaningless, so it comes first; then whether rewards
say anything of attempts between failure and success, whether samples of one task differ, and whether what differs is
the outcome or style. Each threshold says where it comes from.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

from patchgym.diagnose.judge import Finding, Level
from patchgym.diagnose.variance import Grading, VarianceSplit, recorded_grading, split_variance, unstable
from patchgym.records import Record, Trajectory
from patchgym.reward import RewardLog, first_layer, log_of, settle

FEW = 10
"""Scored attempts under which nothing is said of shares: where a quarter of all lie between the extremes, none of ten
does by chance in 6% of cases (0.75^10), and none of five in 24%."""
FEW_GROUPS = 5
"""Groups under which nothing is said of their shares: one of four is a quarter."""
FLAT_SHARE = 0.8
"""Share of groups without variance above which most of the sampling is wasted. At 60% a model of 135M still learned."""
DOMINANT_SHARE = 0.5
"""Share of the variance within groups above which one term makes more difference than all others together."""
_EXTREME = 0.02
_SOLVED = 0.95


class RewardFinding(Finding):
    """A finding with the threshold that it was held against, and where that comes from."""

    threshold: str


class RewardJudgement(Record):
    """All findings in order, and the verdict, which names the first cause. ``alarm``: something must be mended first.
    ``enough``: there were samples enough to say so."""

    findings: tuple[RewardFinding, ...]
    alarm: bool
    enough: bool
    verdict: str
    log: RewardLog
    variance: VarianceSplit


def judge_rewards(trajectories: Iterable[Trajectory], regraded: Sequence[Grading] = ()) -> RewardJudgement:
    """Judge the rewards of a run whose groups are whole. ``regraded`` are further gradings of its patches."""
    settled = settle(trajectories)
    log = log_of(settled)
    gradings = [*(made for one in settled if (made := recorded_grading(one)) is not None), *regraded]
    split = split_variance(gradings)
    findings = (
        _samples(settled, log),
        _grading(gradings, split),
        _extremes(settled),
        _groups(settled, log),
        _phantoms(log),
        _terms(settled, log),
    )
    alarms = [finding for finding in findings if finding.level is Level.BROKEN]
    enough = findings[0].level is Level.OK
    if alarms:
        verdict = f"Do not train on these rewards yet: {alarms[0].check}. {alarms[0].action}"
    elif not enough:
        verdict = f"Too few samples to say whether these rewards can be trained on. {findings[0].action}"
    else:
        verdict = "These rewards can be trained on."
    return RewardJudgement(
        findings=findings, alarm=bool(alarms), enough=enough, verdict=verdict, log=log, variance=split
    )


def _samples(settled: Sequence[Trajectory], log: RewardLog) -> RewardFinding:
    verdicts = Counter(str(one.report.verdict) for one in settled if one.report is not None and _value(one) is None)
    lost = sum(one.report is None for one in settled)
    left_out = [f"{count} {name}" for name, count in [*sorted(verdicts.items()), ("lost to infrastructure", lost)]]
    named = f" ({', '.join(each for each in left_out if not each.startswith('0 '))})" if log.not_scored else ""
    evidence = f"{log.scored} attempts scored, {log.not_scored} not{named}; {log.groups} groups of two and more"
    threshold = f"{FEW} scored attempts and one group: of fewer, nothing between the extremes shows nothing"
    if log.scored < FEW or not log.groups:
        action = "Collect more: at least two samples of each of five tasks (patchgym rollout --samples 4)."
        return RewardFinding(check="samples", level=Level.NOTE, evidence=evidence, threshold=threshold, action=action)
    return RewardFinding(check="samples", level=Level.OK, evidence=evidence, threshold=threshold)


def _grading(gradings: Sequence[Grading], split: VarianceSplit) -> RewardFinding:
    threshold = "0: grading the same patch again must give the same verdict"
    apart = unstable(gradings)
    shares = f"variance by the policy {_figure(split.policy)}, by grading {_figure(split.grading)}"
    if not split.repeats:
        return RewardFinding(
            check="grading",
            level=Level.NOTE,
            evidence="no patch was graded twice",
            threshold=threshold,
            action="Grade some again: patchgym diagnose --reward RUN --regrade 20.",
        )
    counted = f"{split.patches} patches graded {split.gradings} times"
    if not apart:
        evidence = f"{counted}, each always the same; {shares}"
        return RewardFinding(check="grading", level=Level.OK, evidence=evidence, threshold=threshold)
    first = apart[0]
    gates = ", ".join(f"{count} x {gate}" for gate, count in Counter(one.gate for one in first).items())
    share = f" ({split.grading_share:.0%} of both)" if split.grading_share is not None else ""
    return RewardFinding(
        check="grading",
        level=Level.BROKEN,
        evidence=f"{counted}, {len(apart)} of them with different verdicts; {shares}{share}. The patch of "
        f"{first[0].trajectory}: {gates}{_differing(first)}",
        threshold=threshold,
        action=f"The environment of {first[0].task_id} is not stable: prove its tests again (patchgym validate) and "
        "leave out what is flaky before comparing samples.",
    )


def _extremes(settled: Sequence[Trajectory]) -> RewardFinding:
    firsts = [first for one in settled if (first := _first(one)) is not None]
    low, high = sum(first <= _EXTREME for first in firsts), sum(first >= _SOLVED for first in firsts)
    between = len(firsts) - low - high
    evidence = f"{low} at 0, {between} between, {high} solved"
    threshold = f"one attempt between {_EXTREME} and {_SOLVED} of {FEW} and more"
    if between or len(firsts) < FEW:
        level = Level.OK if between else Level.NOTE
        return RewardFinding(check="process signal", level=level, evidence=evidence, threshold=threshold)
    most = 1 - 0.05 ** (1 / len(firsts))
    sizes = [one.report.fail_to_pass.total for one in settled if one.report is not None]
    if max(sizes, default=0) < 2:
        action = (
            "Every task has one failing test, so nothing can be fixed in part: take tasks with several, or add process "
            "rewards."
        )
    elif not high:
        action = "Nobody fixes even a part: take easier tasks or a longer warm start."
    elif not low:
        action = "Everybody solves everything: take harder tasks."
    else:
        action = "Attempts solve a task or nothing of it: take tasks with more failing tests, or add process rewards."
    return RewardFinding(
        check="process signal",
        level=Level.BROKEN,
        evidence=f"{evidence}: all at the extremes (of further attempts at most {most:.0%} lie between, at 95%)",
        threshold=threshold,
        action=action,
    )


def _groups(settled: Sequence[Trajectory], log: RewardLog) -> RewardFinding:
    threshold = f"{FLAT_SHARE:.0%} of {FEW_GROUPS} groups and more: at 60% a model of 135M still learned"
    kinds = Counter(_ending(gates) for gates in _gates(settled).values() if len(gates) > 1)
    evidence = (
        f"{log.zero_variance} of {log.groups} groups have no variance; in {kinds['solved']} all solved, in "
        f"{kinds['failed']} all came to nothing"
    )
    flat = log.zero_variance / log.groups if log.groups else 0.0
    if log.groups < FEW_GROUPS or flat <= FLAT_SHARE:
        level = Level.NOTE if log.groups < FEW_GROUPS else Level.OK
        return RewardFinding(check="groups", level=level, evidence=evidence, threshold=threshold)
    easier = "Take easier tasks, a longer warm start or more samples of each task."
    harder = "Take harder tasks, or a higher temperature."
    return RewardFinding(
        check="groups",
        level=Level.BROKEN,
        evidence=evidence,
        threshold=threshold,
        action=harder if kinds["solved"] > kinds["failed"] else easier,
    )


def _phantoms(log: RewardLog) -> RewardFinding:
    evidence = f"{log.phantom} of {log.groups} groups differ by style alone though not all solved the task"
    threshold = "0: with such a gate a published run reached 0.75 held out, without it 0.10"
    if not log.phantom:
        return RewardFinding(check="phantom advantages", level=Level.OK, evidence=evidence, threshold=threshold)
    return RewardFinding(
        check="phantom advantages",
        level=Level.BROKEN,
        evidence=evidence,
        threshold=threshold,
        action="Compute the rewards again, which gates the second layer: patchgym score RUN --out RUN2.",
    )


def _terms(settled: Sequence[Trajectory], log: RewardLog) -> RewardFinding:
    threshold = f"{DOMINANT_SHARE:.0%} of the variance within groups: above, style outweighs the outcome; values 0 to 1"
    wild = [one for one in settled if one.reward is not None and not 0 <= (one.reward.value or 0.0) <= 1]
    if wild:
        reward = wild[0].reward
        assert reward is not None
        name = max(reward.terms, key=lambda each: abs(reward.terms[each].value), default="a term")
        return RewardFinding(
            check="terms",
            level=Level.BROKEN,
            evidence=f"{len(wild)} rewards outside of 0 to 1, the first {reward.value:.3g} of {wild[0].id}, by {name}",
            threshold=threshold,
            action=f"{name} has no bound: compute the rewards again (patchgym score RUN --out RUN2).",
        )
    known = {name: term.variance_share for name, term in log.terms.items() if name != "outcome" and term.variance_share}
    if not known:
        evidence = "no term beside the outcome makes a difference within groups"
        return RewardFinding(check="terms", level=Level.OK, evidence=evidence, threshold=threshold)
    name, share = max(known.items(), key=lambda item: item[1])
    evidence = f"the largest beside the outcome is {name} with {share:.0%} of the variance within groups"
    if share <= DOMINANT_SHARE:
        return RewardFinding(check="terms", level=Level.OK, evidence=evidence, threshold=threshold)
    return RewardFinding(
        check="terms",
        level=Level.BROKEN,
        evidence=evidence,
        threshold=threshold,
        action=f"The policy would be trained for {name}: take tasks whose outcomes differ between samples, or lower "
        "its weight.",
    )


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
