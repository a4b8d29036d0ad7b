"""Training tasks that overlap held-out ones are refused, not warned about.

Whoever has both sets compares them whole (``refuse_overlap``). Whoever has only a checkpoint compares what it recorded
of its training tasks (``overlap_keys``): hashes of their functions by name and by text, of their patches and commits.
These find what is equal, also with other names in it, but not what is only nearly equal.
"""

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from patchgym.errors import DataError
from patchgym.tasks.overlap.fingerprints import SPECIFIC_CHANGE, SPECIFIC_CODE, Fingerprint
from patchgym.tasks.overlap.pairs import Pair, find_overlap

_NAMED = 3


def overlap_between(first: Sequence[Fingerprint], second: Sequence[Fingerprint]) -> list[Pair]:
    """The duplicates and versions with one task in ``first`` and one in ``second``, as positions there. Of many tasks
    that are alike, enough pairs are given to show it, not each with each."""
    overlap = find_overlap([*first, *second])
    edge = len(first)
    across = {
        (pair.first, pair.second - edge): pair
        for pair in (*overlap.versions, *overlap.duplicates)  # of one pair the duplicate says more
        if pair.first < edge <= pair.second
    }
    return [Pair(one, other, pair.why, pair.similarity) for (one, other), pair in sorted(across.items())]


def refuse_overlap(train: Sequence[Fingerprint], heldout: Sequence[Fingerprint]) -> None:
    """Do nothing if no training task is a duplicate of a held-out one or touches a version of the same function.

    Raises:
        DataError: one is or does; the first pairs are named with what they have in common.
    """
    pairs = overlap_between(train, heldout)
    if pairs:
        raise _refusal([(train[pair.first].id, heldout[pair.second].id, pair.why.value) for pair in pairs])


def overlap_keys(found: Fingerprint) -> tuple[str, ...]:
    """What a checkpoint keeps of a task that it was trained on: a few keys of 13 characters, sorted. They tell what the
    task has in common with another, and nothing of what it is."""
    return tuple(
        sorted({f"{kind}{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}" for kind, text in _facts(found)})
    )


def refuse_trained(trained: Mapping[str, Sequence[str]], heldout: Sequence[Fingerprint]) -> None:
    """Do nothing if no task that was trained on shares a key with a held-out one. ``trained`` maps the ids of training
    tasks to their ``overlap_keys``.

    Raises:
        DataError: one does; the first pairs are named with what they have in common.
    """
    owners: dict[str, str] = {}
    for task_id, keys in sorted(trained.items()):
        for key in keys:
            owners.setdefault(key, task_id)
    shared: dict[tuple[str, str], str] = {}
    for found in heldout:
        for key in overlap_keys(found):
            if key in owners:
                shared.setdefault((owners[key], found.id), _KINDS[key[0]])
    if shared:
        raise _refusal([(one, other, why) for (one, other), why in shared.items()])


_KINDS = {"n": "function name", "f": "function", "p": "patch", "c": "change", "x": "commit", "b": "base commit"}


def _facts(found: Fingerprint) -> Iterator[tuple[str, str]]:
    yield from (("n", name) for name in found.named)
    yield from (("f", body.renamed_key) for body in found.bodies if body.length >= SPECIFIC_CODE)
    if found.patch_key:
        yield "p", found.patch_key
    if found.changed >= SPECIFIC_CHANGE:
        yield "c", hashlib.blake2b(found.change, digest_size=12).hexdigest()
    if found.fix_commit:
        yield "x", found.fix_commit
    if found.base_commit:
        yield "b", f"{found.repo}:{found.base_commit}"


def _refusal(pairs: Sequence[tuple[str, str, str]]) -> DataError:
    named = "; ".join(f"{one} and {other} ({why})" for one, other, why in pairs[:_NAMED])
    more = f"; and {len(pairs) - _NAMED} more" if len(pairs) > _NAMED else ""
    return DataError(
        f"Training tasks overlap held-out tasks: {len(pairs)} pair{'s' if len(pairs) > 1 else ''}",
        why=f"{named}{more}.",
        mend="Split again: patchgym tasks split SET --out SET2. It keeps what belongs together on one side.",
    )
