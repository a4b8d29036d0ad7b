"""Step 3, the distribution of rewards: are they what the verdicts say, and can they tell attempts apart?"""

from collections.abc import Iterator

from pydantic import ValidationError

from patchgym.diagnose.facts import Facts
from patchgym.diagnose.reward import judge_rewards
from patchgym.diagnose.rule import Rule, by_count
from patchgym.diagnose.seen import Seen
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.records import Finding, Status
from patchgym.reward import RewardSettings, first_layer, outcome_value

_APART = 1e-6


def computed(facts: Facts, settings: DiagnoseSettings) -> Finding:
    """Every graded attempt has the reward that its verdict is worth."""
    rule = Rule(3, "computed", "0 rewards that are missing or not what the verdict is worth", "article")
    graded = [one for one in facts.own if one.light.report is not None and not one.light.faults]
    if not graded:
        return rule.unknown("no attempt was graded here", "Imported logs have no rewards; patchgym rollout makes them.")
    try:
        recorded = facts.config.get("reward")
        how = RewardSettings.model_validate(recorded) if isinstance(recorded, dict) else RewardSettings()
    except ValidationError as error:
        return rule.unknown(f"the run's reward settings are not of this release ({error.error_count()} keys)")
    wrong, missing = [], []
    for one in graded:
        assert one.light.report is not None
        evidence = one.light.reward.evidence if one.light.reward is not None else ()
        gate, value = outcome_value(one.light.report, how, evidence)
        if value is not None and one.value is None:
            missing.append((one, gate))
        elif value is not None and one.light.reward is not None and "outcome" in one.light.reward.terms:
            first = first_layer(one.light.reward)
            if first is not None and abs(first - value) > _APART:
                wrong.append((one, gate))
    if missing or wrong:
        one, gate = (missing or wrong)[0]
        told = "have no reward" if missing else "have another reward than their verdict is worth"
        return rule.broken(
            f"{len(missing or wrong)} of {len(graded)} graded attempts {told}: {one.id} is {gate} and has {_told(one)}",
            "Compute the rewards again: patchgym score RUN --out RUN2.",
            [each.id for each, _ in (missing or wrong)],
            {"missing": len(missing), "wrong": len(wrong)},
        )
    return rule.ok(f"{len(graded)} graded attempts have the reward of their verdict", confidence=by_count(len(graded)))


def _told(one: Seen) -> str:
    return "none" if one.value is None else f"{one.value:.3g}"


def distribution(facts: Facts, settings: DiagnoseSettings) -> Iterator[Finding]:
    """The checks of ``judge_rewards`` over what was sampled for training."""
    judged = judge_rewards((one.light for one in facts.sampled), facts.regraded, settings)
    if facts.sampled:
        yield from judged.findings
        return
    why = "nothing here was sampled by a policy that could be trained"
    for finding in judged.findings:
        yield finding.model_copy(
            update={"status": Status.UNKNOWN, "evidence": why, "action": "", "figures": {}, "confidence": "low"}
        )
