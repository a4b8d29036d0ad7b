"""The value of a verdict: pure functions of records.

::

    Attempt    what is known of one graded attempt
    terms      what is measured of it, one function a term
    score      the outcome's value, and what each term of the second layer would add
    settle     final values, once a group is whole: the second layer applied or withheld
    log_of     what each term did to the rewards of a run
    to_screen  which attempts a person should look at
    compared   what another recipe makes of the same attempts
"""

from patchgym.reward.attempt import Attempt, TaskFacts
from patchgym.reward.compare import Comparison, Move, compared
from patchgym.reward.compose import rescored, score, score_patch
from patchgym.reward.logs import RewardLog, TermLog, log_of
from patchgym.reward.outcome import outcome_value
from patchgym.reward.screen import to_screen
from patchgym.reward.settings import RewardSettings, TermWeights
from patchgym.reward.settle import first_layer, settle, settle_group, settled_rewards

__all__ = [
    "Attempt",
    "Comparison",
    "Move",
    "RewardLog",
    "RewardSettings",
    "TaskFacts",
    "TermLog",
    "TermWeights",
    "compared",
    "first_layer",
    "log_of",
    "outcome_value",
    "rescored",
    "score",
    "score_patch",
    "settle",
    "settle_group",
    "settled_rewards",
    "to_screen",
]
