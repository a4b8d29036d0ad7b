"""Fit a value model: scikit-learn's gradient boosting, calibrated on scores of tasks that it had not seen.

Folds are of tasks: a task never stands on both sides, for attempts at one task are alike. Every fold's model scores
the tasks that it was not fitted on; those scores are what the calibration, the reference for drift and the figures rest
on. The model that is kept is fitted on all tasks.
"""

import importlib.util
import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pydantic import Field

from patchgym.config import Settings
from patchgym.errors import DataError, PrerequisiteError
from patchgym.records import Limits
from patchgym.reward.value.features import FEATURES, Features, step_features
from patchgym.reward.value.labels import LabelledPath
from patchgym.reward.value.model import Calibration, DecisionTree, FittedOn, Reference, ValueModel, levelled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray
    from sklearn.ensemble import HistGradientBoostingClassifier

_ENOUGH_FOR_ISOTONIC = 1000
_LEAST_TASKS = 2
_FEW_ROWS = 100_000


class FitSettings(Settings):
    """``iterations`` of boosting with ``learning_rate``, trees of at most ``leaves`` leaves with at least ``least``
    rows each and ``l2`` regularisation. ``folds`` of tasks. ``calibration``: isotonic from 1,000 scored steps on,
    sigmoid below that, or always the one that is named. ``labels``: by every source, or by each attempt's own outcome
    alone. ``levels`` that scores are cut to (0: none)."""

    iterations: int = Field(40, ge=1, le=2000)
    learning_rate: float = Field(0.08, gt=0, le=1)
    leaves: int = Field(6, ge=2, le=128)
    least: int = Field(20, ge=1)
    l2: float = Field(1.0, ge=0)
    folds: int = Field(5, ge=2)
    calibration: Literal["auto", "isotonic", "sigmoid"] = "auto"
    labels: Literal["all", "outcome"] = "all"
    levels: int = Field(0, ge=0)
    seed: int = 0


class Scored(NamedTuple):
    """An attempt with the score after each of its steps."""

    id: str
    task_id: str
    group_id: str
    scores: tuple[float, ...]
    outcome: float


class Fitted(NamedTuple):
    """A fitted model, and the scores that models gave to tasks which they had not seen (calibrated by the same)."""

    model: ValueModel
    held_out: list[Scored]


class _Rows(NamedTuple):
    """Rows to learn from. A label between 0 and 1 is two rows that share a weight."""

    features: list[Features]
    classes: list[int]
    weights: list[float]


def fit(
    paths: Sequence[LabelledPath],
    settings: FitSettings,
    limits: "Mapping[str, Limits]",
    runs: Sequence[str] = (),
) -> Fitted:
    """Fit, calibrate and measure. ``limits`` are the tasks', by their id, where they are known.

    Raises:
        PrerequisiteError: scikit-learn is not installed.
        DataError: attempts at fewer than two tasks, or all of one outcome.
    """
    need_sklearn()
    check_paths(paths)
    rows = [step_features(path.steps, limits.get(path.task_id)) for path in paths]
    folds = task_folds([path.task_id for path in paths], settings.folds, settings.seed)
    raw: dict[int, list[float]] = {}
    for fold in sorted(set(folds)):
        inside = [at for at, found in enumerate(folds) if found != fold]
        data = _stacked([(rows[at], paths[at]) for at in inside])
        if len(set(data.classes)) < 2:
            raise one_sided("in all tasks but those of one fold")
        part = _bare(_boosted(data, settings), paths, runs, settings)
        for at, found in enumerate(folds):
            if found == fold:
                raw[at] = [part.raw(row) for row in rows[at]]
    calibration, reference, held_out = calibrated_apart(paths, raw, folds, settings)
    whole = _bare(_boosted(_stacked(list(zip(rows, paths, strict=True))), settings), paths, runs, settings)
    model = whole.model_copy(
        update={
            "calibration": calibration,
            "reference": reference,
        }
    )
    return Fitted(model, held_out)


