"""Whether a difference could be chance: the exact randomisation test over tasks.

If two policies are alike, what one did on a task and what the other did could as well be exchanged: the sign of each
task's difference is a coin. The p-value is the share of all such exchanges that come to a total as far from 0 as the
one that was seen (Fisher 1935, "The Design of Experiments"; for one sample a task it is McNemar's exact test).
"""

from collections.abc import Sequence
from fractions import Fraction
from math import lcm

import numpy

_MOST_PLACES = 1 << 21
_MOST_SAMPLES = 4096
_DRAWS = 100_000
_CELLS = 1 << 22


def flip_p_value(differences: Sequence[float], *, seed: int = 0) -> float | None:
    """The two-sided p-value of the differences of tasks; None where there is none. 1.0 where none differs.

    Every exchange counts: the distribution of the total is made exactly, task by task. Where the differences have no
    small common denominator (samples of many different numbers), it is of 100,000 exchanges drawn by ``seed``, the one
    that was seen among them.
    """
    if not differences:
        return None
    parts = [Fraction(one).limit_denominator(_MOST_SAMPLES) for one in differences]
    whole = lcm(*(part.denominator for part in parts))
    steps = [abs(int(part * whole)) for part in parts if part]
    seen = abs(int(sum(parts) * whole))
    if not steps:
        return 1.0
    # What is the same multiple everywhere is one unit.
    unit = int(numpy.gcd.reduce(numpy.array(steps, dtype=object)))
    steps, seen = [step // unit for step in steps], seen // unit
    if sum(steps) * 2 + 1 <= _MOST_PLACES:
        return _exact(steps, seen)
    return _drawn(numpy.abs(numpy.asarray(differences)), abs(float(sum(differences))), seed)


def _exact(steps: Sequence[int], seen: int) -> float:
    """The share of all choices of signs whose total is at least ``seen`` away from 0."""
    middle = sum(steps)
    chance = numpy.zeros(2 * middle + 1)
    chance[middle] = 1.0
    for step in steps:
        moved = numpy.zeros_like(chance)
        moved[step:] += chance[: len(chance) - step]
        moved[: len(chance) - step] += chance[step:]
        chance = moved / 2
    far = numpy.abs(numpy.arange(len(chance)) - middle) >= seen
    return min(1.0, float(chance[far].sum()))


def _drawn(sizes: "numpy.ndarray[tuple[int], numpy.dtype[numpy.float64]]", seen: float, seed: int) -> float:
    random = numpy.random.default_rng(seed)
    at_once = max(1, _CELLS // len(sizes))
    far = 0
    for start in range(0, _DRAWS, at_once):
        signs = random.integers(0, 2, (min(at_once, _DRAWS - start), len(sizes))) * 2 - 1
        far += int((numpy.abs(signs @ sizes) >= seen - 1e-9).sum())
    return (far + 1) / (_DRAWS + 1)
