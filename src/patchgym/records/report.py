"""What grading says of a patch."""

from enum import StrEnum

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
    in a time that the proved solution does. ``infra_error``: the grader's own fault, never the agent's."""

    RESOLVED = "resolved"
    UNRESOLVED = "unresolved"
    TAMPERED = "tampered"
    INVALID = "invalid"
    TIMEOUT = "timeout"
    INFRA_ERROR = "infra_error"


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
    sandbox: str = ""
    """The kind of sandbox that the tests ran in (``process`` isolates nothing)."""
