"""Has a value model's world moved? Its scores of a new round against the scores of the time when it was fitted.

Three things are looked at, an attempt each counting once (its score after the last step, for steps of one attempt are
alike):

- the **population stability index** over ten bins that hold equal shares of the reference:
  ``sum((p - q) * ln(p / q))``. Under 0.1 is commonly called stable and over 0.25 a shift, in credit scoring, where
  samples are large. In small ones chance alone gives more: without any drift it is about ``(1/n + 1/m)`` times a
  chi-square variable of (bins - 1) degrees of freedom (Yurdakul, 2018), so a threshold is never under that law's
  99% point;
- the two-sample **Kolmogorov-Smirnov** distance, against its critical value at 1%,
  ``sqrt(-ln(alpha / 2) / 2) * sqrt((n + m) / (n m))`` (Smirnov, 1948);
- **agreement with fresh labels**: how often a score over 0.5 and the verdict agree, against how often they did then.
  It has fallen where it is more than 0.1 lower and a one-sided test of two shares says so at 1%.

The alarm is up where both distances say so, or where agreement has fallen. The first alone tells that attempts have
changed, not that scores are wrong: a policy that learns moves them. Attempts at other tasks move them too: compare
rounds on the same tasks.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import StrEnum
from statistics import NormalDist

from patchgym.errors import DataError
from patchgym.records import Record

STABLE, SHIFTED = 0.1, 0.25
"""The common thresholds of the population stability index."""

ALPHA = 0.01
"""The chance of each test to speak without cause."""

LEAST = 20
"""Attempts on either side below which nothing is concluded."""

_BINS = 10
_FALLEN = 0.1
_HALF = 0.5


class Level(StrEnum):
    """``ok``: as it should be. ``note``: a limit worth knowing. ``broken``: the alarm."""

    OK = "ok"
    NOTE = "note"
    BROKEN = "broken"


class Agreement(Record):
    """How often a score over 0.5 and the verdict agree."""

    reference: float
    """When the model was fitted."""
    fresh: float
    """On the fresh attempts that were graded."""
    labels: int
    """How many those are."""
    p_value: float
    """The chance of such a fall, or a deeper one, where nothing has changed."""
    fallen: bool
    """Whether it is an alarm."""


class Drift(Record):
    """One round's scores against the reference."""

    name: str
    """The round."""
    level: Level
    """``broken`` is the alarm; ``note`` where one of the distances alone is over its threshold, or too few attempts
    were scored."""
    reference: int
    """Scores of the reference."""
    fresh: int
    """Scores of the round."""
    psi: float | None
    """None where there are too few scores."""
    psi_threshold: float | None
    """The greater of 0.25 and what chance reaches once in a hundred times."""
    ks: float | None
    ks_threshold: float | None
    """The critical value at 1%."""
    agreement: Agreement | None
    """None where too few attempts were graded."""
    why: str
    action: str = ""


def drift(
    name: str,
    reference: Sequence[float],
    fresh: Sequence[float],
    reference_outcomes: Sequence[float] = (),
    fresh_labels: Sequence[tuple[float, float]] = (),
) -> Drift:
    """Compare two samples of scores from 0 to 1, an attempt each. ``reference_outcomes`` say what became of the
    reference's attempts, in its order; ``fresh_labels`` are (score, outcome) pairs of fresh graded attempts.

    Raises:
        DataError: a score is not a number, or the outcomes are not those of the reference.
    """
    if any(not math.isfinite(score) for score in (*reference, *fresh)):
        raise DataError("A score is not a finite number", mend="Score the run again.")
    agreement = _agreement(reference, reference_outcomes, fresh_labels)
    if len(reference) < LEAST or len(fresh) < LEAST:
        why = f"{len(reference)} and {len(fresh)} scores are too few to compare: {LEAST} on each side are the least"
        return Drift(
            name=name,
            level=Level.BROKEN if agreement is not None and agreement.fallen else Level.NOTE,
            reference=len(reference),
            fresh=len(fresh),
            psi=None,
            psi_threshold=None,
            ks=None,
            ks_threshold=None,
            agreement=agreement,
            why=why,
        )
    moved, by_chance = psi(reference, fresh), psi_noise(reference, fresh)
    distance, critical = ks(reference, fresh), ks_critical(len(reference), len(fresh))
    threshold = max(SHIFTED, by_chance)
    over = [distance > critical, moved > threshold]
    level, why, action = _judged(moved, max(STABLE, by_chance), over, agreement)
    return Drift(
        name=name,
        level=level,
        reference=len(reference),
        fresh=len(fresh),
        psi=moved,
        psi_threshold=threshold,
        ks=distance,
        ks_threshold=critical,
        agreement=agreement,
        why=why,
        action=action,
    )


