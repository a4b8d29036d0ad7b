"""An index of benchmarks, and what of a task set stands in it.

The index is a file of JSON lines packed by gzip: a head, then one ``Material`` a line. Each record is compared by its
commits, and passage by passage: patches, functions, functions with their names replaced, and what is told. A passage
counts as found when nearly all of the shorter of the two stands in the longer one, so that a quoted problem, or a
solution inside a longer function, is found as well as a copy.

What stands in many places of the index says nothing and is left out: licences, templates, the common ways of writing
things.
"""

import gzip
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from patchgym.content import disk_errors
from patchgym.errors import DataError
from patchgym.records import VersionedRecord
from patchgym.tasks.overlap.files import Reading, read_materials, unpacked
from patchgym.tasks.overlap.material import Material
from patchgym.tasks.overlap.minhash import THRESHOLD
from patchgym.tasks.overlap.passages import LEAST, Kind, Passage, common_runs, passages_of

_HEAD = b'{"schema_version":1,"format":"patchgym-overlap-index"'
_ORDER: tuple[Kind, ...] = ("commit", "patch", "function", "renamed function", "statement")


class IndexHead(VersionedRecord):
    """The first line of an index: what it was made of, in order."""

    format: Literal["patchgym-overlap-index"]
    sources: tuple[str, ...]
    records: int


@dataclass(frozen=True)
class Match:
    """A record of the index that a task has something in common with: ``kind`` says what; ``similarity`` (0 to 1) how
    much of the shorter passage stands in the longer; ``ours`` and ``theirs`` are the passages as they were written."""

    task: str
    record: str
    origin: str
    kind: Kind
    similarity: float
    ours: str
    theirs: str


class Index:
    """Records of benchmarks, ready to be looked up."""

    def __init__(self, materials: Sequence[Material]) -> None:
        self.materials = tuple(materials)
        found = [passage for owner, material in enumerate(materials) for passage in passages_of(material, owner)]
        self._common = common_runs(found)
        kept = (passage.without(self._common) for passage in found)
        self._passages = [passage for passage in kept if passage.telling]
        self._with_pick: defaultdict[int, list[int]] = defaultdict(list)
        self._with_key: defaultdict[str, list[int]] = defaultdict(list)
        for number, passage in enumerate(self._passages):
            for pick in passage.picks():
                self._with_pick[pick].append(number)
            if passage.key:
                self._with_key[passage.key].append(number)
        self._with_commit: defaultdict[str, list[int]] = defaultdict(list)
        for owner, material in enumerate(materials):
            for commit in _commits(material):
                self._with_commit[commit].append(owner)

    def matches(self, material: Material) -> list[Match]:
        """What of ``material`` stands in the index: the best match of each kind with each record, the records in the
        index's order."""
        best: dict[tuple[int, Kind], Match] = {}
        for commit in _commits(material):
            for owner in self._with_commit.get(commit, ()):
                match = self._match(material, owner, "commit", 1.0, commit, commit)
                best.setdefault((owner, "commit"), match)
        for passage in passages_of(material):
            for number, similarity in self._alike(passage):
                other = self._passages[number]
                known = best.get((other.owner, other.kind))
                if known is None or known.similarity < similarity:
                    match = self._match(material, other.owner, other.kind, similarity, passage.text, other.text)
                    best[other.owner, other.kind] = match
        # A function found with its names says all that the same without them would say.
        plain = {owner for owner, kind in best if kind == "function"}
        kept = [(key, match) for key, match in best.items() if key[1] != "renamed function" or key[0] not in plain]
        kept.sort(key=lambda item: (item[0][0], _ORDER.index(item[0][1])))
        return [match for _, match in kept]

    def _match(self, ours: Material, owner: int, kind: Kind, similarity: float, mine: str, other: str) -> Match:
        record = self.materials[owner]
        return Match(ours.id, record.id, record.origin, kind, similarity, mine, other)

    def _alike(self, passage: Passage) -> Iterator[tuple[int, float]]:
        """Passages of the index that are found in ``passage`` or hold it, with how much of the shorter does."""
        passage = passage.without(self._common)
        equal = set(self._with_key.get(passage.key, ())) if passage.key else set[int]()
        yield from ((number, 1.0) for number in sorted(equal))
        mine = passage.hashes()
        if len(mine) < LEAST[passage.kind]:
            return
        candidates = {number for pick in passage.picks() for number in self._with_pick.get(pick, ())}
        for number in sorted(candidates - equal):
            other = self._passages[number].hashes()
            shorter = min(len(mine), len(other))
            if shorter >= LEAST[passage.kind] and len(mine & other) >= THRESHOLD * shorter:
                yield number, len(mine & other) / shorter


def build_index(paths: Iterable[Path]) -> tuple[Index, Reading]:
    """The index of files, task sets and other indexes, with what was refused of them.

    Raises:
        UsageError: one of them is not there, or a folder that is no task set.
        DataError: one is damaged as a whole, or there is nothing to compare in any.
        PrerequisiteError: one is Parquet, and pyarrow is not installed.
    """
    together = Reading()
    for path in paths:
        records = _read_index(path) if path.is_file() else None
        if records is not None:
            together.materials += records
            continue
        reading = read_materials(path)
        together.materials += reading.materials
        together.refused += reading.refused
        together.examples = {**reading.examples, **together.examples}
    if not together.materials:
        first = next(iter(together.examples.items()), None)
        raise DataError(
            "There is nothing to compare in these files",
            why=f"{first[1]}: {first[0]}." if first else "They are empty.",
            mend="Give records with fields such as patch, problem_statement, prompt, canonical_solution, text or code.",
        )
    return Index(together.materials), together


def write_index(index: Index, path: Path) -> None:
    """Write an index; the same index gives the same bytes.

    Raises:
        StorageError: the disk is full or not writable.
    """
    sources = tuple(dict.fromkeys(material.origin for material in index.materials))
    head = IndexHead(format="patchgym-overlap-index", sources=sources, records=len(index.materials))
    lines = (record.to_line() + "\n" for record in (head, *index.materials))
    partial = path.with_name(f".{path.name}.partial")
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
        partial.rename(path)


def _read_index(path: Path) -> list[Material] | None:
    """The records of an index; None where the file is none."""
    data = unpacked(path)
    if not data.startswith(_HEAD):
        return None
    lines = data.splitlines()
    head = IndexHead.from_line(lines[0], where=f"{path}:1")
    found = [Material.from_line(line, where=f"{path}:{number}") for number, line in enumerate(lines[1:], start=2)]
    if len(found) != head.records:
        raise DataError(
            f"{path} holds {len(found)} records where its head says {head.records}", mend="Make the index again."
        )
    return found


def _commits(material: Material) -> list[str]:
    """What names the change among all: the fix's hash, and the base's with its repository."""
    found = [f"fix {material.fix_commit}"] if material.fix_commit else []
    return [*found, f"{material.repo} at {material.base_commit}"] if material.base_commit else found
