"""Judgement on runs: should this run go on?

::

    facts.py      a run directory, read once; seen.py reads one trajectory
    checks/       pure functions of the facts, a file for each step of the order of looking
    checklist.py  all of them in order, to the first broken link
    alarms.py     the same while a run is made
    reward.py     the checks of a reward distribution; variance.py, regrade.py: whose the variance is
    drift.py      a value model's scores against the time when it was fitted
    spotcheck.py  blind labels by a person
"""

from patchgym.diagnose.alarms import Alarms
from patchgym.diagnose.checklist import STEPS, diagnose
from patchgym.diagnose.facts import Facts, Reader, read_facts
from patchgym.diagnose.reward import RewardJudgement, judge_rewards
from patchgym.diagnose.settings import AlarmSettings, DiagnoseSettings
from patchgym.diagnose.variance import Grading, VarianceSplit, split_variance

__all__ = [
    "STEPS",
    "AlarmSettings",
    "Alarms",
    "DiagnoseSettings",
    "Facts",
    "Grading",
    "Reader",
    "RewardJudgement",
    "VarianceSplit",
    "diagnose",
    "judge_rewards",
    "read_facts",
    "split_variance",
]
