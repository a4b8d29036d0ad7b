"""What every source of natural tasks offers to the building of a task set."""

from collections import Counter
from collections.abc import Generator
from typing import Protocol

from patchgym.content import ObjectStore
from patchgym.tasks.sources.candidates import Candidate
from patchgym.tasks.sources.refusals import Refusal


class CandidateSource(Protocol):
    """Somewhere that people mended code: a repository's history, a package's releases.

    A candidate's environment is still to be locked (``Revision.needs``): see ``patchgym.tasks.sources.provide``.
    """

    @property
    def label(self) -> str:
        """A short name, for progress and funnels."""
        ...

    @property
    def refused(self) -> Counter[Refusal]:
        """What made no candidate while ``candidates`` ran, counted by its reason."""
        ...

    def candidates(self, objects: ObjectStore) -> Generator[Candidate]:
        """Candidates in an order that does not change, their trees stored in ``objects``. Blocking, and lazy."""
        ...
