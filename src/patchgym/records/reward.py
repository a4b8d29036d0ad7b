"""The value of a verdict, term by term."""

from patchgym.records.base import Record


class Term(Record):
    """One reward term: what was measured, what it counts for, what it added, and why."""

    raw: float
    weight: float
    value: float
    why: str


class Reward(Record):
    """``value`` None means *not scored* and is never 0. ``gate`` names the first-layer outcome that applied."""

    value: float | None
    gate: str
    terms: dict[str, Term]
