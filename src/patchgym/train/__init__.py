"""Policy updates from trajectories: rows as sampled, advantages, losses, one training loop, published checkpoints.

::

    trajectories -> rows.imitation_rows       -> objectives.Imitation      \\
                                                                             trainer.train -> checkpoint directory
    trajectories -> groups.policy_gradient_rows -> objectives.PolicyGradient /

``sft`` and ``grpo`` are the whole way; ``algorithms`` says what ``grpo`` can be. ``integrity`` holds rows against what
was sampled. ``state`` keeps an update on disk while it is made, and ``replay`` makes a step of it again. Importing this
package does not import torch; calling them does.
"""

from patchgym.train.reasons import Reason
from patchgym.train.report import (
    Mismatch,
    OnReport,
    OnStep,
    PolicyGradientSettings,
    SamplerGap,
    SftSettings,
    StepReport,
    TrainSettings,
    UpdateReport,
    ValueSettings,
)
from patchgym.train.rows import RowSet, TokenRow, demonstration_rows, imitation_rows, rows_from_trajectory
from patchgym.train.spread import flat_groups
from patchgym.train.update import grpo, sft

__all__ = [
    "Mismatch",
    "OnReport",
    "OnStep",
    "PolicyGradientSettings",
    "Reason",
    "RowSet",
    "SamplerGap",
    "SftSettings",
    "StepReport",
    "TokenRow",
    "TrainSettings",
    "UpdateReport",
    "ValueSettings",
    "demonstration_rows",
    "flat_groups",
    "grpo",
    "imitation_rows",
    "rows_from_trajectory",
    "sft",
]
