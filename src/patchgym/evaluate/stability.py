"""Whether an evaluation comes out the same when it is made again: each round of samples is one more evaluation."""

from math import sqrt
from statistics import fmean, stdev

from patchgym.evaluate.attempts import Attempt
from patchgym.records import Record


class Stability(Record):
    """The spread over repeats.

    ``pass_at_1`` is that of each repeat (the samples of one index), on the ``tasks`` tasks of which every repeat is
    valid, ``spread`` the largest less the smallest of them, and ``deviation`` their standard deviation.
    ``expected_deviation`` is that of independent draws: the root of the mean variance within tasks over their number.
    ``flipping`` are tasks that some repeat solved and some did not, ``alike`` the share of tasks on which all agree.
    """

    repeats: int
    tasks: int
    pass_at_1: tuple[float, ...]
    spread: float
    deviation: float
    expected_deviation: float
    flipping: tuple[str, ...]
    alike: float


def stability_of(attempts: list[Attempt]) -> Stability | None:
    """The stability of valid attempts; None where no task has a valid attempt in each of two repeats or more."""
    valid = [one for one in attempts if one.solved is not None]
    repeats = sorted({one.sample for one in valid})
    table: dict[str, dict[int, bool]] = {}
    for one in valid:
        assert one.solved is not None
        table.setdefault(one.task, {})[one.sample] = one.solved
    whole = {task: row for task, row in table.items() if len(row) == len(repeats)}
    if len(repeats) < 2 or not whole:
        return None
    each = tuple(fmean(row[repeat] for row in whole.values()) for repeat in repeats)
    flipping = tuple(sorted(task for task, row in whole.items() if len(set(row.values())) > 1))
    shares = [fmean(row.values()) for row in whole.values()]
    within = fmean(share * (1 - share) for share in shares) * len(repeats) / (len(repeats) - 1)
    return Stability(
        repeats=len(repeats),
        tasks=len(whole),
        pass_at_1=each,
        spread=max(each) - min(each),
        deviation=stdev(each),
        expected_deviation=sqrt(within / len(whole)),
        flipping=flipping,
        alike=1 - len(flipping) / len(whole),
    )
