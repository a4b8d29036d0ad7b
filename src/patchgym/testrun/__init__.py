"""Running a repository's tests in a sandbox and reading their outcomes by exact id.

Nothing is read from what the tests print. Each outcome comes through a pipe that only the runner holds
(``runner.py``); a line that the runner does not write is kept as evidence of interference.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.records import Environment, Outcome
from patchgym.sandbox import WORKSPACE, Ending, ExecResult, Sandbox, SandboxSpec
from patchgym.testrun.coverage import Coverage

__all__ = ["Coverage", "TestRun", "run_tests", "sandbox_spec"]

_RUNNER = Path(__file__).with_name("runner.py")
_RUNNER_INSIDE = "/run/patchgym/runner.py"
_LOG_BYTES = 8000
_EVIDENCE_LINES = 20
_OUTCOMES = frozenset(str(outcome) for outcome in Outcome)


@dataclass(frozen=True)
class TestRun:
    """One run of tests.

    ``outcomes`` has every id that was asked for (``missing`` where nothing was reported), or every collected id where
    none was. ``complete`` says that pytest itself came to its end. ``failures`` holds the short traceback of each
    failed test and of each file that could not be collected. ``evidence`` lists what the report channel carried that
    the runner does not write. ``log`` is the tail of both
    streams of ``process``.
    """

    __test__ = False

    outcomes: dict[str, Outcome]
    complete: bool
    process: ExecResult
    log: str
    failures: dict[str, str] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()

    @property
    def ending(self) -> Ending:
        """How the test process ended."""
        return self.process.ending

    @property
    def seconds(self) -> float:
        """Wall seconds of the test process."""
        return self.process.seconds


def sandbox_spec(tree: str, environment: Environment, built: Path, *, base: str | None = None) -> SandboxSpec:
    """The specification of a sandbox in which ``run_tests`` works: ``built`` is the environment's directory."""
    roots = ":".join(f"{WORKSPACE}/{path}".rstrip("/") for path in environment.pythonpath)
    return SandboxSpec(
        tree=tree, base=base, environment=built, mounts={_RUNNER_INSIDE: _RUNNER}, variables={"PYTHONPATH": roots}
    )


async def run_tests(sandbox: Sandbox, environment: Environment, ids: Sequence[str], *, timeout_s: float) -> TestRun:
    """Run exactly the tests in ``ids`` (none: all that pytest collects) and wait at most ``timeout_s`` seconds.

    Raises:
        SandboxError: the sandbox was lost.
    """
    request = {"root": WORKSPACE, "paths": list(environment.pythonpath), "ids": list(ids)}
    result = await sandbox.exec(
        ["python", "-s", "-B", _RUNNER_INSIDE],
        variables={"PYTHONPATH": ""},
        timeout_s=timeout_s,
        stdin=json.dumps(request).encode(),
        report=True,
    )
    outcomes, failures, evidence, complete = _read_report(result.report, frozenset(ids))
    for test in ids:
        outcomes.setdefault(test, Outcome.MISSING)
    streams = (result.stdout[-_LOG_BYTES:], result.stderr[-_LOG_BYTES:])
    return TestRun(
        outcomes=outcomes,
        complete=complete and result.ending is Ending.EXITED,
        process=result,
        log="\n".join(stream.decode("utf-8", "backslashreplace") for stream in streams if stream),
        failures=failures,
        evidence=tuple(evidence[:_EVIDENCE_LINES]),
    )


def _read_report(report: bytes, asked: frozenset[str]) -> tuple[dict[str, Outcome], dict[str, str], list[str], bool]:
    """Outcomes, failure texts, evidence and whether the run came to its end."""
    outcomes: dict[str, Outcome] = {}
    failures: dict[str, str] = {}
    evidence: list[str] = []
    complete = False
    for raw in report.split(b"\n")[:-1]:  # what follows the last newline was cut off by the end of the process
        line = raw.decode("utf-8", "backslashreplace")
        match _record(line):
            case {"id": str(test), "outcome": str(outcome), "text": str(text)} if (
                not complete and test not in outcomes and outcome in _OUTCOMES and (not asked or test in asked)
            ):
                outcomes[test] = Outcome(outcome)
                if text:
                    failures[test] = text
            case {"collect": str(place), "text": str(text)} if not complete:
                failures[place] = text
            case {"done": int()} if not complete:
                complete = True
            case _:
                evidence.append(f"the report channel carried {line[:200]!r}")
    return outcomes, failures, evidence, complete


def _record(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
