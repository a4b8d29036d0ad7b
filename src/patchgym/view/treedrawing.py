"""A search tree as a drawing that one can walk: each node is a link, depth runs to the right."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from patchgym.records import Leaf, Step, Tree
from patchgym.view.text import figure, one_line, visible

_ACROSS, _DOWN, _EDGE = 92, 26, 30
_END = 190
MOST = 400
"""Nodes of one drawing; below the chosen node the rest can be walked to."""


class Drawing(NamedTuple):
    """``left_out`` counts the nodes that did not fit."""

    svg: Markup
    left_out: int


class _Place(NamedTuple):
    x: float
    y: float


def draw_tree(tree: Tree, link: Callable[[int], str], chosen: int | None, root: int | None = None) -> Drawing:
    """Draw a tree, or the part of it below ``root``. ``link`` gives a node's address; ``chosen`` is marked."""
    children = children_of(tree)
    wanted = _wanted(children, root)
    kept = frozenset(wanted[:MOST])
    places = _laid_out(children, kept, root)
    numbers = state_numbers(tree)
    ends = leaves_of(tree)
    if not places:
        return Drawing(Markup(""), 0)
    deepest = max(place.x for place in places.values())
    parts = [_edges(tree, places), _shared(tree, places)]
    parts += [_node(tree, index, places[index], numbers, link, chosen, ends.get(index, [])) for index in places]
    high = max(place.y for place in places.values()) + _EDGE
    frame = Markup(
        '<svg class="tree" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="group" aria-label="{2}">{3}</svg>'
    )
    told = f"Search tree of {len(tree.nodes)} steps"
    svg = frame.format(int(deepest + _END), int(high), told, Markup("").join(parts))
    return Drawing(svg, len(wanted) - len(kept))


def children_of(tree: Tree) -> dict[int | None, list[int]]:
    """The nodes that follow each node; the first ones under None."""
    found: dict[int | None, list[int]] = {}
    for index, node in enumerate(tree.nodes):
        found.setdefault(node.step.parent, []).append(index)
    return found


def leaves_of(tree: Tree) -> dict[int | None, list[Leaf]]:
    """The ends that lie at each node."""
    found: dict[int | None, list[Leaf]] = {}
    for leaf in tree.leaves:
        found.setdefault(leaf.node, []).append(leaf)
    return found


def state_numbers(tree: Tree) -> dict[str, int]:
    """The different states, numbered in the order in which they were reached; what it began from is 0."""
    numbers: dict[str, int] = {}
    for node in tree.nodes:
        for state in (node.step.state_before, node.step.state_after):
            if state is not None:
                numbers.setdefault(state, len(numbers))
    return numbers


def _wanted(children: dict[int | None, list[int]], root: int | None) -> list[int]:
    """The nodes below (and with) a root, level by level."""
    level = [root] if root is not None else list(children.get(None, []))
    found: list[int] = []
    while level:
        found += level
        level = [index for parent in level for index in children.get(parent, [])]
    return found


def _laid_out(children: dict[int | None, list[int]], kept: frozenset[int], root: int | None) -> dict[int, _Place]:
    """A place for each node: a parent in the middle of its children."""
    heights: dict[int, float] = {}
    depths: dict[int, int] = {}
    next_row = 0
    tops = [root] if root is not None else children.get(None, [])
    stack = [(index, 0, False) for index in reversed(tops) if index in kept]
    while stack:
        index, depth, after = stack.pop()
        inner = [child for child in children.get(index, []) if child in kept]
        if after:
            heights[index] = (heights[inner[0]] + heights[inner[-1]]) / 2
        elif inner:
            stack.append((index, depth, True))
            stack += [(child, depth + 1, False) for child in reversed(inner)]
        else:
            heights[index] = next_row
            next_row += 1
        depths[index] = depth
    return {index: _Place(_EDGE + depths[index] * _ACROSS, _EDGE + heights[index] * _DOWN) for index in sorted(heights)}


def _edges(tree: Tree, places: dict[int, _Place]) -> Markup:
    path = Markup('<path class="edge" d="M{:.0f},{:.1f}C{:.0f},{:.1f} {:.0f},{:.1f} {:.0f},{:.1f}"/>')
    parts = []
    for index, place in places.items():
        parent = tree.nodes[index].step.parent
        if parent is not None and parent in places:
            start = places[parent]
            middle = (start.x + place.x) / 2
            parts.append(path.format(start.x, start.y, middle, start.y, middle, place.y, place.x, place.y))
    return Markup("").join(parts)


def _shared(tree: Tree, places: dict[int, _Place]) -> Markup:
    """Dotted lines between places that reach one changed state on different paths."""
    first: dict[str, int] = {}
    line = Markup('<line class="shared" x1="{:.0f}" y1="{:.1f}" x2="{:.0f}" y2="{:.1f}"/>')
    parts = []
    for index, place in places.items():
        step = tree.nodes[index].step
        if not _changed(step):
            continue
        assert step.state_after is not None
        start = places[first.setdefault(step.state_after, index)]
        if start != place:
            parts.append(line.format(start.x, start.y, place.x, place.y))
    return Markup("").join(parts)


def _node(
    tree: Tree,
    index: int,
    place: _Place,
    numbers: dict[str, int],
    link: Callable[[int], str],
    chosen: int | None,
    ends: Sequence[Leaf],
) -> Markup:
    node = tree.nodes[index]
    state = numbers.get(node.step.state_after) if node.step.state_after is not None else None
    title = f"step {node.step.index}: {asked_for(node.step)}"
    title += f", state {state}" if state is not None else ""
    title += f", value {node.value:.2f}" if node.value is not None else ""
    title += f", cut off: {node.pruned.replace('_', ' ')}" if node.pruned is not None else ""
    kind = " changed" if _changed(node.step) else ""
    kind += " cut" if node.pruned is not None else ""
    kind += " chosen" if index == chosen else ""
    told = f"{node.step.index}" + (f" s{state}" if _changed(node.step) else "")
    told += " ✕" if node.pruned is not None else ""
    parts = [
        Markup('<circle cx="{:.0f}" cy="{:.1f}" r="{}"/>').format(place.x, place.y, 8 if index == chosen else 6),
        Markup('<text x="{:.0f}" y="{:.1f}">{}</text>').format(place.x + 10, place.y - 5, told),
    ]
    if ends:
        end = Markup('<text class="end" x="{:.0f}" y="{:.1f}">{}</text>')
        parts.append(end.format(place.x + 10, place.y + 10, "; ".join(end_of(leaf) for leaf in ends[:3])))
    frame = Markup('<a class="node{}" href="{}" aria-label="{}"><title>{}</title>{}</a>')
    return frame.format(kind, link(index), visible(title), visible(title), Markup("").join(parts))


def end_of(leaf: Leaf) -> str:
    """How a path ended, in a few words."""
    if leaf.stop is None:
        return "unfinished"
    if leaf.report is None:
        return leaf.stop.replace("_", " ")
    reward = leaf.reward.value if leaf.reward is not None else None
    return f"{leaf.report.verdict} {figure(reward)}" if reward is not None else str(leaf.report.verdict)


def asked_for(step: Step) -> str:
    """The action of a step, in a line."""
    if step.action is None:
        return one_line(step.parse_error or step.message.content or "nothing")
    arguments = " ".join(f"{name}={one_line(str(value), 48)}" for name, value in step.action.arguments.items())
    return one_line(f"{step.action.tool} {arguments}".rstrip(), 140)


def _changed(step: Step) -> bool:
    return step.state_after is not None and step.state_after != step.state_before
