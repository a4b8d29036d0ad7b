"""What a task set is made of: the ``[tasks]`` section of a recipe."""

from typing import Annotated

from pydantic import Field, StringConstraints

from patchgym.config import Settings
from patchgym.records import Limits

ReleaseName = Annotated[str, StringConstraints(pattern=r"^[^=]+==[^=]+$")]
PairName = Annotated[str, StringConstraints(pattern=r"^[^=]+==[^=]+\.\.[^=]+$")]


class TaskSetRecipe(Settings):
    """Settings of ``patchgym tasks build``.

    ``train`` and ``heldout`` name pinned releases (``name==version``) in which bugs are planted; a package may be on
    both sides with different releases, and then ``heldout_functions`` is the share of its functions that only held-out
    tasks touch. ``pairs`` (``name==old..new``) are fixes that a release made; they are training tasks. ``operators``
    (none: all) are those of ``patchgym.tasks.bugs.operators``. ``tries_per_task`` bounds the candidates that are run
    for each task wanted; ``test_seconds`` bounds every run of the tests. ``concurrency`` 0 means one sandbox a core.
    """

    name: str = "default"
    seed: int = 0
    train: tuple[ReleaseName, ...] = ()
    heldout: tuple[ReleaseName, ...] = ()
    pairs: tuple[PairName, ...] = ()
    train_per_release: int = Field(default=4, ge=0)
    heldout_per_release: int = Field(default=3, ge=0)
    heldout_functions: float = Field(default=0.4, gt=0.0, lt=1.0)
    operators: tuple[str, ...] = ()
    max_function_lines: int = Field(default=40, ge=0)
    max_failing_tests: int = Field(default=40, ge=2)
    tries_per_task: int = Field(default=6, ge=1)
    test_seconds: float = Field(default=30.0, gt=0.0)
    proof_runs: int = Field(default=2, ge=1)
    concurrency: int = Field(default=0, ge=0)
    limits: Limits = Limits(turns=8, tokens=1200, seconds=300.0, command_seconds=30.0, output_bytes=1600)
