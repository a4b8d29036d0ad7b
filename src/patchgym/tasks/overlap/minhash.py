"""Sets that are nearly alike, among many, without comparing each with each: MinHash and banded LSH.

Of every set, ``BANDS`` times ``ROWS`` minima under different hash functions are taken (Broder 1997). Two sets of
Jaccard similarity s agree in one of them with probability s, in all ``ROWS`` of a band with s**ROWS, and so in at least
one band with 1 - (1 - s**ROWS)**BANDS (``candidate_probability``): 0.9998 at the threshold 0.8. Sets that agree in a
band are compared exactly, so that a similarity that is given is the true one.

The hash functions are multiplications by odd numbers modulo 2**64 of hashes that are random already. NumPy does them
at once where it is installed; the results are the same without it.
"""

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from patchgym.tasks.overlap.groups import Groups

BANDS, ROWS = 16, 4
THRESHOLD = 0.8
_MASK = 2**64 - 1
_MIX = 0x9E3779B97F4A7C15  # odd and without pattern: the golden ratio's fraction


class NearPair(NamedTuple):
    """Two positions, the smaller first, and the Jaccard similarity of the sets there."""

    first: int
    second: int
    similarity: float


def shingles(features: Iterable[str]) -> bytes:
    """A set of features in 8 bytes each: their 64-bit hashes, each once, sorted."""
    return shingles_of(set(map(feature_hash, features)))


def feature_hash(text: str) -> int:
    """A feature's 64-bit hash (BLAKE2b)."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest())


def shingles_of(hashes: Iterable[int]) -> bytes:
    """Distinct 64-bit hashes as ``shingles`` packs them."""
    return array("Q", sorted(hashes)).tobytes()


def members(packed: bytes) -> frozenset[int]:
    """The hashes in what ``shingles`` made."""
    return frozenset(memoryview(packed).cast("Q"))


def size(packed: bytes) -> int:
    """How many features a set has."""
    return len(packed) // 8


def jaccard(first: bytes, second: bytes) -> float:
    """What two sets share, as a part of what they hold together; 0 where one is empty."""
    shared = len(members(first) & members(second))
    together = size(first) + size(second) - shared
    return shared / together if shared else 0.0


def candidate_probability(similarity: float, bands: int = BANDS, rows: int = ROWS) -> float:
    """With which probability two sets of this Jaccard similarity are compared at all: 1 - (1 - s**rows)**bands."""
    return float(1.0 - (1.0 - similarity**rows) ** bands)


def near_pairs(
    sets: Sequence[bytes],
    scopes: Sequence[Hashable] | None = None,
    *,
    threshold: float = THRESHOLD,
    band_keys: Callable[[bytes], bytes] | None = None,
) -> list[NearPair]:
    """Pairs of sets with a Jaccard similarity of at least ``threshold``, sorted; of sets with unlike ``scopes`` none.

    Where more than two are alike, enough pairs are given to join them all, not each with each: what is joined already
    is not compared again, so that many copies of one thing cost no more than as many different things. Empty sets are
    like nothing. Below the threshold 0.8 more pairs are missed: see ``candidate_probability``.
    """
    groups = Groups(len(sets))
    found: list[NearPair] = []
    first_with: dict[tuple[Hashable, bytes], int] = {}
    distinct: list[int] = []
    of_scope = scopes if scopes is not None else [None] * len(sets)
    for position, packed in enumerate(sets):
        if not packed:
            continue
        known = first_with.setdefault((of_scope[position], packed), position)
        if known == position:
            distinct.append(position)
        else:
            groups.join(known, position)
            found.append(NearPair(known, position, 1.0))
    keys_of = band_keys or _band_keys()
    keys = {position: keys_of(sets[position]) for position in distinct}
    rejected: set[tuple[int, int]] = set()
    for band in range(BANDS):
        buckets: defaultdict[tuple[Hashable, bytes], list[int]] = defaultdict(list)
        for position in distinct:
            bucket = buckets[of_scope[position], keys[position][8 * band : 8 * band + 8]]
            for other in bucket:
                if groups.same(other, position) or (other, position) in rejected:
                    continue
                similarity = _if_alike(sets[other], sets[position], threshold)
                if similarity is None:
                    rejected.add((other, position))
                else:
                    groups.join(other, position)
                    found.append(NearPair(other, position, similarity))
            bucket.append(position)
    return sorted(found)


def plain_band_keys(packed: bytes) -> bytes:
    """The keys of a set's bands, 8 bytes each, in plain Python."""
    hashes = list(memoryview(packed).cast("Q"))
    lanes = [min([value * factor & _MASK for value in hashes]) for factor in _factors()]
    keys = []
    for start in range(0, len(lanes), ROWS):
        key = 0
        for lane in lanes[start : start + ROWS]:
            key = (key * _MIX + lane) & _MASK
        keys.append(key)
    return array("Q", keys).tobytes()


def numpy_band_keys() -> Callable[[bytes], bytes]:
    """The same as ``plain_band_keys``, by NumPy, several times faster.

    Raises:
        ImportError: NumPy is not installed.
    """
    import numpy as np

    factors = np.array(_factors(), dtype=np.uint64)
    mix = np.uint64(_MIX)

    def band_keys(packed: bytes) -> bytes:
        values = np.frombuffer(packed, dtype=np.uint64)
        lanes = np.multiply.outer(factors, values).min(axis=1).reshape(BANDS, ROWS)
        keys = lanes[:, 0]
        for row in range(1, ROWS):
            keys = keys * mix + lanes[:, row]
        return bytes(keys.tobytes())

    return band_keys


def _band_keys() -> Callable[[bytes], bytes]:
    try:
        return numpy_band_keys()
    except ImportError:
        return plain_band_keys


def _if_alike(first: bytes, second: bytes, threshold: float) -> float | None:
    small, large = sorted((len(first), len(second)))
    if small < threshold * large:
        return None
    similarity = jaccard(first, second)
    return similarity if similarity >= threshold else None


@lru_cache(maxsize=1)
def _factors() -> tuple[int, ...]:
    """The odd factors, one for each minimum."""
    digests = (hashlib.blake2b(b"minimum %d" % lane, digest_size=8).digest() for lane in range(BANDS * ROWS))
    return tuple(int.from_bytes(digest) | 1 for digest in digests)
