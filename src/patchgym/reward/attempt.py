"""What a reward is made of: one frozen value, so that every term is a pure function of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from patchgym.content import patch_scope, patched_paths
from patchgym.errors import PatchError
from patchgym.records import Limits, Scope, Step, Task, TestReport


@dataclass(frozen=True)
class TaskFacts:
    """What terms may know of the task: the size of its gold patch, its key files, its limits, and the tests that must
    stay passing."""

    gold: Scope
    key_files: tuple[str, ...]
    limits: Limits
    pass_to_pass: tuple[str, ...] = ()

    @classmethod
    def of(cls, task: Task) -> "TaskFacts":
        """The facts of a task."""
        return cls(task.scope, task.key_files, task.limits, task.tests.pass_to_pass)


@dataclass(frozen=True)
class Attempt:
    """A graded attempt. ``patch`` is the size of its patch and ``touched`` the paths in it; None where it cannot be
    read, or is not known."""

    report: TestReport
    steps: tuple[Step, ...]
    patch: Scope | None
    touched: frozenset[str] | None
    task: TaskFacts

    @classmethod
    def of(cls, task: Task, report: TestReport, steps: Sequence[Step], patch: str | None) -> "Attempt":
        """The attempt that came to ``patch``, a unified diff; what does not parse is as if it were not known."""
        scope, touched = None, None
        if patch is not None:
            try:
                scope, touched = patch_scope(patch), frozenset(patched_paths(patch))
            except PatchError:
                scope = touched = None
        return cls(report, tuple(steps), scope, touched, TaskFacts.of(task))
