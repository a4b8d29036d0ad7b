"""What a task set is made of: the ``[tasks]`` section of a recipe."""

from typing import Self

from pydantic import Field, model_validator

from patchgym.config import Settings
from patchgym.records import Limits


class TaskSetRecipe(Settings):
    """Settings of ``patchgym tasks build``.

    ``train`` and ``heldout`` name pinned releases (``name==version``) in which bugs are planted; a package may be on
    both sides with different releases, and then ``heldout_functions`` is the share of its functions that only held-out
    tasks touch. ``pairs`` (``name==old..new``) are fixes that a release made; they are training tasks. ``operators``
    (none: all) are those of ``patchgym.tasks.operators``. ``tries_per_task`` bounds the candidates that are run for
    each task wanted; ``test_seconds`` bounds every run of the tests. ``concurrency`` 0 means one sandbox a core.
    """

    name: str = "default"
    seed: int = 0
    train: tuple[str, ...] = ()
    heldout: tuple[str, ...] = ()
    pairs: tuple[str, ...] = ()
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

    @model_validator(mode="after")
    def _sides_are_apart(self) -> Self:
        both = sorted(set(self.train) & set(self.heldout))
        if both:
            raise ValueError(f"{both[0]} is both in train and in heldout")
        if self.pairs and any(".." not in pair or "==" not in pair for pair in self.pairs):
            raise ValueError("a pair is written name==old..new")
        fixed = {
            f"{name}=={version}"
            for name, _, span in (pair.partition("==") for pair in self.pairs)
            for version in span.split("..")[:1]
        }
        if fixed & set(self.heldout):
            raise ValueError(f"{min(fixed & set(self.heldout))} is in heldout and the base of a training pair")
        return self
