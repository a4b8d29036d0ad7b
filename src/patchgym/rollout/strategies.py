"""Which node of a search tree is worked on next: best-first, beam and UCT, a function each.

All of them see the same thing: the root of a tree of ``Node``, and how many branches a node may have. They return a
node that may get one more branch, or None where there is none left.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from patchgym.agent import Conversation
from patchgym.config import Settings
from patchgym.records import Fault, Step, StopReason
from patchgym.sandbox import Sandbox


class SearchSettings(Settings):
    """How to search. ``branches`` is how many answers are sampled at one place, ``branch_at`` at which depths (none
    named: at all; elsewhere one answer follows another). The search ends after ``nodes`` steps, or after ``tokens``
    sampled tokens (0: no such limit). ``width`` is how many places of one depth the beam keeps, ``exploration`` UCT's
    constant. ``value`` says how a place is valued: by the share of the visible failing tests that pass in its state
    (``visible_tests``), by the rules' credits of the steps that led to it (``credit``), by a value model of them
    (``model:PATH``, whose hash is ``value_hash``), or not at all (``none``). A place whose value is more than
    ``margin`` below the best one is cut off (None: none is), and with ``merge`` one that leads where another one led:
    to the same state, or by the same action from it where nothing changed."""

    strategy: Literal["best_first", "beam", "uct"] = "best_first"
    branches: int = 3
    branch_at: tuple[int, ...] = ()
    nodes: int = 64
    tokens: int = 0
    width: int = 4
    exploration: float = 0.7
    value: str = Field("visible_tests", pattern="^(visible_tests|none|credit|model:.+)$")
    value_hash: str = ""
    margin: float | None = None
    merge: bool = True

    @property
    def by_steps(self) -> bool:
        """Whether a place is valued by the steps that led to it, without running anything."""
        return self.value not in ("visible_tests", "none")


@dataclass(eq=False)
class Node:
    """A place in the search: a conversation up to here, and the sandbox as it is then (None where it was given up to
    save memory: the state brings it back)."""

    conversation: Conversation
    depth: int = 0
    parent: "Node | None" = None
    step: Step | None = None
    sandbox: Sandbox | None = None
    value: float | None = None
    tried: int = 0
    visits: int = 0
    total: float = 0.0
    stop: StopReason | None = None
    fault: Fault | None = None
    pruned: Literal["duplicate_state", "low_value"] | None = None
    children: "list[Node]" = field(default_factory=list)

    def branches(self, settings: SearchSettings) -> int:
        """How many answers may be sampled here."""
        return settings.branches if not settings.branch_at or self.depth in settings.branch_at else 1

    def is_open(self, settings: SearchSettings) -> bool:
        """Whether one more answer may be sampled here."""
        return self.stop is None and self.pruned is None and self.tried < self.branches(settings)

    def walk(self) -> "Iterator[Node]":
        """Itself and all below it, parents first."""
        yield self
        for child in self.children:
            yield from child.walk()


def best_first(root: Node, settings: SearchSettings) -> Node | None:
    """The open node of the highest value; of equal ones the deepest, so that a path goes on to its end."""
    nodes = [node for node in root.walk() if node.is_open(settings)]
    return max(nodes, key=lambda node: (node.value or 0.0, node.depth, -node.tried), default=None)


def beam(root: Node, settings: SearchSettings) -> Node | None:
    """Depth after depth, the ``width`` best nodes of each get all their branches."""
    level = [root]
    while level:
        alive = [node for node in level if node.stop is None and node.pruned is None]
        kept = sorted(alive, key=lambda node: -(node.value or 0.0))[: settings.width]
        found = next((node for node in kept if node.is_open(settings)), None)
        if found is not None:
            return found
        level = [child for node in kept for child in node.children]
    return None


def uct(root: Node, settings: SearchSettings) -> Node | None:
    """Down from the root by the upper confidence bound (Kocsis and Szepesvári, 2006), to a node that is open."""

    def bound(node: Node, passed: int) -> float:
        if not node.visits:
            return math.inf
        return node.total / node.visits + settings.exploration * math.sqrt(math.log(max(passed, 1)) / node.visits)

    def down(node: Node) -> Node | None:
        if node.is_open(settings):
            return node
        for child in sorted(node.children, key=lambda child: -bound(child, node.visits)):
            found = down(child)
            if found is not None:
                return found
        return None

    return down(root)


STRATEGIES: Mapping[str, Callable[[Node, SearchSettings], Node | None]] = {
    "best_first": best_first,
    "beam": beam,
    "uct": uct,
}
"""Every strategy by its name."""


def credit(node: Node, value: float) -> None:
    """Count a visit of a node, and of all above it, that was worth ``value``."""
    at: Node | None = node
    while at is not None:
        at.visits += 1
        at.total += value
        at = at.parent
