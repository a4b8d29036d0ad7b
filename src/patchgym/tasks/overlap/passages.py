"""The passages of a record that are looked up in an index, as runs of tokens.

Winnowing (Schleimer, Wilkerson and Aiken, 2003) decides by which runs a passage is found: of every ``WINDOW`` runs in a
row the one with the smallest hash. So two passages that share as many runs in a row are always compared.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from patchgym.tasks.overlap.changes import changed_lines
from patchgym.tasks.overlap.fingerprints import SPECIFIC_PATCH, change_runs, digest, joined, sides, solution_tokens
from patchgym.tasks.overlap.material import Material
from patchgym.tasks.overlap.minhash import feature_hash
from patchgym.tasks.overlap.tokens import code_tokens, renamed, runs, words

WINDOW = 6
COMMON_PLACES = 10
Kind = Literal["commit", "patch", "function", "renamed function", "statement"]
LEAST: dict[Kind, int] = {"patch": 30, "function": 20, "renamed function": 24, "statement": 16}
"""How many distinct runs the shorter of two passages must have."""
_RUN: dict[Kind, int] = {"function": 5, "renamed function": 8, "statement": 4}


@dataclass(frozen=True)
class Passage:
    """One passage of the record number ``owner``. ``runs`` are the hashes of its runs of tokens in order, 8 bytes each;
    ``key`` hashes all of its tokens, and is empty where they are too few to tell; ``place`` names where it stands."""

    owner: int
    kind: Kind
    place: str
    text: str
    key: str
    runs: bytes

    @property
    def telling(self) -> bool:
        """Whether there is enough of it to be found by."""
        return bool(self.key) or len(self.hashes()) >= LEAST[self.kind]

    def hashes(self) -> frozenset[int]:
        """The distinct hashes of its runs."""
        return frozenset(memoryview(self.runs).cast("Q"))

    def picks(self) -> frozenset[int]:
        """Those by which it is found."""
        found = list(memoryview(self.runs).cast("Q"))
        last = max(1, len(found) - WINDOW + 1) if found else 0
        return frozenset(min(found[start : start + WINDOW]) for start in range(last))

    def without(self, common: frozenset[int]) -> "Passage":
        """The passage without runs that many have; where nothing else is in it, it has no key either."""
        found = memoryview(self.runs).cast("Q")
        kept = [run for run in found if run not in common]
        if len(kept) == len(found):
            return self
        return replace(self, runs=array("Q", kept).tobytes(), key=self.key if kept else "")


def passages_of(material: Material, owner: int = 0) -> Iterator[Passage]:
    """Every passage of a record: its patches, its functions before and after, the same with their names replaced, and
    what it tells."""
    for patch in material.patches:
        marked = solution_tokens(patch)
        key = digest(["patch", *marked]) if len(marked) >= SPECIFIC_PATCH else ""
        yield _passage(owner, "patch", material.id, changed_lines(patch), key, change_runs(marked))
    for function in material.functions:
        place = f"{material.repo or material.id}:{function.path}:{function.name}"
        for path, text in dict.fromkeys(sides(function)):
            tokens = code_tokens(text, path)
            key = digest(["function", *tokens]) if len(tokens) >= LEAST["function"] else ""
            yield _passage(owner, "function", place, text, key, joined(runs(tokens, _RUN["function"])))
            key = digest(["renamed", *renamed(tokens)]) if len(tokens) >= LEAST["renamed function"] else ""
            # Each run is renamed by itself: a name more at the top of a function changes no run below.
            other_names = (renamed(run) for run in runs(tokens, _RUN["renamed function"]))
            yield _passage(owner, "renamed function", place, text, key, joined(other_names))
    for statement in material.statements:
        yield _passage(
            owner, "statement", material.id, statement, "", joined(runs(words(statement), _RUN["statement"]))
        )


def common_runs(passages: Sequence[Passage]) -> frozenset[int]:
    """Runs that stand in more than ``COMMON_PLACES`` places."""
    counts: Counter[int] = Counter()
    known: dict[tuple[Kind, str], frozenset[int]] = {}
    for passage in passages:
        before = known.get((passage.kind, passage.place), frozenset())
        counts.update(passage.hashes() - before)
        known[passage.kind, passage.place] = before | passage.hashes()
    return frozenset(run for run, count in counts.items() if count > COMMON_PLACES)


def _passage(owner: int, kind: Kind, place: str, text: str, key: str, features: Iterable[str]) -> Passage:
    hashes = array("Q", (feature_hash(f"{kind}\x1f{feature}") for feature in features))
    return Passage(owner, kind, place, text, key, hashes.tobytes())