def psi(reference: Sequence[float], fresh: Sequence[float]) -> float:
    """The population stability index over bins that hold equal shares of the reference. Every bin counts half a score
    more, so that none is empty."""
    edges = _edges(reference)
    p, q = _shares(reference, edges), _shares(fresh, edges)
    return sum((new - old) * math.log(new / old) for old, new in zip(p, q, strict=True))


def psi_noise(reference: Sequence[float], fresh: Sequence[float], alpha: float = ALPHA) -> float:
    """What the index exceeds with the chance of ``alpha`` where both samples are of one distribution."""
    freedom = len(_edges(reference))
    return (1 / len(reference) + 1 / len(fresh)) * chi_square_point(freedom, 1 - alpha) if freedom else 0.0


def ks(reference: Sequence[float], fresh: Sequence[float]) -> float:
    """The greatest distance of the two empirical distribution functions."""
    a, b = sorted(reference), sorted(fresh)
    return max(abs(bisect_right(a, x) / len(a) - bisect_right(b, x) / len(b)) for x in {*a, *b})


def ks_critical(n: int, m: int, alpha: float = ALPHA) -> float:
    """What that distance exceeds with the chance of at most ``alpha`` where both samples are of one distribution."""
    return math.sqrt(-math.log(alpha / 2) / 2) * math.sqrt((n + m) / (n * m))


def chi_square_point(freedom: int, share: float) -> float:
    """The point below which a chi-square variable lies with the probability ``share`` (Wilson and Hilferty, 1931;
    within 1% of the true one from 3 degrees of freedom on)."""
    part = 2 / (9 * freedom)
    return freedom * (1 - part + NormalDist().inv_cdf(share) * math.sqrt(part)) ** 3


def _edges(reference: Sequence[float]) -> list[float]:
    """Inner bounds of the bins: the reference's quantiles, each once; a bound belongs to the bin below it."""
    ordered = sorted(reference)
    bounds = {ordered[min(len(ordered) - 1, len(ordered) * at // _BINS)] for at in range(1, _BINS)}
    return sorted(bound for bound in bounds if bound < ordered[-1])


def _shares(scores: Sequence[float], edges: Sequence[float]) -> list[float]:
    counts = [0.5] * (len(edges) + 1)
    for score in scores:
        counts[bisect_left(edges, score)] += 1
    return [count / sum(counts) for count in counts]


def _agreement(
    reference: Sequence[float], outcomes: Sequence[float], fresh: Sequence[tuple[float, float]]
) -> Agreement | None:
    if outcomes and len(outcomes) != len(reference):
        raise DataError(f"{len(outcomes)} outcomes cannot be those of {len(reference)} scores")
    if len(outcomes) < LEAST or len(fresh) < LEAST:
        return None
    n, m = len(outcomes), len(fresh)
    then = sum((score > _HALF) == (outcome > _HALF) for score, outcome in zip(reference, outcomes, strict=True))
    now = sum((score > _HALF) == (outcome > _HALF) for score, outcome in fresh)
    pooled = (then + now) / (n + m)
    error = math.sqrt(pooled * (1 - pooled) * (1 / n + 1 / m))
    fall = then / n - now / m
    p_value = 1 - NormalDist().cdf(fall / error) if error else 1.0
    return Agreement(
        reference=then / n, fresh=now / m, labels=m, p_value=p_value, fallen=fall > _FALLEN and p_value < ALPHA
    )


def _judged(
    moved: float, noticeable: float, over: Sequence[bool], agreement: Agreement | None
) -> tuple[Level, str, str]:
    if agreement is not None and agreement.fallen:
        return (
            Level.BROKEN,
            f"scores agree with {agreement.fresh:.0%} of the fresh verdicts, {agreement.reference:.0%} when fitted",
            "Do not reward by this model any longer: fit a new one on fresh attempts, and look at what scores high and "
            "fails (patchgym spotcheck).",
        )
    kept = agreement is not None
    if all(over):
        agreed = (
            ", though they agree with fresh verdicts as before" if kept else "; no fresh labels tell whether rightly"
        )
        return (
            Level.BROKEN,
            f"the scores are distributed otherwise{agreed}",
            "Measure the model on this round (patchgym value report) and fit it again where its figures have fallen.",
        )
    if any(over) or moved > noticeable:
        return Level.NOTE, "the scores have moved a little", "Watch the next round."
    return Level.OK, "no difference beyond chance", ""