def task_folds(tasks: Sequence[str], folds: int, seed: int) -> list[int]:
    """The fold of each attempt, so that all of a task are in one; sizes as even as shuffled tasks allow."""
    names = sorted(set(tasks))
    random.Random(seed).shuffle(names)
    sizes = {name: tasks.count(name) for name in names}
    loads = [0] * min(folds, len(names))
    place = {}
    for name in sorted(names, key=lambda name: -sizes[name]):
        place[name] = loads.index(min(loads))
        loads[place[name]] += sizes[name]
    return [place[task] for task in tasks]


def check_paths(paths: Sequence[LabelledPath]) -> None:
    """Raises:
    DataError: attempts at fewer than two tasks, or all of one outcome.
    """
    tasks = {path.task_id for path in paths}
    if len(tasks) < _LEAST_TASKS:
        raise DataError(
            f"A value model cannot be fitted on {len(paths)} graded attempts at {len(tasks)} tasks",
            why="It is measured on tasks that it has not seen, so that there must be two at least.",
            mend="Collect more: patchgym rollout TASKSET --policy P --samples 8 --out RUN",
        )
    if len({path.outcome for path in paths}) < 2:
        raise one_sided("in all tasks")


def one_sided(where: str) -> DataError:
    """The error that attempts have one outcome alone, and where."""
    return DataError(
        "A value model cannot be fitted on attempts that all came to the same",
        why=f"Every graded attempt {where} has one outcome.",
        mend="Take harder or easier tasks, or another policy, so that some attempts solve their task and some do not.",
    )


def _stacked(found: Sequence[tuple[list[Features], LabelledPath]]) -> _Rows:
    stacked = _Rows([], [], [])
    for features, path in found:
        for row, label in zip(features, path.labels, strict=True):
            if label is None:
                continue
            for kind, weight in ((1, label), (0, 1.0 - label)):
                if weight > 0:
                    stacked.features.append(row)
                    stacked.classes.append(kind)
                    stacked.weights.append(weight)
    return stacked


def _boosted(rows: _Rows, settings: FitSettings) -> "HistGradientBoostingClassifier":
    import numpy
    from sklearn.ensemble import HistGradientBoostingClassifier
    from threadpoolctl import threadpool_limits

    classifier = HistGradientBoostingClassifier(
        max_iter=settings.iterations,
        learning_rate=settings.learning_rate,
        max_leaf_nodes=settings.leaves,
        min_samples_leaf=settings.least,
        l2_regularization=settings.l2,
        early_stopping=False,
        random_state=settings.seed,
    )
    known = matrix(rows.features)
    known[:, numpy.isnan(known).all(axis=0)] = 0.0  # what was never recorded tells nothing: no tree asks for a constant
    # Threads gain nothing on few rows, and wait for each other on a machine that is busy.
    with threadpool_limits(limits=1 if len(rows.classes) < _FEW_ROWS else None, user_api="openmp"):
        return classifier.fit(known, rows.classes, sample_weight=numpy.asarray(rows.weights))


def matrix(rows: Sequence[Features]) -> "NDArray[Any]":
    """Rows as a float64 array; what is not known is NaN."""
    import numpy

    return numpy.array([[numpy.nan if value is None else value for value in row] for row in rows], dtype=numpy.float64)


def _bare(
    classifier: "HistGradientBoostingClassifier",
    paths: Sequence[LabelledPath],
    runs: Sequence[str],
    settings: FitSettings,
) -> ValueModel:
    """A fitted classifier as data, not calibrated."""
    return ValueModel(
        features=tuple(FEATURES),
        baseline=float(classifier._baseline_prediction.ravel()[0]),
        trees=tuple(_tree(stage[0].nodes) for stage in classifier._predictors),
        calibration=Calibration(kind="sigmoid"),
        levels=settings.levels,
        reference=Reference(scores=(), outcomes=()),
        fitted_on=FittedOn.of(paths, runs, settings.model_dump(mode="json")),
    )


