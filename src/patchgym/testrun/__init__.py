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
from patchgym.testrun.ids import function_of

__all__ = [
    "Beside",
    "Built",
    "Coverage",
    "TestRun",
    "built_environment",
    "coverage_tool",
    "function_of",
    "run_tests",
    "sandbox_spec",
]

_RUNNER = Path(__file__).with_name("runner.py")
_RUNNER_INSIDE = "/run/patchgym/runner.py"
_COVERAGE_INSIDE = "/run/patchgym/coverage"
_LOG_BYTES = 8000
_EVIDENCE_LINES = 20
_OUTCOMES = frozenset(str(outcome) for outcome in Outcome)


@dataclass(frozen=True)
class TestRun:
    """One run of tests.

    ``outcomes`` has every id that was asked for, or every collected id where none was. ``complete`` says that pytest
    itself came to its end. ``failures`` holds the short traceback of each failed test and of each file that could not
    be collected; ``uncollected`` what kind of outcome each such file was. ``coverage`` is there where it was asked for
    and the run came to its end.
    ``evidence`` lists what the report channel carried that the runner does not write. ``log`` is the tail of both
    streams of ``process``. ``beside`` is what a plug-in of ours said, where one was asked for.
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
    mounts = {_RUNNER_INSIDE: _RUNNER} | ({_COVERAGE_INSIDE: coverage} if coverage is not None else {})
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
    backwards: bool = False,
    beside: Beside | None = None,
) -> TestRun:
    """Run exactly the tests in ``ids`` (none: all that pytest collects) and wait at most ``timeout_s`` seconds.
    ``cover`` names workspace files whose lines are watched. ``backwards`` begins with the last test.
    ``beside`` is a plug-in that runs along; its folder must be among the sandbox's mounts.

    Raises:
        SandboxError: the sandbox was lost.
    """
    request: dict[str, JsonValue] = {
        "root": sandbox.locate(WORKSPACE),
        "coverage": sandbox.locate(_COVERAGE_INSIDE),
        "paths": list(environment.pythonpath),
        "ids": list(ids),
        "cover": list(cover),
        "backwards": backwards,
    }
    if beside is not None:
        where = sandbox.locate(beside.inside)
        folder, _, package = where.rpartition("/")
        request["beside"] = {
            "path": folder,
            "module": f"{package}.{beside.module}",
            "argument": {"root": request["root"], **beside.argument},
        }
    result = await sandbox.exec(
        ["python", "-s", "-B", sandbox.locate(_RUNNER_INSIDE)],
        variables={"PYTHONPATH": ""},
        timeout_s=timeout_s,
        stdin=json.dumps(request).encode(),
        report=True,
    )
    report = _Report(frozenset(ids), bool(cover), beside is not None)
    report.read(result.report)
    for test in ids:
        silent = report.uncollected.get(test.split("::", 1)[0], Outcome.MISSING)
        report.outcomes.setdefault(test, Outcome.TIMED_OUT if result.timed_out else silent)
    streams = (result.stdout[-_LOG_BYTES:], result.stderr[-_LOG_BYTES:])
    return TestRun(
        outcomes=report.outcomes,
        complete=report.complete and result.ending is Ending.EXITED,
        process=result,
        log="\n".join(stream.decode("utf-8", "backslashreplace") for stream in streams if stream),
        failures=report.failures,
        uncollected=report.uncollected,
        coverage=Coverage(report.covered) if cover and report.complete else None,
        evidence=tuple(report.evidence[:_EVIDENCE_LINES]),
        beside=tuple(report.beside),
    )


class _Report:
    """What the runner's channel carried, line by line."""

    def __init__(self, asked: frozenset[str], watching: bool, beside: bool = False) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.failures: dict[str, str] = {}
        self.uncollected: dict[str, Outcome] = {}
        self.covered: dict[str, dict[int, frozenset[str]]] = {}
        self.evidence: list[str] = []
        self.beside: list[object] = []
        self.complete = False
        self._asked, self._watching, self._beside = asked, watching, beside
        self._order: list[str] = []

    def read(self, report: bytes) -> None:
        """Take in all lines; what the runner does not write, or writes after its end, is evidence of interference."""
        for raw in report.split(b"\n")[:-1]:  # what follows the last newline was cut off by the end of the process
            line = raw.decode("utf-8", "backslashreplace")
            if self.complete or not self._take(_record(line)):
                self.evidence.append(f"the report channel carried {line[:200]!r}")

    def _take(self, record: object) -> bool:
        match record:
            case {"id": str(test), "outcome": str(outcome), "text": str(text)} if (
                test not in self.outcomes and outcome in _OUTCOMES and (not self._asked or test in self._asked)
            ):
                self.outcomes[test] = Outcome(outcome)
                self._order.append(test)
                if text:
                    self.failures[test] = text
            case {"collect": str(place), "outcome": str(outcome), "text": str(text)} if outcome in _OUTCOMES:
                self.failures[place] = text
                self.uncollected[place] = Outcome(outcome)
            case {"covered": str(path), "lines": dict(lines)} if self._watching:
                return self._take_lines(path, lines)
            case {"beside": said} if self._beside:
                self.beside.append(said)
            case {"done": int()}:
                self.complete = True
            case _:
                return False
        return True

    def _take_lines(self, path: str, lines: dict[str, object]) -> bool:
        found: dict[int, frozenset[str]] = {}
        for line, tests in lines.items():
            if not line.isdecimal() or not isinstance(tests, list):
                return False
            if not all(isinstance(test, int) and 0 <= test < len(self._order) for test in tests):
                return False
            found[int(line)] = frozenset(self._order[test] for test in tests)
        self.covered[path] = found
        return True


def _record(line: str) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return None
