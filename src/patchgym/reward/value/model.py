"""A value model as data: boosted trees and a calibration in JSON, scored by plain Python.

Nothing is pickled and nothing heavy is loaded to score: a model is a few thousand thresholds. Its identity is the
SHA-256 of its content; what uses one names that hash and refuses a file whose hash is another.
"""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from patchgym.content import disk_errors
from patchgym.errors import DataError
from patchgym.records import Limits, Record, Step, VersionedRecord
from patchgym.reward.value.features import FEATURES, step_features
from patchgym.reward.value.labels import LabelledPath

_MOST_BYTES = 64 * 2**20


class DecisionTree(Record):
    """One regression tree, a list for each property of its nodes. Node 0 is the root; children come after parents."""

    feature: tuple[int, ...]
    """The feature that a node asks for, by its place in the model's ``features``; -1 at a leaf."""
    threshold: tuple[float | None, ...]
    """Left where the feature is at most this; None: always, where it is known."""
    missing_left: tuple[bool, ...]
    """Left where the feature is not known."""
    left: tuple[int, ...]
    right: tuple[int, ...]
    value: tuple[float, ...]
    """What a leaf adds to the raw score."""

    @model_validator(mode="after")
    def _is_a_tree(self) -> Self:
        size = len(self.feature)
        lists = (self.threshold, self.missing_left, self.left, self.right, self.value)
        if not size or any(len(found) != size for found in lists):
            raise ValueError("the lists of a tree differ in length")
        for at, feature in enumerate(self.feature):
            if feature >= 0 and not (at < self.left[at] < size and at < self.right[at] < size):
                raise ValueError(f"node {at} does not lead on to two later nodes")
        return self

    def leaf(self, row: Sequence[float | None]) -> float:
        """The value of the leaf that a row of features comes to."""
        at = 0
        while (feature := self.feature[at]) >= 0:
            known, threshold = row[feature], self.threshold[at]
            goes_left = self.missing_left[at] if known is None else threshold is None or known <= threshold
            at = self.left[at] if goes_left else self.right[at]
        return self.value[at]


class Calibration(Record):
    """From a raw score to a probability: ``sigmoid`` of ``slope * raw + offset`` (Platt, 1999), or ``isotonic``:
    straight lines between the points ``x``, ``y``, level outside (Zadrozny and Elkan, 2002)."""

    kind: Literal["sigmoid", "isotonic"]
    slope: float = 1.0
    offset: float = 0.0
    x: tuple[float, ...] = ()
    y: tuple[float, ...] = ()

    @model_validator(mode="after")
    def _is_a_line(self) -> Self:
        if self.kind == "isotonic" and (not self.x or len(self.x) != len(self.y) or list(self.x) != sorted(self.x)):
            raise ValueError("an isotonic calibration needs points in order")
        return self

    def probability(self, raw: float) -> float:
        """The probability of a raw score."""
        if self.kind == "sigmoid":
            return logistic(self.slope * raw + self.offset)
        if raw <= self.x[0]:
            return self.y[0]
        if raw >= self.x[-1]:
            return self.y[-1]
        at = bisect_right(self.x, raw) - 1
        slope = (self.y[at + 1] - self.y[at]) / (self.x[at + 1] - self.x[at])
        return slope * (raw - self.x[at]) + self.y[at]


class Reference(Record):
    """What a model's scores were like where it was fitted, by trees that had not seen the task: the score
    after the last step of every attempt, and whether that attempt solved its task."""

    scores: tuple[float, ...]
    outcomes: tuple[float, ...]


class FittedOn(Record):
    """Where a model comes from."""

    runs: tuple[str, ...]
    """The ids of the runs."""
    tasks: tuple[str, ...]
    """The tasks whose attempts it was fitted on."""
    trajectories: int
    steps: int
    labels: dict[str, int]
    """Attempts by the source of their labels: ``tree``, ``group``, ``outcome``."""
    settings: dict[str, float | int | str | bool]
    """How it was fitted."""

    @classmethod
    def of(
        cls, paths: Sequence[LabelledPath], runs: Sequence[str], settings: dict[str, float | int | str | bool]
    ) -> Self:
        """Told of the attempts that it is fitted on."""
        return cls(
            runs=tuple(runs),
            tasks=tuple(sorted({path.task_id for path in paths})),
            trajectories=len(paths),
            steps=sum(len(path.steps) for path in paths),
            labels=dict(Counter(path.source for path in paths)),
            settings=settings,
        )


