"""The layers of grading, each of which stops ways to be paid without a solution that the others let through."""

from enum import StrEnum


class Layer(StrEnum):
    """``tests``: the task's own test files, pristine, whatever the patch did to them. ``harness``: configuration,
    conftests, compiled files and test data as in the base, and nothing of the kind added. ``runner``: the tests run
    from outside the workspace by exact id, plug-ins off, environment scrubbed, outcomes over a channel that another
    process holds. ``canaries``: tests among the others whose outcome is known. ``watch``: what decides is compared with
    what it was, and a look at the machinery is noted. ``probes``: calls with known results, without any test around.
    ``differential``: the same calls under test and alone.

    ``canaries`` and ``watch`` are the runner's own: without ``runner`` they do nothing.
    """

    TESTS = "tests"
    HARNESS = "harness"
    RUNNER = "runner"
    CANARIES = "canaries"
    WATCH = "watch"
    PROBES = "probes"
    DIFFERENTIAL = "differential"


ALL_LAYERS = frozenset(Layer)
