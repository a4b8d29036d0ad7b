"""The thresholds of the checks, and whether an alarm pauses."""

from pydantic import Field

from patchgym.config import Settings


class DiagnoseSettings(Settings):
    """What is held to be broken. Each check says its threshold and where it comes from; ``docs/diagnosis.md`` has the
    measurements.

    *Recording.* ``lost_share`` of the attempts may be lost to infrastructure, ``timeout_share`` may run out of the
    machine's time, ``unreadable_share`` of the steps may hold no action, ``copies_share`` of the samples of a task may
    be copies of each other, and ``replay_share`` of the steps must reproduce.

    *Rewards.* Under ``few`` scored attempts and ``few_groups`` groups nothing is said of shares, nor under ``few``
    tasks where attempts at one task may come out alike by chance. ``flat_share`` of the groups may have no variance,
    ``dominant_share`` of the variance within groups may come of one term beside the outcome, and ``grading_share`` of
    the variance within tasks may be grading's own.

    *Trend.* ``sampler_gap`` is the mean difference in nats of trainer and sampler before the first step; ``clip_share``
    and ``moved_nats`` bound what one update may move (the share of clipped ids, the mean move of a sampled id's
    log-probability), ``loss_growth`` the last loss of imitation over its first. A reward that has not risen after
    ``trend_steps`` steps is flat. ``swing`` is the change from round to round that counts as an oscillation.

    *Held-out.* Under ``few_heldout`` held-out tasks a difference says nothing.

    *Drift and hacks.* ``hack_share`` of the attempts may be proved hacks, ``marked_share`` of those that are paid may
    have marks against them, ``hidden_gap`` of those that pass every visible test may fail a hidden one.
    ``entropy_left`` and ``diversity_left`` are the shares of the first round's that must be left, ``steps_grown`` is
    the most that attempts may become longer, and ``failure_shift`` the most that the share of one bad type of failure
    may rise.
    """

    lost_share: float = Field(0.05, ge=0, le=1)
    timeout_share: float = Field(0.05, ge=0, le=1)
    unreadable_share: float = Field(0.5, ge=0, le=1)
    copies_share: float = Field(0.5, ge=0, le=1)
    replay_share: float = Field(0.99, ge=0, le=1)
    few: int = Field(10, ge=1)
    few_groups: int = Field(5, ge=1)
    flat_share: float = Field(0.8, ge=0, le=1)
    dominant_share: float = Field(0.5, ge=0)
    grading_share: float = Field(0.05, ge=0, le=1)
    sampler_gap: float = Field(0.05, ge=0)
    clip_share: float = Field(0.5, ge=0, le=1)
    moved_nats: float = Field(1.0, ge=0)
    loss_growth: float = Field(1.5, ge=1)
    trend_steps: int = Field(100, ge=1)
    swing: float = Field(0.2, ge=0, le=1)
    few_heldout: int = Field(5, ge=1)
    hack_share: float = Field(0.02, ge=0, le=1)
    marked_share: float = Field(0.1, ge=0, le=1)
    hidden_gap: float = Field(0.2, ge=0, le=1)
    entropy_left: float = Field(0.25, ge=0, le=1)
    diversity_left: float = Field(0.5, ge=0, le=1)
    steps_grown: float = Field(1.5, ge=1)
    failure_shift: float = Field(0.3, ge=0, le=1)


class AlarmSettings(Settings):
    """``pause``: whether a run stops where one of the checks says that something is broken. Else it is only told."""

    pause: bool = True