class ValueModel(VersionedRecord):
    """A calibrated gradient-boosted model of how likely an attempt is to solve its task, after each of its steps."""

    VERSION: ClassVar[int] = 1

    schema_version: int = 1
    kind: Literal["boosted"] = "boosted"
    features: tuple[str, ...]
    """The names of what a row holds."""
    baseline: float
    """The raw score (log-odds) without any tree."""
    trees: tuple[DecisionTree, ...]
    calibration: Calibration
    levels: int = Field(0, ge=0)
    """How many equal levels from 0 to 1 scores are cut to (0: not at all); what is rewarded by fewer is gamed less."""
    reference: Reference
    fitted_on: FittedOn

    @model_validator(mode="after")
    def _asks_for_what_there_is(self) -> Self:
        if any(feature >= len(self.features) for tree in self.trees for feature in tree.feature):
            raise ValueError("a tree asks for a feature that the model does not name")
        return self

    @property
    def hash(self) -> str:
        """SHA-256 (hex) of everything in it."""
        return self.content_hash()

    def raw(self, row: Sequence[float | None]) -> float:
        """The raw score of a row of features: the baseline and every tree's leaf, in order."""
        score = self.baseline
        for tree in self.trees:
            score += tree.leaf(row)
        return score

    def values(self, steps: Sequence[Step], limits: Limits | None = None) -> list[float]:
        """After each step, how likely the attempt is to solve its task, from 0 to 1."""
        return [self._value(row) for row in step_features(steps, limits)]

    def value(self, steps: Sequence[Step], limits: Limits) -> float:
        """The same after the last of the steps, of which there is at least one."""
        return self._value(step_features(steps, limits)[-1])

    def _value(self, row: Sequence[float | None]) -> float:
        return levelled(self.calibration.probability(self.raw(row)), self.levels)

    def save(self, path: Path) -> None:
        """Write it as one JSON line.

        Raises:
            StorageError: the disk refuses.
        """
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(self.to_line() + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: Path, expected: str = "") -> Self:
        """Read a saved model; ``expected`` is the hash that it must have (empty: any).

        Raises:
            DataError: there is no such file, it is no value model, or its hash is another.
        """
        if not path.is_file():
            raise DataError(f"There is no value model {path}", mend="Make one: patchgym value fit RUN --out MODEL")
        if path.stat().st_size > _MOST_BYTES:
            raise DataError(f"{path} is no value model", why=f"It is larger than {_MOST_BYTES >> 20} MiB.")
        model = cls.from_line(path.read_bytes(), where=str(path))
        if model.features != tuple(FEATURES):
            raise DataError(
                f"{path} was fitted on other features",
                why=f"This release has {len(FEATURES)} features, the model {len(model.features)}.",
                mend="Fit it again with this release.",
            )
        check_hash(path, model.hash, expected)
        return model


def check_hash(path: Path, found: str, expected: str) -> None:
    """Refuse a model that is not the one which was named.

    Raises:
        DataError: the hashes differ; both are told.
    """
    if expected and found != expected:
        raise DataError(
            f"{path} is not the value model that was named",
            why=f"Named: {expected}. Found: {found}.",
            mend="Put the named model back, or name the new one and start a new run.",
        )


def levelled(score: float, levels: int) -> float:
    """A score from 0 to 1, cut to the nearest of so many equally spaced levels (0: as it is)."""
    return math.floor(score * (levels - 1) + 0.5) / (levels - 1) if levels > 1 else score


def logistic(score: float) -> float:
    """1 / (1 + exp(-score)), without overflow."""
    if score >= 0:
        return 1.0 / (1.0 + math.exp(-score))
    return math.exp(score) / (1.0 + math.exp(score))