def _tree(nodes: "NDArray[Any]") -> DecisionTree:
    """The nodes of one of scikit-learn's trees, as its predictor keeps them."""
    leaves = [bool(node["is_leaf"]) for node in nodes]
    thresholds = [float(node["num_threshold"]) for node in nodes]
    return DecisionTree(
        feature=tuple(-1 if leaf else int(node["feature_idx"]) for leaf, node in zip(leaves, nodes, strict=True)),
        threshold=tuple(
            None if leaf or threshold == float("inf") else threshold
            for leaf, threshold in zip(leaves, thresholds, strict=True)
        ),
        missing_left=tuple(bool(node["missing_go_to_left"]) for node in nodes),
        left=tuple(int(node["left"]) for node in nodes),
        right=tuple(int(node["right"]) for node in nodes),
        value=tuple(float(node["value"]) for node in nodes),
    )


def calibrated(scored: Sequence[tuple[float, float]], kind: Literal["auto", "isotonic", "sigmoid"]) -> Calibration:
    """The calibration of (raw score, outcome) pairs, of both outcomes.

    Raises:
        PrerequisiteError: scikit-learn is not installed.
    """
    need_sklearn()
    import numpy

    raw = numpy.array([score for score, _ in scored])
    outcomes = numpy.array([outcome for _, outcome in scored])
    if kind == "isotonic" or (kind == "auto" and len(scored) >= _ENOUGH_FOR_ISOTONIC):
        from sklearn.isotonic import IsotonicRegression

        line = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip").fit(raw, outcomes)
        return Calibration(
            kind="isotonic",
            x=tuple(float(value) for value in line.X_thresholds_),
            y=tuple(float(value) for value in line.y_thresholds_),
        )
    from sklearn.linear_model import LogisticRegression

    fitted = LogisticRegression(C=1e3).fit(raw[:, None], outcomes.astype(int))
    return Calibration(kind="sigmoid", slope=float(fitted.coef_[0, 0]), offset=float(fitted.intercept_[0]))


def calibrated_apart(
    paths: Sequence[LabelledPath], raw: "Mapping[int, Sequence[float]]", folds: Sequence[int], settings: FitSettings
) -> tuple[Calibration, Reference, list[Scored]]:
    """The calibration of all raw scores (by the place of their attempt in ``paths``); the reference for drift, by that
    calibration; and every attempt's calibrated scores for the figures: a fold's by a calibration of the others, or they
    would be measured on what they were fitted to.

    Raises:
        DataError: all folds but one are of one outcome.
    """

    def of(places: Sequence[int]) -> Calibration:
        if len({paths[at].outcome for at in places}) < 2:
            raise one_sided("in all tasks but those of one fold")
        return calibrated([(score, paths[at].outcome) for at in places for score in raw[at]], settings.calibration)

    apart = {fold: of([at for at, found in enumerate(folds) if found != fold]) for fold in set(folds)}
    held_out = []
    for at, path in enumerate(paths):
        scores = (levelled(apart[folds[at]].probability(score), settings.levels) for score in raw[at])
        held_out.append(Scored(path.id, path.task_id, path.group_id, tuple(scores), path.outcome))
    whole = of(range(len(paths)))
    ends = (levelled(whole.probability(raw[at][-1]), settings.levels) for at in range(len(paths)))
    return whole, Reference(scores=tuple(ends), outcomes=tuple(path.outcome for path in paths)), held_out


def need_sklearn() -> None:
    """Raises:
    PrerequisiteError: scikit-learn is not installed.
    """
    if importlib.util.find_spec("sklearn") is None:
        raise PrerequisiteError(
            "A value model cannot be fitted here", why="scikit-learn is missing.", mend="pip install 'patchgym[value]'"
        )
