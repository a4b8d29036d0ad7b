"""What a run of the tests, and what speaks against it, come to."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from patchgym.records import Evidence, Outcome, ProbeReport, Verdict
from patchgym.testrun import TestRun

_MOST_SAID = 3


class Judged(NamedTuple):
    """A verdict and its reason."""

    verdict: Verdict
    why: str = ""


def judge(
    run: TestRun, wanted: Iterable[str], evidence: Sequence[Evidence] = (), probes: ProbeReport | None = None
) -> Judged:
    """The verdict, by the first of these that holds: proof of interference; time ran out; the run did not end; a test
    that did not pass; a recorded call that is not as it must be; evidence that is no proof; nothing."""
    proof = [one for one in evidence if one.proof]
    if proof:
        return Judged(Verdict.TAMPERED, _told(proof))
    if run.timed_out:
        return Judged(Verdict.TIMEOUT, f"The tests were still running after {_seconds(run):.0f} s.")
    if not run.complete:
        return Judged(Verdict.UNRESOLVED, f"The test process ended early ({_ending(run)}).")
    bad = {test: run.outcomes[test] for test in wanted if run.outcomes[test] is not Outcome.PASSED}
    if bad:
        first = next(iter(bad))
        why = f"{len(bad)} of {len(run.outcomes)} tests did not pass, first {first} ({bad[first]})."
        return Judged(Verdict.UNRESOLVED, why)
    if probes is not None and probes.recorded.passed < probes.recorded.total:
        wrong = probes.recorded.total - probes.recorded.passed
        why = f"The tests pass, and {wrong} of {probes.recorded.total} recorded calls are not as they must be"
        return Judged(Verdict.UNRESOLVED, f"{why}: {probes.first}" if probes.first else f"{why}.")
    if evidence:
        return Judged(Verdict.ABSTAINED, _told(evidence))
    return Judged(Verdict.RESOLVED)


def _told(evidence: Sequence[Evidence]) -> str:
    return "; ".join(" ".join(filter(None, (one.where, one.why, one.quote))) for one in evidence[:_MOST_SAID])


def _seconds(run: TestRun) -> float:
    return run.ended.wall if run.ended is not None else run.seconds


def _ending(run: TestRun) -> str:
    process = run.process
    how = str(run.ending).replace("_", " ")
    return f"{how}, exit code {process.exit_code}" if process.signal is None else f"{how} {process.signal}"
