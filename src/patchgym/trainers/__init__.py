"""Our episodes inside other people's trainers.

::

    trainer's sampler -> policy.TokenPolicy -> gym.Gym (sandbox, episode, grading, run directory) -> rows.EpisodeRow
                                                                             |-> trl.RolloutFunc       (TRL)
                                                                             |-> verl.PatchgymAgentLoop (verl)
                                                                             |-> skyrl.PatchgymGenerator (SkyRL)

Each of the three is thin: it says how its trainer samples, and puts rows into the trainer's own words. ``prompts``
makes the data sets that they start from, ``handover`` the Parquet files for everybody else. A module of a trainer's
name imports that trainer; importing this package imports none of them.
"""

from patchgym.trainers.gym import Draw, Gym, GymSettings
from patchgym.trainers.policy import Generated, Generator, TokenLimits, TokenPolicy
from patchgym.trainers.rows import EpisodeRow, episode_row

__all__ = [
    "Draw",
    "EpisodeRow",
    "Generated",
    "Generator",
    "Gym",
    "GymSettings",
    "TokenLimits",
    "TokenPolicy",
    "episode_row",
]
