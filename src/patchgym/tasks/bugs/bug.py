"""What every way of planting bugs comes to: new sources, and what is known of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from patchgym.records import Difficulty
from patchgym.tasks.bugs.difficulty import Facts, estimate

BugKind = Literal["mutation", "combined", "removal", "model"]


@dataclass(frozen=True)
class Bug:
    """A bug to plant.

    ``changes`` maps paths to their new sources, whole. ``operators`` made it; ``functions`` are those that it breaks,
    as ``path:qualified name``. ``lines`` maps the same paths to the lines (from 1, sorted, of the healthy file) on
    which it acts, so that the tests that ran them are those that can notice it. ``change`` says what was done
    (privileged: it gives the answer away), ``exercised`` by which public name users come to the broken code (empty
    where none is known), ``statement`` what a reader may be told of it, where the kind of bug brings that with it.
    """

    kind: BugKind
    changes: Mapping[str, str]
    operators: tuple[str, ...]
    functions: tuple[str, ...]
    lines: Mapping[str, tuple[int, ...]]
    change: str
    facts: Facts
    exercised: str = ""
    statement: str = ""

    @property
    def difficulty(self) -> Difficulty:
        """The estimate before any test has run."""
        return estimate(self.facts)
