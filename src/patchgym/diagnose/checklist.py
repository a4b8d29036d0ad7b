"""The checklist: every check in order, to the first broken link."""

from collections.abc import Iterator

from patchgym.diagnose.checks import CHECKS
from patchgym.diagnose.facts import Facts
from patchgym.diagnose.settings import DiagnoseSettings
from patchgym.records import Checklist, Finding, Status

STEPS = {
    1: "one sample by itself",
    2: "ten rollouts",
    3: "reward distribution",
    4: "trend over steps",
    5: "training against held-out",
    6: "drift, hacks, collapse",
}
"""The steps of the order of looking."""


def diagnose(facts: Facts, settings: DiagnoseSettings | None = None, *, whole: bool = False) -> Checklist:
    """Look at a run in order and stop at the first broken link; with ``whole``, look at all."""
    wanted = settings or DiagnoseSettings()
    found: list[Finding] = []
    for finding in _findings(facts, wanted):
        found.append(finding)
        if finding.status is Status.BROKEN and not whole:
            break
    done = {finding.check for finding in found}
    return Checklist(
        run=facts.run,
        command=facts.command,
        against=facts.against.run if facts.against is not None else None,
        trajectories=len(facts.attempts),
        findings=tuple(found),
        left=tuple(name for check in CHECKS for name in check.names if name not in done),
        verdict=_verdict(found, facts),
        thresholds={name: float(value) for name, value in wanted.model_dump().items()},
    )


def _findings(facts: Facts, settings: DiagnoseSettings) -> Iterator[Finding]:
    for check in CHECKS:
        made = check.look(facts, settings)
        if isinstance(made, Finding):
            yield made
        else:
            yield from made


def _verdict(found: list[Finding], facts: Facts) -> str:
    broken = next((finding for finding in found if finding.status is Status.BROKEN), None)
    more = " The run is still being written: this is how it stands now." if facts.in_progress else ""
    if broken is not None:
        return f"Stop here: step {broken.step}, {STEPS[broken.step]}: {broken.check}. {broken.action}{more}"
    unknown = [finding.check for finding in found if finding.status is Status.UNKNOWN]
    sound = sum(finding.status is Status.OK for finding in found)
    if not sound:
        return f"This run does not tell anything yet.{more}"
    left = f" It does not tell of {len(unknown)} more: {', '.join(unknown)}." if unknown else ""
    return f"Nothing is broken in {sound} checks.{left} It is worth going on.{more}"
