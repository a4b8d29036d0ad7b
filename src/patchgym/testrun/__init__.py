"""Running a repository's tests in a sandbox and reading their outcomes by exact id.

Nothing is read from what the tests print. Each outcome comes through a pipe that only the runner holds
(``runner.py``); a line that the runner does not write is kept as evidence of interference.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from patchgym.records import Environment, Outcome, Service
from patchgym.sandbox import WORKSPACE, Ending, ExecResult, Sandbox, SandboxSpec, ServiceSpec
from patchgym.testrun.coverage import Coverage, coverage_tool
from patchgym.testrun.guarding import Canary, Ended, Guarding, Note, Planted
from patchgym.testrun.ids import function_of
from patchgym.testrun.report import Report

__all__ = [
    "TRACEBACKS",
    "Beside",
    "Built",
    "Canary",
    "Coverage",
    "Ended",
    "Guarding",
    "Note",
    "Planted",
    "TestRun",
    "built_environment",
    "coverage_tool",
    "function_of",
    "run_tests",
    "sandbox_spec",
]

_SCRIPTS = ("runner.py", "guard.py", "planted.py", "watch.py")
_INSIDE = "/run/patchgym"
_RUNNER_INSIDE = f"{_INSIDE}/runner.py"
_GRACE_S = 10.0
_COVERAGE_INSIDE = "/run/patchgym/coverage"
_LOG_BYTES = 8000
_EVIDENCE_LINES = 20
TRACEBACKS = 8
"""Of how many failures a run has the traceback where nobody asks for more: few are read."""


@dataclass(frozen=True)
class TestRun:
    """One run of tests.

    ``outcomes`` has every id that was asked for, or every collected id where none was. ``complete`` says that pytest
    itself came to its end. ``failures`` holds the short traceback of each failed test (of those after the first
    ``tracebacks`` what was raised) and of each file that could not be collected; ``uncollected`` what kind of outcome
    each such file was. ``coverage`` is there where it was asked for and the run came to its end.
    ``evidence`` lists what the report channel carried that the runner does not write. ``log`` is the tail of both
    streams of ``process``. ``beside`` is what a plug-in of ours said, where one was asked for.

    A guarded run says besides what became of the ``canaries``, by their names; the ``notes`` of its watch; and how the
    tests' process ``ended`` (None: the guard was not heard to the end).
    """

    __test__ = False

    outcomes: dict[str, Outcome]
    complete: bool
    process: ExecResult
    log: str
    failures: dict[str, str] = field(default_factory=dict)
    uncollected: dict[str, Outcome] = field(default_factory=dict)
    coverage: Coverage | None = None
    evidence: tuple[str, ...] = ()
    beside: tuple[object, ...] = ()
    canaries: Mapping[str, Planted] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    ended: Ended | None = None

    @property
    def timed_out(self) -> bool:
        """Whether time ran out."""
        return self.process.timed_out or (self.ended is not None and self.ended.timed_out)

    @property
    def ending(self) -> Ending:
        """How the test process ended."""
        return self.process.ending

    @property
    def seconds(self) -> float:
        """Wall seconds of the test process."""
        return self.process.seconds


@dataclass(frozen=True)
class Beside:
    """A pytest plug-in of ours for one run: what ``plugin(argument, send)`` of ``module`` makes, in the package that is
    mounted at ``inside``."""

    inside: str
    module: str
    argument: Mapping[str, JsonValue]

    def request(self, sandbox: Sandbox) -> dict[str, JsonValue]:
        """What the runner is told of it."""
        folder, _, package = sandbox.locate(self.inside).rpartition("/")
        argument: dict[str, JsonValue] = {"root": sandbox.locate(WORKSPACE), **self.argument}
        return {"path": folder, "module": f"{package}.{self.module}", "argument": argument}


@dataclass(frozen=True)
class Built:
    """An environment that was built: its ``folder`` (None where a container takes its place), and its services."""

    folder: Path | None
    services: tuple[ServiceSpec, ...] = ()


async def built_environment(environment: Environment, build: Callable[[Environment], Path]) -> Built:
    """An environment and those of its services, built by ``build`` in threads.

    Raises:
        EnvironmentBuildError, OfflineError, PrerequisiteError, StorageError: as ``build``.
    """
    folder = None if environment.contained else await asyncio.to_thread(build, environment)
    return Built(folder, tuple([await _built_service(service, build) for service in environment.services]))


async def _built_service(service: Service, build: Callable[[Environment], Path]) -> ServiceSpec:
    locked = Environment(python=service.python, lock=service.lock)
    return ServiceSpec(
        name=service.name,
        command=service.command,
        health=service.health,
        setup=service.setup,
        files=tuple(service.files.items()),
        environment=await asyncio.to_thread(build, locked) if service.python and service.image is None else None,
        image=service.image,
        package=service.package,
        ready_s=service.ready_seconds,
    )


def sandbox_spec(
    tree: str, environment: Environment, built: Built, *, base: str | None = None, coverage: Path | None = None
) -> SandboxSpec:
    """The specification of a sandbox in which ``run_tests`` works: ``built`` is what ``built_environment`` gave,
    ``coverage`` the directory of ``coverage_tool`` where lines are to be watched."""
    scripts = {f"{_INSIDE}/{name}": Path(__file__).with_name(name) for name in _SCRIPTS}
    mounts = scripts | ({_COVERAGE_INSIDE: coverage} if coverage is not None else {})
    return SandboxSpec(
        tree=tree,
        base=base,
        environment=built.folder,
        image=environment.image,
        dockerfile=environment.dockerfile,
        mounts=mounts,
        variables={name: value for service in environment.services for name, value in service.variables.items()},
        pythonpath=environment.pythonpath,
        services=built.services,
    )


async def run_tests(
    sandbox: Sandbox,
    environment: Environment,
    ids: Sequence[str],
    *,
    timeout_s: float,
    cover: Sequence[str] = (),
    stressed: bool = False,
    until_failure: bool = False,
    tracebacks: int = TRACEBACKS,
    guarding: Guarding | None = None,
    files: Sequence[str] = (),
    beside: Beside | None = None,
) -> TestRun:
    """Run exactly the tests in ``ids`` (none: all that pytest collects, in ``files`` where these are given) and wait at
    most ``timeout_s`` seconds. ``cover`` names workspace files whose lines are watched. A run that is
    ``stressed`` begins with the last test, and its clock runs fast: what leans on other tests or on how busy the
    machine is does not pass. With ``until_failure`` the run ends at the first test that fails, and those after it are
    missing. Each of the ``tracebacks`` costs pytest some 30 ms, often more than the tests do. With ``guarding`` another
    process holds the report channel and the time (no lines are watched then). ``beside`` is a plug-in that runs along;
    its folder must be among the sandbox's mounts.

    Raises:
        SandboxError: the sandbox was lost.
    """
    cover = () if guarding is not None else cover
    request: dict[str, JsonValue] = {
        "root": sandbox.locate(WORKSPACE),
        "coverage": sandbox.locate(_COVERAGE_INSIDE),
        "paths": list(environment.pythonpath),
        "ids": list(ids),
        "cover": list(cover),
        "stressed": stressed,
        "until_failure": until_failure,
        "tracebacks": tracebacks,
        "files": list(files),
        **(guarding.request(timeout_s) if guarding is not None else {}),
        **({"beside": beside.request(sandbox)} if beside is not None else {}),
    }
    result = await sandbox.exec(
        ["python", "-s", "-B", sandbox.locate(_RUNNER_INSIDE)],
        variables={"PYTHONPATH": ""},
        timeout_s=timeout_s if guarding is None else timeout_s + _GRACE_S,
        stdin=json.dumps(request).encode(),
        report=True,
    )
    report = Report(frozenset(ids), bool(cover), guarding, beside is not None)
    report.read(result.report)
    return _found(ids, result, report, covered=bool(cover))


def _found(ids: Sequence[str], result: ExecResult, report: Report, *, covered: bool) -> TestRun:
    """What a run showed, by its process and by what its runner reported."""
    timed_out = result.timed_out or (report.ended is not None and report.ended.timed_out)
    for test in ids:
        silent = report.uncollected.get(test.split("::", 1)[0], Outcome.MISSING)
        report.outcomes.setdefault(test, Outcome.TIMED_OUT if timed_out else silent)
    streams = (result.stdout[-_LOG_BYTES:], result.stderr[-_LOG_BYTES:])
    return TestRun(
        outcomes=report.outcomes,
        complete=report.complete and result.ending is Ending.EXITED and not timed_out,
        process=result,
        log="\n".join(stream.decode("utf-8", "backslashreplace") for stream in streams if stream),
        failures=report.failures,
        uncollected=report.uncollected,
        coverage=Coverage(report.covered, report.elsewhere) if covered and report.complete else None,
        evidence=tuple(report.evidence[:_EVIDENCE_LINES]),
        beside=tuple(report.beside),
        canaries=report.canaries,
        notes=tuple(report.notes),
        ended=report.ended,
    )
