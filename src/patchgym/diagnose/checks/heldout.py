"""Step 5, training against held-out: both up, or is reward bought where the tests do not look?"""

from collections.abc import Mapping, Sequence

from patchgym.diagnose.change import SURE, change, sides
from patchgym.diagnose.checks.trend import reward_of
from patchgym.diagnose.facts import Facts
from patchgym.diagnose.rule import Rule
from patchgym.diagnose.seen import Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.evaluate import Estimate, paired_difference
from patchgym.records import Finding

_RISE = 0.1
_FIRST = ("eval-warm", "eval-base")


def heldout(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Success on held-out tasks does not fall, and rises where reward rises."""
    rule = Rule(
        5,
        "held-out",
        f"no fall beyond the 95% interval; no rise of reward by {_RISE:g} and more that held-out tasks do not share "
        f"({settings.few_heldout} of them and more)",
        "article",
    )
    two = _evaluations(facts)
    if two is None:
        return rule.unknown(
            "held-out tasks were not measured twice",
            "patchgym eval TASKSET --policy local:CHECKPOINT, before and after",
        )
    (earlier, before), (later, after) = two
    difference = paired_difference(_outcomes(before), _outcomes(after))
    if difference is None:
        return rule.unknown(f"{earlier} and {later} share no graded task")
    told = (
        f"pass@1 changed by {difference.value:+.2f} from {earlier} to {later}, 95% interval {difference.low:+.2f} to "
        f"{difference.high:+.2f} over {difference.tasks} tasks"
    )
    figures = {"difference": difference.value, "low": difference.low, "high": difference.high}
    if difference.tasks < settings.few_heldout:
        return rule.unknown(f"{told}: too few", "More held-out tasks narrow the interval.", figures)
    if difference.high < 0:
        return rule.broken(told, "Held-out success fell: lower the learning rate before anything else.", (), figures)
    bought = _bought(facts, difference)
    if bought:
        return rule.broken(
            f"training reward rises and held-out success does not: {bought}; {told}",
            "Look for leaks (patchgym tasks audit TASKSET) and for hacks (patchgym spotcheck RUN) before training on; "
            "the suspects are named.",
            _suspects(facts),
            figures,
        )
    if difference.low > 0:
        return rule.ok(told, figures)
    return rule.unknown(
        f"{told}: the interval holds zero, so this cannot show learning either way",
        "More held-out tasks narrow the interval.",
        figures,
    )


def _evaluations(facts: Facts) -> tuple[tuple[str, Sequence[Seen]], tuple[str, Sequence[Seen]]] | None:
    """The two to compare: the last before learning by reward and the last of all, or those of two runs."""
    measured = facts.measured
    if facts.against is not None:
        first, last = (_latest(one) for one in (facts.against, facts))
        return ((facts.against.run, first), (facts.run, last)) if first and last else None
    if len(measured) < 2:
        return None
    earlier = next((name for name in _FIRST if name in measured), next(iter(measured)))
    later = list(measured)[-1]
    return ((earlier, measured[earlier]), (later, measured[later])) if earlier != later else None


def _latest(facts: Facts) -> list[Seen]:
    if facts.measured:
        return list(facts.measured.values())[-1]
    heldout = {task.id for task in facts.tasks.values() if task.split == "heldout"}
    return [one for one in facts.own if one.light.task_id in heldout]


def _outcomes(found: Sequence[Seen]) -> Mapping[str, Sequence[bool]]:
    grouped: dict[str, list[bool]] = {}
    for one in found:
        if one.solved is not None:
            grouped.setdefault(one.light.task_id, []).append(one.solved)
    return grouped


def _bought(facts: Facts, difference: Estimate) -> str:
    """The rise of training reward that held-out tasks do not share, in words; empty where there is none."""
    two = sides(facts)
    rise = change(two.before, two.after, reward_of) if two is not None else None
    if rise is None or rise.errors < SURE or rise.moved < _RISE:
        return ""
    if difference.low > 0 or difference.high >= rise.moved:
        return ""
    return f"reward {rise.before:.2f} to {rise.after:.2f} on {rise.tasks} shared tasks"


def _suspects(facts: Facts) -> list[str]:
    """What reward may have been bought with: attempts with evidence against them, then tasks that leak, then the best
    paid attempts of the last round."""
    two = sides(facts)
    last = two.after if two is not None else []
    paid = sorted(last, key=lambda one: -(one.value or 0.0))
    marked = [one.id for one in paid if one.evidence]
    return [*marked, *(one.task for one in facts.about.leaks), *(one.id for one in paid)]
