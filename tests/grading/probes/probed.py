"""A small task with probes: its tests, hidden ones included, hold little, so that a cheat can pass them all."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.grading import Grader
from patchgym.grading.probes import ProbeMaker, ProbeSet, store_probes
from patchgym.records import Task, TestReport
from tests.workshop import calc_task, here, patch_of, sandboxes

Changes = Mapping[str, str | None]


class Probed:
    """The calc task of ``tests.workshop`` with its probes, and grading of patches to it."""

    def __init__(self, folder: Path, change: Callable[[ObjectStore, Task], Task] = lambda objects, task: task) -> None:
        self.folder = folder
        self.objects = ObjectStore(folder / "objects")
        bare = calc_task(self.objects, timeout_s=20.0).model_copy(update={"functions": ("calc.py:clamp",)})
        self.bare = change(self.objects, bare)
        with sandboxes(self.objects, folder) as factory:
            self.probes: ProbeSet = asyncio.run(ProbeMaker(factory, self.objects, here).make(self.bare))
        self.task = store_probes(self.objects, self.bare, self.probes)

    def grade(self, changes: Changes, task: Task | None = None) -> TestReport:
        """The report on a patch that replaces whole files."""
        graded = task or self.task
        with sandboxes(self.objects, self.folder) as factory:
            patch = patch_of(self.objects, graded, changes)
            return asyncio.run(Grader(factory, self.objects, here).grade(graded, patch))
