"""Which tests ran which lines of a workspace."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Coverage:
    """What one healthy run of a whole suite showed: ``lines`` maps a workspace path to its lines (from 1) and those to
    the ids of the tests that ran them. Lines that run on import belong to no test."""

    lines: Mapping[str, Mapping[int, frozenset[str]]]

    def tests(self, path: str, lines: Iterable[int]) -> frozenset[str]:
        """The tests that ran any of ``lines`` of ``path``."""
        known = self.lines.get(path, {})
        return frozenset().union(*(known.get(line, frozenset()) for line in lines))
