"""The first layer: which gate applies, and what it is worth."""

from collections.abc import Iterable

from patchgym.records import Evidence, TestReport, Verdict
from patchgym.reward.curve import partial_value
from patchgym.reward.settings import RewardSettings


def outcome_value(
    report: TestReport, settings: RewardSettings, evidence: Iterable[Evidence] = ()
) -> tuple[str, float | None]:
    """The gate that applies and its value; None where there is nothing to score.

    ``infra_error``, ``abstained`` and ``machine_timeout`` have no value. ``evidence`` is what detectors of reward
    hacking found: proof among it is ``tampered``, whatever the tests say. An attempt whose tests all pass and which is
    not resolved all the same (recorded calls went wrong) is worth as much as one that misses one test.
    """
    if report.verdict is Verdict.INFRA_ERROR:
        return str(report.verdict), None
    if any(one.proof for one in evidence):
        return "tampered", 0.0
    match report.verdict:
        case Verdict.ABSTAINED:
            return str(report.verdict), None
        case Verdict.TIMEOUT if report.timeout_of == "machine":
            return "machine_timeout", None
        case Verdict.RESOLVED:
            return "solved", 1.0
        case Verdict.TAMPERED | Verdict.INVALID | Verdict.TIMEOUT:
            return str(report.verdict), 0.0
    if report.pass_to_pass.passed < report.pass_to_pass.total:
        return "regressed", 0.0
    fixed = report.fail_to_pass
    count = min(fixed.passed, fixed.total - 1)
    value = partial_value(count / fixed.total, settings.half, settings.cap) if count > 0 else 0.0
    return ("partial" if value > 0 else "failed"), value
