"""The value of a verdict, term by term."""

from patchgym.records.base import Record


class Term(Record):
    """One reward term."""

    raw: float
    """What was measured."""
    weight: float
    """What it counts for."""
    value: float
    """What it added to the reward."""
    why: str
    """The reason, in words."""


class Reward(Record):
    """What a trajectory is worth, and why."""

    value: float | None
    """None means *not scored* and is never 0."""
    gate: str
    """The first-layer outcome that applied."""
    terms: dict[str, Term]
    """Each term by its name."""
