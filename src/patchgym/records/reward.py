"""The value of a verdict, term by term."""

from typing import Literal

from patchgym.records.base import Record
from patchgym.records.report import Evidence


class Term(Record):
    """One reward term."""

    raw: float
    """What was measured."""
    weight: float
    """What it counts for."""
    value: float
    """What it adds to the reward; of the second layer, where that layer is applied."""
    why: str
    """The reason, in words."""
    layer: Literal["outcome", "told", "efficiency", "quality"] | None = None
    """``outcome``: the first layer. ``told``: a part of it, which adds nothing beside it. ``efficiency`` and
    ``quality``: the second layer. None where whoever made the reward did not say."""


class Reward(Record):
    """What a trajectory is worth, and why."""

    value: float | None
    """None means *not scored* and is never 0. Where the second layer waits, the value of the first."""
    gate: str
    """The first-layer outcome that applied."""
    terms: dict[str, Term]
    """Each term by its name; what was not measured has none."""
    evidence: tuple[Evidence, ...] = ()
    """What detectors of reward hacking found, beside what grading did: proof makes the gate ``tampered``."""
    second_layer: Literal["waits", "applied", "withheld"] | None = None
    """Whether the second layer is in the value. It ``waits`` for the group, which decides; None where there is none."""
