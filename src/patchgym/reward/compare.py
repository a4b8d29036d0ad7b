"""What another recipe makes of the same attempts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from statistics import fmean

from patchgym.records import Record, Reward
from patchgym.reward.logs import added

_LARGEST = 10


class Move(Record):
    """An attempt whose value changes, from ``before`` to ``after``, and why."""

    trajectory: str
    before: float | None
    after: float | None
    why: str


class Comparison(Record):
    """Rewards before and after; all of them settled in their groups."""

    trajectories: int
    """All that were looked at."""
    changed: int
    """Those whose value or gate is another one."""
    gates_before: dict[str, int]
    """How many attempts each gate applied to; ``none`` counts those without a reward."""
    gates_after: dict[str, int]
    mean_before: float | None
    """The mean value of the scored; None without any."""
    mean_after: float | None
    largest: tuple[Move, ...]
    """The largest moves, the largest first; attempts that become scored, or stop being it, before all others."""


def compared(before: Mapping[str, Reward | None], after: Mapping[str, Reward | None]) -> Comparison:
    """Compare the settled rewards of the same trajectories, by their ids."""
    moves = [
        Move(trajectory=name, before=_value(old), after=_value(after[name]), why=_why(old, after[name]))
        for name, old in before.items()
        if _value(old) != _value(after[name]) or _gate(old) != _gate(after[name])
    ]
    return Comparison(
        trajectories=len(before),
        changed=len(moves),
        gates_before=dict(sorted(Counter(_gate(reward) for reward in before.values()).items())),
        gates_after=dict(sorted(Counter(_gate(reward) for reward in after.values()).items())),
        mean_before=_mean(before.values()),
        mean_after=_mean(after.values()),
        largest=tuple(sorted(moves, key=_size, reverse=True)[:_LARGEST]),
    )


def _size(move: Move) -> float:
    if move.before is None or move.after is None:
        return 0.0 if move.before is move.after else float("inf")
    return abs(move.after - move.before)


def _why(old: Reward | None, new: Reward | None) -> str:
    if old is None or new is None or _gate(old) != _gate(new):
        return f"{_gate(old)} becomes {_gate(new)}"
    if old.second_layer != new.second_layer:
        return f"the second layer is {new.second_layer or 'none'} and was {old.second_layer or 'none'}"
    names = dict.fromkeys([*new.terms, *old.terms])
    moved = {name: added(new, name) - added(old, name) for name in names}
    name = max(moved, key=lambda each: abs(moved[each]), default="")
    if not name or not moved[name]:
        return ""
    said = new.terms.get(name) or old.terms[name]
    return f"{name} {moved[name]:+.4f}: {said.why}"


def _value(reward: Reward | None) -> float | None:
    return reward.value if reward is not None else None


def _gate(reward: Reward | None) -> str:
    return reward.gate if reward is not None else "none"


def _mean(rewards: Iterable[Reward | None]) -> float | None:
    values = [reward.value for reward in rewards if reward is not None and reward.value is not None]
    return fmean(values) if values else None
