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
    ├── EnvironmentBuildError     1   an environment could not be locked or installed
    ├── DivergenceError           1   a loss or a gradient is not finite: nothing was published
    └── InfrastructureError       1   a fault that the policy cannot cause: never a reward, never a failure of the agent
        ├── SandboxError              the sandbox could not be made or was lost
        └── EndpointError             a model endpoint refused, stalled or answered garbage
            └── EndpointRetryable     ... in a way that passes: time-outs, 429, 5xx, a dropped connection

A command that fails, a test that fails, a patch that solves nothing: these are data, not errors.
"""

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


class EnvironmentBuildError(PatchgymError):
    """A locked environment could not be resolved or installed."""


class DivergenceError(PatchgymError):
    """A loss or a gradient is not finite. No weights were published; the last good version stays."""


class InfrastructureError(PatchgymError):
    """A fault that the policy cannot cause. It excludes a trajectory from reward and baseline, and is counted."""


class SandboxError(InfrastructureError):
    """The sandbox could not be made, or was lost while it ran."""


class EndpointError(InfrastructureError):
    """A model endpoint refused, stalled or answered something that is no answer."""


class EndpointRetryable(EndpointError):
    """An endpoint fault that passes by itself: a time-out, 429, 5xx or a dropped connection."""
