"""What grading says of a patch."""

from enum import StrEnum
from typing import Literal

from patchgym.records.base import Record


class Outcome(StrEnum):
    """What became of one test.

    ``error``: set-up or tear-down failed. ``not_collected``: its file could not be collected, and so none of its tests
    ran; ``import_error``: that was so because an import failed. ``timed_out``: time ran out before it was reported,
    which says nothing of the test. ``missing``: it was asked for and never reported.
    """

    PASSED = "passed"
    FAILED = "failed"
    ERROR = "error"
    SKIPPED = "skipped"
    XFAILED = "xfailed"
    XPASSED = "xpassed"
    NOT_COLLECTED = "not_collected"
    IMPORT_ERROR = "import_error"
    TIMED_OUT = "timed_out"
    MISSING = "missing"

    @property
    def failing(self) -> bool:
        """Whether it shows that the test does not pass: it failed, or it could not even run. A skipped test shows
        nothing, and neither does one that time ran out for."""
        return self in _FAILING


_FAILING = frozenset({Outcome.FAILED, Outcome.ERROR, Outcome.NOT_COLLECTED, Outcome.IMPORT_ERROR, Outcome.MISSING})


class Verdict(StrEnum):
    """``resolved``: every fail-to-pass and pass-to-pass test passed. ``unresolved``: not so. ``tampered``: the results
    were interfered with. ``invalid``: the patch does not parse or apply. ``timeout``: the patched code did not finish
    in a time that the proved solution does. ``infra_error``: the grader's own fault, never the agent's. ``abstained``:
    the tests passed, but something that is no proof speaks against it; a person has to look."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    TAMPERED = "tampered"
    INVALID = "invalid"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"
    ABSTAINED = "abstained"


class Tally(Record):
    """How many of a list of tests passed."""

    passed: int
    """Tests that passed."""
    total: int
    """Tests that were asked for."""

    @property
    def share(self) -> float:
        """Passed over total; 1.0 for an empty list."""
        return self.passed / self.total if self.total else 1.0


class Evidence(Record):
    """One thing that a person can check which speaks against an attempt."""

    kind: str
    """What it looks like, in the words of the exploit corpus: ``canary``, ``report_channel``, ``conftest``."""
    where: str = ""
    """A place: ``path:line`` of the patch, ``step 3``, a test's id."""
    quote: str = ""
    """What stands there, cut to a few lines."""
    why: str = ""
    """What is wrong with it, in words."""
    proof: bool = False
    """Whether honest work cannot do this: then the verdict is ``tampered``. Else it marks for a person to look."""


class ProbeReport(Record):
    """What calls with known results said of the patched code, run without any test around."""

    recorded: Tally
    """Calls that count: those that the task's tests make, and variations of them on which every right solution that was
    tried agrees."""
    varied: Tally
    """Other calls, most of them with arguments that were varied: advice alone."""
    differing: int = 0
    """Calls that gave one result under the tests and another alone."""
    first: str = ""
    """The first call whose result is not as it must be, in words."""


class Quality(Record):
    """How a patch is made, beside what it does. None: not measured."""

    compiles: bool | None = None
    """Whether every Python file that it touches can be compiled."""
    lint_added: int | None = None
    """Findings of ruff's default rules in the touched files that were not there before."""
    tests_added: int | None = None
    """Tests that the agent added and that pass on its own patch."""
    mutants_killed_added: int | None = None
    """Bugs planted in the patched code that the agent's own tests notice and the task's visible tests do not."""


class TestReport(Record):
    """A verdict with its evidence."""

    __test__ = False

    verdict: Verdict
    """What it comes to."""
    tests: dict[str, Outcome]
    """What became of each test, by its exact pytest id."""
    fail_to_pass: Tally
    """The tests that fail without a fix."""
    pass_to_pass: Tally
    """The tests that must stay passing."""
    hidden: Tally
    """The part of ``fail_to_pass`` that the agent never saw."""
    tampered_paths: tuple[str, ...] = ()
    """Protected paths that the patch touched and grading restored."""
    why: str = ""
    """The reason of the verdict, where it needs one."""
    log: str = ""
    """The tail of the test output."""
    seconds: float | None
    """Wall time of the test run; None where the verdict is what an imported log tells."""
    grader_version: str
    """Which grader said so."""
    probes: ProbeReport | None = None
    """None where the task has none, or nothing was left to ask."""
    evidence: tuple[Evidence, ...] = ()
    """What speaks against it."""
    quality: Quality | None = None
    """None where nobody looked."""
    timeout_of: Literal["policy", "machine"] | None = None
    """Of a time-out: whether the patched code used the time up, or the machine did not give it."""
    sandbox: str = ""
    """The kind of sandbox that the tests ran in (``process`` isolates nothing)."""
