"""Splitting tasks into training and held-out ones so that what belongs together stays together.

Components (duplicates and versions of one function, or whole repositories) are the atoms. Which of them are held out is
decided by their age (``time``: the newest) or by a draw (``function``, ``repository``).
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, get_args

from patchgym.errors import DataError, UsageError
from patchgym.tasks.overlap.fingerprints import Fingerprint
from patchgym.tasks.overlap.groups import Groups
from patchgym.tasks.overlap.pairs import find_overlap

By = Literal["function", "repository", "time"]
_OLDEST = datetime.min.replace(tzinfo=UTC)


class Split(NamedTuple):
    """The positions that are held out, and every component (positions that stay together)."""

    heldout: frozenset[int]
    components: tuple[tuple[int, ...], ...]


def split_tasks(
    prints: Sequence[Fingerprint],
    share: float,
    *,
    by: By = "function",
    seed: int = 0,
    pinned: frozenset[int] = frozenset(),
) -> Split:
    """Hold out about ``share`` (0 to 1) of the tasks; no component is on both sides, whatever ``by`` says.

    ``function`` draws components; ``repository`` also keeps each repository together; ``time`` holds out the components
    with the newest task (tasks without a time count as the oldest), so that no training task is newer than a held-out
    component. ``pinned`` positions are held out in any case, with their components, and count. Apart from these the
    number that is held out differs from what was asked by less than the size of one component.

    Raises:
        DataError: by time, and no task has a time.
    """
    if by == "time" and not any(found.created_at for found in prints):
        raise DataError(
            "These tasks have no times", why="None says when it was made.", mend="Split by function or by repository."
        )
    components = _components(prints, by)
    wanted = round(share * len(prints))
    fixed = [part for part in components if not pinned.isdisjoint(part)]
    free = [part for part in components if pinned.isdisjoint(part)]
    left = max(0, wanted - sum(map(len, fixed)))
    if by == "time":
        free.sort(key=lambda part: (_newest(prints, part), _draw(prints, part, seed)), reverse=True)
        chosen = _nearest_head(free, left)
    else:
        free.sort(key=lambda part: _draw(prints, part, seed))
        chosen = _filled(free, left)
    heldout = frozenset(position for part in [*fixed, *chosen] for position in part)
    return Split(heldout, tuple(components))


def by_name(name: str) -> By:
    """A way of splitting by its name.

    Raises:
        UsageError: there is none of that name.
    """
    ways: tuple[By, ...] = get_args(By)
    for way in ways:
        if way == name:
            return way
    raise UsageError(f"There is no split by {name}", why=f"There are: {', '.join(ways)}.")


def _components(prints: Sequence[Fingerprint], by: By) -> list[tuple[int, ...]]:
    components = find_overlap(prints).components(len(prints))
    if by != "repository":
        return components
    groups = Groups(len(prints))
    first_of: dict[str, int] = {}
    for part in components:
        for position in part:
            groups.join(part[0], position)
            groups.join(first_of.setdefault(prints[position].repo, position), position)
    return groups.all()


def _nearest_head(parts: Sequence[tuple[int, ...]], wanted: int) -> Sequence[tuple[int, ...]]:
    """The first parts, as many as come nearest to ``wanted`` positions."""
    total, best, best_miss = 0, 0, wanted
    for count, part in enumerate(parts, start=1):
        total += len(part)
        if abs(total - wanted) < best_miss:
            best, best_miss = count, abs(total - wanted)
    return parts[:best]


def _filled(parts: Sequence[tuple[int, ...]], wanted: int) -> list[tuple[int, ...]]:
    """Parts in their order, each that still fits; then the smallest of the others, if that comes nearer."""
    chosen: list[tuple[int, ...]] = []
    others: list[tuple[int, ...]] = []
    left = wanted
    for part in parts:
        if len(part) <= left:
            chosen.append(part)
            left -= len(part)
        else:
            others.append(part)
    smallest = min(others, key=len, default=())
    if smallest and len(smallest) - left < left:
        chosen.append(smallest)
    return chosen


def _newest(prints: Sequence[Fingerprint], part: tuple[int, ...]) -> datetime:
    return max(_moment(prints[position].created_at) for position in part)


def _moment(moment: datetime | None) -> datetime:
    if moment is None:
        return _OLDEST
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _draw(prints: Sequence[Fingerprint], part: tuple[int, ...], seed: int) -> bytes:
    """A place in an order that the seed decides; where the tasks stand in their set does not matter."""
    names = "\x1f".join(sorted(prints[position].id for position in part))
    return hashlib.sha256(f"{seed}/{names}".encode("utf-8", "surrogatepass")).digest()
