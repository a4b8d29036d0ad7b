"""Which tasks are duplicates, and which work on versions of one function.

Two tasks are **duplicates** when having seen one gives the other away:

- ``patch``: their solutions are the same text with its context, comments and layout aside;
- ``change``: what they remove and add is nearly the same (Jaccard of at least 0.8), and it is long, or made in versions
  of one function;
- ``statement``: they are told nearly the same, words aside that many tasks have, on versions of one function;
- ``commit``: they are the same change that people made, by its hash.

They are **versions** of one function when they touch a function of one name in one repository, or functions whose text
is the same (also with other names in it) or nearly the same, or when people changed the same commit. Versions belong on
one side of a split. They may stand in one set: two bugs planted in one function are two tasks.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from patchgym.tasks.overlap.fingerprints import (
    SPECIFIC_CHANGE,
    SPECIFIC_CODE,
    SPECIFIC_WORDS,
    Fingerprint,
)
from patchgym.tasks.overlap.groups import Groups
from patchgym.tasks.overlap.minhash import members, near_pairs, shingles_of, size

_COMMON = 5  # words that the tasks of more functions than this are told belong to the way of telling


class Why(StrEnum):
    """What two tasks have in common."""

    COMMIT = "commit"
    BASE = "base commit"
    PATCH = "patch"
    CHANGE = "change"
    STATEMENT = "statement"
    NAME = "function name"
    FUNCTION = "function"
    RENAMED = "function with other names"


class Pair(NamedTuple):
    """Two positions, the smaller first; what they have in common; how alike that is, between 0 and 1."""

    first: int
    second: int
    why: Why
    similarity: float


class Overlap(NamedTuple):
    """Pairs that are ``duplicates`` and pairs that are ``versions`` of one function, each sorted. Of many that are
    alike, enough pairs to join them all."""

    duplicates: tuple[Pair, ...]
    versions: tuple[Pair, ...]

    def components(self, count: int) -> list[tuple[int, ...]]:
        """What must stay together of ``count`` tasks: every position is in exactly one component."""
        groups = Groups(count)
        for pair in (*self.duplicates, *self.versions):
            groups.join(pair.first, pair.second)
        return groups.all()


def find_overlap(prints: Sequence[Fingerprint]) -> Overlap:
    """The duplicates and versions among tasks (of one set or of several, one behind the other)."""
    versions = sorted(_versions(prints))
    groups = Groups(len(prints))
    for pair in versions:
        groups.join(pair.first, pair.second)
    # A bug planted in one function is a version of it, whatever the task's other functions are.
    scopes = [groups.root(position) for position in range(len(prints))]
    best: dict[tuple[int, int], Pair] = {}
    for pair in _duplicates(prints, scopes):
        best.setdefault((pair.first, pair.second), pair)
    return Overlap(tuple(sorted(best.values())), tuple(versions))


def _versions(prints: Sequence[Fingerprint]) -> Iterator[Pair]:
    groups = Groups(len(prints))
    yield from _equal(groups, Why.NAME, [found.named for found in prints])
    bases = [[(found.repo, found.base_commit)] if found.base_commit else [] for found in prints]
    yield from _equal(groups, Why.BASE, bases)
    specific = [[body for body in found.bodies if body.length >= SPECIFIC_CODE] for found in prints]
    yield from _equal(groups, Why.FUNCTION, [[body.key for body in bodies] for bodies in specific])
    yield from _equal(groups, Why.RENAMED, [[body.renamed_key for body in bodies] for bodies in specific])
    owners: list[int] = []
    texts: list[bytes] = []
    seen: set[bytes] = set()
    for position, bodies in enumerate(specific):
        for body in bodies:
            if body.tokens not in seen:  # who has the very same text is joined already
                seen.add(body.tokens)
                owners.append(position)
                texts.append(body.tokens)
    for near in near_pairs(texts):
        first, second = sorted((owners[near.first], owners[near.second]))
        if groups.join(first, second):
            yield Pair(first, second, Why.FUNCTION, near.similarity)


def _duplicates(prints: Sequence[Fingerprint], scopes: Sequence[int]) -> Iterator[Pair]:
    """Duplicates, the surest reason of each pair first."""
    everywhere = Groups(len(prints))
    fixes = [[found.fix_commit] if found.fix_commit else [] for found in prints]
    yield from _equal(everywhere, Why.COMMIT, fixes)
    yield from _equal(everywhere, Why.PATCH, [[found.patch_key] if found.patch_key else [] for found in prints])
    long = [found.change if found.changed >= SPECIFIC_CHANGE else b"" for found in prints]
    yield from (Pair(*near[:2], Why.CHANGE, near.similarity) for near in near_pairs(long))
    changes = [found.change for found in prints]
    yield from (Pair(*near[:2], Why.CHANGE, near.similarity) for near in near_pairs(changes, scopes))
    told = _telling(prints, scopes)
    yield from (Pair(*near[:2], Why.STATEMENT, near.similarity) for near in near_pairs(told, scopes))


def _equal(groups: Groups, why: Why, keys: Sequence[Sequence[Hashable] | frozenset[str]]) -> Iterator[Pair]:
    """Pairs that share a key and are not in one group yet."""
    first_with: dict[Hashable, int] = {}
    for position, of_one in enumerate(keys):
        for key in sorted(of_one, key=repr):
            known = first_with.setdefault(key, position)
            if groups.join(known, position):
                yield Pair(known, position, why, 1.0)


def _telling(prints: Sequence[Fingerprint], scopes: Sequence[int]) -> list[bytes]:
    """The statements without the runs of words that the tasks of many functions have; empty where little is left, or no
    other task is in the scope."""
    sizes = Counter(scopes)
    compared = [found.statement if sizes[scope] > 1 else b"" for found, scope in zip(prints, scopes, strict=True)]
    wanted = {run for packed in compared for run in members(packed)}
    told: defaultdict[int, set[int]] = defaultdict(set)
    for found, scope in zip(prints, scopes, strict=True):
        told[scope] |= wanted & members(found.statement)
    counts = Counter(run for of_scope in told.values() for run in of_scope)
    kept = (shingles_of(run for run in members(packed) if counts[run] <= _COMMON) for packed in compared)
    return [packed if size(packed) >= SPECIFIC_WORDS else b"" for packed in kept]
