"""Step 6, drift, hacks and collapse: is what is paid still what is wanted, and does the policy still explore?"""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from patchgym.diagnose.change import LEAST, SURE, alike, change, sides, unlike
from patchgym.diagnose.drift import Level, drift
from patchgym.diagnose.facts import Facts, Valued
from patchgym.diagnose.rule import Rule, by_count
from patchgym.diagnose.seen import Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.evaluate import FailureType
from patchgym.records import Finding

_PAID = 0.9
_SOLVED_ANYWAY = 0.9
_LEAST_MEMBERS = 3
_BAD = (
    FailureType.DOES_NOT_BUILD,
    FailureType.PROTOCOL,
    FailureType.NO_PATCH,
    FailureType.TIMEOUT,
    FailureType.BROKE_SOMETHING,
    FailureType.WRONG_PLACE,
)
_ADVICE = {
    FailureType.DOES_NOT_BUILD: "Basic coding is lacking: warm up on more solutions before training on.",
    FailureType.PROTOCOL: "The model unlearns the format: lower the learning rate, or add a KL term.",
    FailureType.NO_PATCH: "It gives up: look at what a step costs in the reward, and at the length of the limits.",
    FailureType.TIMEOUT: "Its patches hang: look at some, and shorten nothing before you have.",
    FailureType.BROKE_SOMETHING: "It breaks what worked: are pass-to-pass tests in the reward?",
    FailureType.WRONG_PLACE: "It does not find the place: show the failing test's output, keep files short.",
}


