"""The tiny task under the real grader, for the tests of grading."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.grading import ALL_LAYERS, Grader, Layer
from patchgym.records import Task, TestReport
from tests.workshop import here, patch_of, sandboxes


def graded(
    tmp_path: Path,
    task: Task,
    changes: Mapping[str, str | None] | str,
    *,
    objects: ObjectStore,
    layers: frozenset[Layer] = ALL_LAYERS,
) -> TestReport:
    """The report on a patch, or on whole files that are replaced."""
    patch = changes if isinstance(changes, str) else patch_of(objects, task, changes)
    with sandboxes(objects, tmp_path) as factory:
        return asyncio.run(Grader(factory, objects, here, layers=layers).grade(task, patch))


def proofs(report: TestReport) -> set[str]:
    """The kinds of proof that a report holds."""
    return {one.kind for one in report.evidence if one.proof}
