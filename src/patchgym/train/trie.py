"""Rows that begin alike, as a trie: what several rows share stands in it once.

A *segment* is a stretch of ids that the same rows pass through, and hangs below the segment before it. A *chunk* is a
connected part of the trie that goes through a model in one pass: it hangs below one segment of an earlier chunk, whose
keys and values are there already. Nothing here needs torch.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Segment:
    """``ids`` that begin ``start`` ids into every row that passes through; ``parent`` is the segment before it, None at
    the beginning of rows."""

    ids: tuple[int, ...]
    start: int
    parent: int | None

    @property
    def end(self) -> int:
        """How many ids of a row that passes through are read by its end."""
        return self.start + len(self.ids)


@dataclass(frozen=True, slots=True)
class Trie:
    """``segments``, each after its parent, and for each row the segment that it ends with (None: the row is empty)."""

    segments: tuple[Segment, ...]
    ends: tuple[int | None, ...]

    @property
    def size(self) -> int:
        """How many ids stand in it."""
        return sum(len(segment.ids) for segment in self.segments)

    def path(self, segment: int | None) -> list[int]:
        """The segments from the beginning to this one."""
        found: list[int] = []
        while segment is not None:
            found.append(segment)
            segment = self.segments[segment].parent
        return found[::-1]


def build_trie(rows: Sequence[Sequence[int]], longest: int | None = None) -> Trie:
    """The trie of rows of ids. Segments longer than ``longest`` ids are cut into several."""
    order = sorted(range(len(rows)), key=lambda row: tuple(rows[row]))
    segments: list[Segment] = []
    ends: list[int | None] = [None] * len(rows)
    # Rows order[first:past] share their first ``depth`` ids, which end with segment ``parent``.
    waiting: list[tuple[int, int, int, int | None]] = [(0, len(order), 0, None)]
    while waiting:
        first, past, depth, parent = waiting.pop()
        while first < past and len(rows[order[first]]) == depth:  # in order, the shortest come first
            ends[order[first]] = parent
            first += 1
        branches: list[tuple[int, int, int, int | None]] = []
        while first < past:
            head = rows[order[first]]
            last = first + 1
            while last < past and rows[order[last]][depth] == head[depth]:
                last += 1
            shared = _shared(head, rows[order[last - 1]], depth)
            under = parent
            for start in range(depth, shared, longest or shared - depth):
                end = min(shared, start + longest) if longest else shared
                segments.append(Segment(tuple(head[start:end]), start, under))
                under = len(segments) - 1
            branches.append((first, last, shared, under))
            first = last
        waiting += reversed(branches)
    return Trie(tuple(segments), tuple(ends))


@dataclass(frozen=True, slots=True)
class Chunk:
    """``segments`` that are read in one pass, each after its parent. Those whose parent is in none of them continue
    ``after``, a segment of an earlier chunk (None: they begin rows)."""

    segments: tuple[int, ...]
    after: int | None


def cut(trie: Trie, size: int) -> list[Chunk]:
    """Cut a trie into chunks of at most ``size`` ids (or one segment), each after the one that it continues.

    Branches that fit go together: small siblings share a chunk, and a segment takes along as much of what follows it as
    there is room for.

    Raises:
        ValueError: ``size`` is not positive.
    """
    if size < 1:
        raise ValueError(f"a chunk holds at least one id, not {size}")
    branches = _Branches(trie)
    chunks: list[Chunk] = []
    waiting: list[tuple[int | None, list[int]]] = [(None, branches.below[None])]
    while waiting:
        after, siblings = waiting.pop()
        open_chunk: list[int] = []
        room = size
        for root in siblings:
            if branches.weights[root] <= room:
                open_chunk += branches.all(root)
                room -= branches.weights[root]
            elif branches.weights[root] <= size:
                if open_chunk:
                    chunks.append(Chunk(tuple(open_chunk), after))
                open_chunk, room = branches.all(root), size - branches.weights[root]
            else:
                taken, left = branches.fill(root, size)
                chunks.append(Chunk(tuple(taken), after))
                waiting += left
        if open_chunk:
            chunks.append(Chunk(tuple(open_chunk), after))
    return chunks


@dataclass
class _Branches:
    """What hangs below each segment. ``weights`` counts a segment's ids with all below it."""

    trie: Trie
    below: dict[int | None, list[int]] = field(default_factory=dict)
    weights: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.below = {None: []}
        self.weights = [len(segment.ids) for segment in self.trie.segments]
        for at, segment in enumerate(self.trie.segments):
            self.below[at] = []
            self.below[segment.parent].append(at)
        for at in reversed(range(len(self.weights))):
            parent = self.trie.segments[at].parent
            if parent is not None:
                self.weights[parent] += self.weights[at]

    def all(self, root: int) -> list[int]:
        """A segment and everything below it, parents first."""
        found, waiting = list[int](), [root]
        while waiting:
            at = waiting.pop()
            found.append(at)
            waiting += reversed(self.below[at])
        return found

    def fill(self, root: int, size: int) -> tuple[list[int], list[tuple[int | None, list[int]]]]:
        """A segment with as much below it as ``size`` ids have room for, and what is left, by what it continues."""
        taken, room = [root], size - len(self.trie.segments[root].ids)
        left: list[tuple[int | None, list[int]]] = []
        waiting = [root]
        while waiting:
            at = waiting.pop()
            over: list[int] = []
            for child in self.below[at]:
                if self.weights[child] <= room:
                    taken += self.all(child)
                    room -= self.weights[child]
                elif len(self.trie.segments[child].ids) <= room:
                    taken.append(child)
                    room -= len(self.trie.segments[child].ids)
                    waiting.append(child)
                else:
                    over.append(child)
            if over:
                left.append((at, over))
        return taken, left


def walk(chunks: Sequence[Chunk], home: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """Every chunk twice: with True before, and with False behind all that continue it (``home``: the chunk of each
    segment). At any time, the chunks between their two turns are those that the one at hand continues."""
    below: dict[int | None, list[int]] = {None: []}
    for at, chunk in enumerate(chunks):
        below[at] = []
        below[None if chunk.after is None else home[chunk.after]].append(at)
    waiting = [(at, True) for at in reversed(below[None])]
    while waiting:
        at, entering = waiting.pop()
        yield at, entering
        if entering:
            waiting.append((at, False))
            waiting += [(child, True) for child in reversed(below[at])]


def _shared(a: Sequence[int], b: Sequence[int], start: int) -> int:
    """How many ids two rows share from their beginning, where they share ``start``."""
    shortest = min(len(a), len(b))
    return next((at for at in range(start, shortest) if a[at] != b[at]), shortest)