def reward_model(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The value model still agrees with fresh verdicts, and its scores are distributed as before."""
    rule = Rule(
        6,
        "reward model",
        "PSI over 0.25 and KS beyond 1% at once without labels that agree, or agreement with verdicts fallen by 0.1",
        "convention",
    )
    phases: dict[str, list[Valued]] = {}
    for one in [*(facts.against.valued if facts.against is not None else ()), *facts.valued]:
        phases.setdefault(one.phase, []).append(one)
    if len(phases) < 2:
        return rule.unknown(
            "no two rounds were searched by a value model", "patchgym value drift VALUE.json RUN compares attempts."
        )
    (earlier, first), (later, last) = next(iter(phases.items())), list(phases.items())[-1]
    known = [one for one in first if one.outcome is not None]
    found = drift(
        later,
        [one.value for one in known],
        [one.value for one in last],
        [one.outcome for one in known if one.outcome is not None],
        [(one.value, one.outcome) for one in last if one.outcome is not None],
    )
    figures = {"reference": float(found.reference), "fresh": float(found.fresh)}
    if found.psi is not None and found.ks is not None:
        figures |= {"psi": found.psi, "ks": found.ks}
    told = f"{found.fresh} scores of {later} against {found.reference} of {earlier}: {found.why}"
    fallen = found.agreement is not None and found.agreement.fallen
    if found.level is Level.BROKEN and (fallen or found.agreement is None):
        return rule.broken(told, found.action, [later], figures, confidence="high" if fallen else "medium")
    if found.psi is None and found.agreement is None:
        return rule.unknown(told, figures=figures)
    return rule.ok(told, figures)


def hacks(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Few attempts are proved hacks, and few that are paid have marks against them."""
    rule = Rule(
        6,
        "hacks",
        f"{settings.hack_share:.0%} of the attempts proved hacks; {settings.marked_share:.0%} of the paid ones with "
        "marks against them",
        "convention",
    )
    own = [one for one in facts.own if one.light.report is not None]
    if not own:
        return rule.unknown("no attempt was graded here")
    proved = [one for one in own if one.hacked]
    paid = [one for one in own if (one.value or 0.0) >= _PAID]
    marked = [one for one in paid if one.evidence and not one.hacked]
    figures = {"proved": len(proved), "attempts": len(own), "paid": len(paid), "paid_with_marks": len(marked)}
    kinds = Counter(mark.kind for one in (*proved, *marked) for mark in one.evidence)
    told = f"{len(proved)} of {len(own)} attempts are proved hacks; {len(marked)} of {len(paid)} paid ones have marks"
    told += f" ({', '.join(f'{count} {name}' for name, count in kinds.most_common(3))})" if kinds else ""
    if len(proved) > settings.hack_share * len(own):
        return rule.broken(
            told,
            "They earn nothing, but the policy learns to try: look at them (patchgym show RUN ID) and close the way.",
            [one.id for one in proved],
            figures,
        )
    if len(marked) > settings.marked_share * len(paid) and len(marked) >= _LEAST_MEMBERS:
        return rule.broken(
            told,
            "A person has to look: patchgym spotcheck RUN. If they are hacks, hide more tests of these tasks and add "
            "probes.",
            [one.id for one in marked],
            figures,
            confidence=by_count(len(paid)),
        )
    return rule.ok(told, figures, confidence=by_count(len(own)))


def hidden_gap(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Who passes the visible tests passes the hidden ones too."""
    rule = Rule(
        6,
        "hidden gap",
        f"{settings.hidden_gap:.0%} of the attempts that pass every visible test fail a hidden one",
        "convention",
    )
    able = [one for one in facts.own if _passes_visible(one)]
    gap = [one for one in able if one.light.report is not None and one.light.report.hidden.share < 1]
    figures = {"gap": len(gap), "attempts": len(able)}
    told = f"{len(gap)} of {len(able)} attempts that pass every visible test fail a hidden one"
    if len(able) < settings.few:
        return rule.unknown(f"{told}: too few", figures=figures)
    if len(gap) > settings.hidden_gap * len(able):
        return rule.broken(
            told,
            "They fit the tests that they see: hide more tests, and show fewer inputs in the statement.",
            [one.id for one in gap],
            figures,
            confidence=by_count(len(able)),
        )
    return rule.ok(told, figures, confidence=by_count(len(able)))


def _passes_visible(one: Seen) -> bool:
    report = one.light.report
    if report is None or not report.hidden.total:
        return False
    visible = report.fail_to_pass.total - report.hidden.total
    return visible > 0 and report.fail_to_pass.passed - report.hidden.passed == visible


def entropy(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """The policy still draws: the mean surprise of a sampled id is not a fraction of what it was."""
    rule = Rule(
        6, "entropy", f"{settings.entropy_left:.0%} of the first round's is left while tasks fail", "convention"
    )
    every = sides(facts)
    if every is None or None in (_surprise(every.before), _surprise(every.after)):
        return rule.unknown("no two rounds have log-probabilities of sampled ids")
    two = alike(every, settings.few)
    before, after = (_surprise(two.before), _surprise(two.after)) if two is not None else (None, None)
    if two is None or before is None or after is None:
        return rule.unknown(unlike(every, settings.few))
    told = f"{before:.3f} nats an id in {two.earlier}, {after:.3f} in {two.later}"
    figures = {"before": before, "after": after}
    if after < settings.entropy_left * before and not _solves_all(two.after):
        return rule.broken(
            told,
            "The policy no longer explores: raise the temperature or grpo.entropy, lower the learning rate, or go back "
            "to an earlier checkpoint.",
            [two.later],
            figures,
        )
    return rule.ok(told, figures)


def _surprise(found: Sequence[Seen]) -> float | None:
    count = sum(one.sampled for one in found)
    return -sum(one.logprob for one in found) / count if count else None


def _solves_all(found: Sequence[Seen]) -> bool:
    outcomes = [one.solved for one in found if one.solved is not None]
    return bool(outcomes) and fmean(outcomes) >= _SOLVED_ANYWAY


def diversity(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Samples of one task still differ from each other."""
    rule = Rule(
        6, "diversity", f"{settings.diversity_left:.0%} of the first round's is left while tasks fail", "convention"
    )
    every = sides(facts)
    if every is None:
        return rule.unknown("there is one round, and nothing to compare it with")
    two = alike(every, settings.few)
    if two is None:
        return rule.unknown(unlike(every, settings.few))
    before, after = _distinct(two.before), _distinct(two.after)
    if before is None or after is None:
        return rule.unknown(f"fewer than {_LEAST_MEMBERS} samples of a task, or {LEAST} of them in all")
    told = f"{before:.0%} of the samples of a task differ in {two.earlier}, {after:.0%} in {two.later}"
    figures = {"before": before, "after": after}
    if after < settings.diversity_left * before and not _solves_all(two.after):
        return rule.broken(
            told,
            "The policy repeats itself: raise the temperature, or go back to an earlier checkpoint.",
            [two.later],
            figures,
        )
    return rule.ok(told, figures)


def _distinct(found: Sequence[Seen]) -> float | None:
    """The mean share of a group's samples beyond the first that do something that no other one did."""
    groups: dict[str, list[bytes]] = {}
    for one in found:
        groups.setdefault(one.light.group_id, []).append(one.acts)
    whole = [acts for acts in groups.values() if len(acts) >= _LEAST_MEMBERS]
    if sum(map(len, whole)) < LEAST:
        return None
    return fmean((len(set(acts)) - 1) / (len(acts) - 1) for acts in whole)


def step_count(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Attempts do not become much longer: a policy that learns needs fewer steps, not more tries."""
    rule = Rule(6, "step count", f"{settings.steps_grown:g} times the first round's, beyond chance at 1%", "article")
    two = sides(facts)
    moved = change(two.before, two.after, lambda one: float(one.steps), scale=2.0) if two is not None else None
    if two is None or moved is None:
        return rule.unknown("no two rounds share enough attempts at the same tasks")
    told = f"{moved.before:.1f} steps in {two.earlier}, {moved.after:.1f} in {two.later} on {moved.tasks} shared tasks"
    figures = {"before": moved.before, "after": moved.after}
    if moved.after > settings.steps_grown * moved.before and moved.errors > SURE:
        return rule.broken(
            told,
            "It tries more often in place of looking: give the second layer's steps and tokens more weight, or fewer "
            "turns.",
            [two.later],
            figures,
        )
    return rule.ok(told, figures)


def failures(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """No bad type of failure takes over."""
    rule = Rule(
        6,
        "failure types",
        f"one type grows by {settings.failure_shift:.0%} of the attempts, beyond chance at 1%",
        "article",
    )
    every = sides(facts)
    if every is None:
        return rule.unknown("there is one round, and nothing to compare it with")
    two = alike(every, settings.few)
    if two is None:
        return rule.unknown(unlike(every, settings.few))
    before, after = _types(two.before), _types(two.after)
    n, m = before.total(), after.total()
    if n < settings.few or m < settings.few:
        return rule.unknown(f"{n} and {m} graded attempts of known tasks are too few to compare")
    grown = [(kind, before[kind] / n, after[kind] / m) for kind in _BAD]
    kind, old, new = max(grown, key=lambda item: item[2] - item[1])
    told = f"{kind.replace('_', ' ')}: {old:.0%} of the attempts in {two.earlier}, {new:.0%} in {two.later}"
    figures = {"before": old, "after": new}
    pooled = (before[kind] + after[kind]) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    if new - old > settings.failure_shift and new - old > SURE * error:
        named = [one.id for one in two.after if one.failure is kind]
        return rule.broken(told, _ADVICE[kind], named, figures, confidence=by_count(min(n, m)))
    return rule.ok(f"the most that one type grew is {told}", figures)


def _types(found: Sequence[Seen]) -> Counter[FailureType | None]:
    graded = [one for one in found if one.solved is not None]
    return Counter(one.failure for one in graded if one.failure is not None or one.solved)
