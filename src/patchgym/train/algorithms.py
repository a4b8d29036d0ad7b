"""The algorithms, each as a set of choices: no algorithm has code of its own."""

from dataclasses import dataclass
from typing import Literal

Algorithm = Literal["grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "ppo"]
Loss = Literal["clip", "cispo", "reinforce"]
RatioLevel = Literal["token", "sequence"]
Normalise = Literal["rows", "constant", "tokens"]
Baseline = Literal["group", "leave_one_out", "siblings", "value"]


@dataclass(frozen=True)
class Choices:
    """What an algorithm is made of.

    - ``loss``: ``clip`` (``losses.clipped_policy_loss``), ``cispo`` (``losses.clipped_weight_loss``) or ``reinforce``
      (``losses.reinforce_loss``);
    - ``ratio``: of a ``token``, or one of its whole row (``losses.sequence_ratio``);
    - ``normalise``: see ``losses.normaliser``;
    - ``baseline``: what a reward is compared with: the mean of its ``group``, that of its group's others
      (``leave_one_out``), ``siblings`` in a search tree step by step, or a learned ``value`` of each token;
    - ``divide_by_std``: whether group advantages are divided by the group's deviation;
    - ``clip_low``, ``clip_high``: how far below and above 1 a ratio counts (of ``reinforce``: without meaning).
    """

    loss: Loss
    ratio: RatioLevel
    normalise: Normalise
    baseline: Baseline
    divide_by_std: bool
    clip_low: float
    clip_high: float


ALGORITHMS: dict[Algorithm, Choices] = {
    # Shao et al. 2024, arXiv:2402.03300
    "grpo": Choices("clip", "token", "rows", "group", True, 0.2, 0.2),
    # Liu et al. 2025, arXiv:2503.20783; the higher upper clip is DAPO's
    "dr_grpo": Choices("clip", "token", "constant", "group", False, 0.2, 0.28),
    # Yu et al. 2025, arXiv:2503.14476
    "dapo": Choices("clip", "token", "tokens", "group", True, 0.2, 0.28),
    # Zheng et al. 2025, arXiv:2507.18071, section 5.1
    "gspo": Choices("clip", "sequence", "rows", "group", True, 3e-4, 4e-4),
    # MiniMax 2025, arXiv:2506.13585; the weight's cap of 5 is that of Khatri et al. 2025, arXiv:2510.13786
    "cispo": Choices("cispo", "token", "tokens", "group", True, 1.0, 4.0),
    # Ahmadian et al. 2024, arXiv:2402.14740
    "rloo": Choices("reinforce", "token", "constant", "leave_one_out", False, 0.2, 0.2),
    # Schulman et al. 2017, arXiv:1707.06347
    "ppo": Choices("clip", "token", "tokens", "value", False, 0.2, 0.2),
}
