"""Learned values of steps and outcomes: labels without a person, features, a calibrated model, its figures.

::

    labels     what became of attempts that passed through the place that a step leads to
    features   what is known after a step, from the record alone
    fit        gradient boosting on folds of tasks, calibrated (scikit-learn)
    model      the fitted model as JSON, scored by plain Python, frozen by its hash
    head       the larger option: a head on a language model's hidden states (torch, transformers)
    quality    AUC, Brier, calibration error, selection, each with its interval over tasks
    plot       reliability plots
    opened     a value function by its name, for searches
"""

from patchgym.reward.value.features import FEATURES, StepsValue, step_features
from patchgym.reward.value.fit import FitSettings, Fitted, Scored, fit
from patchgym.reward.value.labels import LabelledPath, label_paths, outcome_of
from patchgym.reward.value.model import ValueModel
from patchgym.reward.value.quality import Measured, Ranking, ValueReport, quality

__all__ = [
    "FEATURES",
    "FitSettings",
    "Fitted",
    "LabelledPath",
    "Measured",
    "Ranking",
    "Scored",
    "StepsValue",
    "ValueModel",
    "ValueReport",
    "fit",
    "label_paths",
    "outcome_of",
    "quality",
    "step_features",
]
