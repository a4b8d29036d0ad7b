"""The first layer as a curve, and how far the second may reach below it.

An attempt that breaks nothing and fixes a share s of the fail-to-pass tests is worth ``min(cap, 2 * half * s)``, a
solution 1, everything else 0. The second layer may take off less than half of the distance to the next lower level, so
that it orders attempts of equal outcome and never others.
"""

_PART_OF_THE_GAP = 0.49


def partial_value(share: float, half: float, cap: float) -> float:
    """What an attempt that does not solve the task is worth, by the share of the fail-to-pass tests that it fixes:
    ``half`` at half of them, and never more than ``cap``."""
    return min(cap, 2 * half * share)


def reach(first: float, total: int, half: float, cap: float, most: float) -> float:
    """The most that the second layer takes off an attempt whose first layer is ``first``, of a task with ``total``
    fail-to-pass tests: ``most``, or just under half of the distance to the next lower level where that is less.

    A first layer of 0 is left alone: where everybody failed, nobody gets an advantage from style.
    """
    if first <= 0:
        return 0.0
    levels = {0.0, *(partial_value(count / total, half, cap) for count in range(total))} if total else {0.0}
    return min(most, _PART_OF_THE_GAP * (first - max(level for level in levels if level < first)))
