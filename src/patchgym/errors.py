"""One error tree. Each error says what failed, why, and what to do about it.

::

    PatchgymError                 exit code 1 unless a subclass says otherwise
    ├── UsageError                2   the command line or a name in it is wrong
    ├── ConfigError               2   a recipe has an unknown key or a wrong value
    ├── DataError                 2   a task set, run directory or input file is damaged or of another version
    ├── PatchError                1   a patch does not parse or does not apply
    ├── ContextLengthError        1   a conversation no longer fits the model: ends an episode, is no fault
    ├── PrerequisiteError         3   something that this machine lacks, with the command that mends it
    │   ├── OfflineError          3   a download is needed and neither network nor cache has it
    │   └── StorageError          3   the disk is full or not writable
    ├── EnvironmentBuildError     1   an environment could not be locked or installed, or no suite runs in it
    ├── DivergenceError           1   a loss or a gradient is not finite: nothing was published
    ├── PausedError               1   an alarm is up: the run waits for a person, and keeps what it has
    └── InfrastructureError       1   a fault that the policy cannot cause: never a reward, never a failure of the agent
        ├── SandboxError              the sandbox could not be made or was lost
        │   └── WorkLostError         ... or a cluster's worker was, three times; or what was left is too large
        └── EndpointError             a model endpoint refused, stalled or answered garbage
            └── EndpointRetryable     ... in a way that passes: time-outs, 429, 5xx, a dropped connection

A command that fails, a test that fails, a patch that solves nothing: these are data, not errors.
"""

from enum import StrEnum
from typing import ClassVar


class PatchgymError(Exception):
    """Base of every error that patchgym raises on purpose.

    ``what`` failed, ``why`` it failed and the ``mend`` (what to do) are printed as three lines by the command line.
    """

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, why: str = "", mend: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.mend = mend

    def __str__(self) -> str:
        return "; ".join(part for part in (self.what, self.why, self.mend) if part)


class UsageError(PatchgymError):
    """The command line, or a name given on it, is wrong."""

    exit_code = 2


class ConfigError(PatchgymError):
    """A recipe or an override has an unknown key or a value of the wrong kind."""

    exit_code = 2


class DataError(PatchgymError):
    """A task set, a run directory or an input file is damaged, foreign or of an unknown version."""

    exit_code = 2


class PatchError(PatchgymError):
    """A patch does not parse, leaves its root, or does not apply to the tree at hand."""


class ContextLengthError(PatchgymError):
    """A conversation no longer fits the model's context. It ends an episode; it is the policy's own doing."""


class PrerequisiteError(PatchgymError):
    """This machine lacks something; ``mend`` holds the command that provides it."""

    exit_code = 3


class OfflineError(PrerequisiteError):
    """A download is needed, and neither the network nor the cache has it."""


class StorageError(PrerequisiteError):
    """The disk is full or not writable."""


class BuildFailure(StrEnum):
    """Why a code base has no environment in which its tests run; the name under which a funnel counts it.

    ``resolver``: no set of versions fits what is asked for. ``needs_build``: a requirement has no wheel, and building
    was not allowed. ``compiler``: building needs a compiler, or compiled code that is not there.
    ``missing_system_library``: a header or a shared library of the system is missing. ``build_backend``: building
    failed otherwise. ``needs_itself``: pytest or a requirement installs the package under test. ``hash_mismatch``: a
    file is not the one that the lock names. ``no_upload_times``: the index does not tell when files came, so that it
    cannot be asked as of a day. ``python_version``: the code is for another Python. ``missing_module``: a module is
    missing that no package could be found for. ``needs_network``: the tests want the network. ``no_tests``: pytest
    collects nothing. ``suite_fails``: too few tests pass. ``suite_hangs``: they do not come to an end. ``timeout``: the
    installer did not. ``other``: none of these.
    """

    RESOLVER = "resolver"
    NEEDS_BUILD = "needs_build"
    COMPILER = "compiler"
    MISSING_SYSTEM_LIBRARY = "missing_system_library"
    BUILD_BACKEND = "build_backend"
    NEEDS_ITSELF = "needs_itself"
    HASH_MISMATCH = "hash_mismatch"
    NO_UPLOAD_TIMES = "no_upload_times"
    PYTHON_VERSION = "python_version"
    MISSING_MODULE = "missing_module"
    NEEDS_NETWORK = "needs_network"
    NO_TESTS = "no_tests"
    SUITE_FAILS = "suite_fails"
    SUITE_HANGS = "suite_hangs"
    TIMEOUT = "timeout"
    OTHER = "other"


class EnvironmentBuildError(PatchgymError):
    """A locked environment could not be resolved or installed, or no suite runs in it; ``kind`` says which."""

    def __init__(self, what: str, *, why: str = "", mend: str = "", kind: BuildFailure = BuildFailure.OTHER) -> None:
        super().__init__(what, why=why, mend=mend)
        self.kind = kind


class DivergenceError(PatchgymError):
    """A loss or a gradient is not finite. No weights were published; the last good version stays."""


class PausedError(PatchgymError):
    """A check says that something is broken: the run stops where it is. What it has is kept, and it can go on."""


class InfrastructureError(PatchgymError):
    """A fault that the policy cannot cause. It excludes a trajectory from reward and baseline, and is counted."""


class SandboxError(InfrastructureError):
    """The sandbox could not be made, or was lost while it ran."""


class WorkLostError(SandboxError):
    """Of a piece of work on a cluster nothing can come back: three workers were lost one after the other while they did
    it, or what it left is too large to be sent."""


class EndpointError(InfrastructureError):
    """A model endpoint refused, stalled or answered something that is no answer."""


class EndpointRetryable(EndpointError):
    """An endpoint fault that passes by itself: a time-out, 429, 5xx or a dropped connection."""
