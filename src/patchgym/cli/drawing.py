"""Steps and search trees as text."""

from patchgym.records import Leaf, Step, Tree, TreeNode

_WIDE = 60


def asked_for(step: Step) -> str:
    """The action of a step, in a line."""
    if step.action is None:
        return step.parse_error or (f"says: {short(step.message.content)}" if step.message.content else "(nothing)")
    arguments = " ".join(f"{name}={short(str(value))}" for name, value in step.action.arguments.items())
    return f"{step.action.tool} {arguments}".rstrip()


def came_of(step: Step) -> str:
    """What came of it, in a line."""
    seen = step.observation
    if seen is None:
        return "(no answer)" if step.action is not None else ""
    ending = f"exit {seen.exit_code}: " if seen.exit_code is not None else ""
    how = "" if seen.ok or seen.ok is None else "refused: "
    how += "interrupted: " if seen.ending == "interrupted" else "timed out: " if seen.timed_out else ""
    return f"{how}{ending}{short(seen.shown)}"


def short(text: str) -> str:
    """A text as one line of at most ``_WIDE`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= _WIDE else f"{line[: _WIDE - 1]}…"


def drawn(tree: Tree) -> list[str]:
    """A tree as lines, a step each, below the step that it follows. States are numbered in the order in which they were
    reached, so that shared ones can be told; a step that changed nothing shows none."""
    children: dict[int | None, list[int]] = {}
    for index, node in enumerate(tree.nodes):
        children.setdefault(node.step.parent, []).append(index)
    ends: dict[int | None, list[Leaf]] = {}
    for leaf in tree.leaves:
        ends.setdefault(leaf.node, []).append(leaf)
    numbers: dict[str, int] = {}
    for node in tree.nodes:
        for state in (node.step.state_before, node.step.state_after):
            if state is not None:
                numbers.setdefault(state, len(numbers))
    finished = sum(leaf.stop is not None for leaf in tree.leaves)
    lines = [
        f"{tree.id}: {len(tree.nodes)} steps, {len(numbers)} states, {finished} finished paths,"
        f" {tree.sampled_tokens} sampled tokens"
    ]

    def below(parent: int | None, bars: str) -> None:
        inner = children.get(parent, [])
        for position, index in enumerate(inner):
            last = position == len(inner) - 1
            lines.append(f"{bars}{'└─' if last else '├─'} {_told(tree.nodes[index], numbers, ends.get(index, []))}")
            below(index, bars + ("   " if last else "│  "))

    below(None, "")
    return lines


def _told(node: TreeNode, numbers: dict[str, int], ends: list[Leaf]) -> str:
    step = node.step
    parts = [f"{step.index} {short(asked_for(step))}"]
    if step.state_after is not None and step.state_after != step.state_before:
        parts.append(f"state {numbers[step.state_after]}")
    if node.value is not None:
        parts.append(f"value {node.value:.2f}")
    if node.pruned is not None:
        parts.append(f"cut off: {node.pruned.replace('_', ' ')}")
    for leaf in ends:
        if leaf.stop is not None:
            verdict = f", {leaf.report.verdict}" if leaf.report is not None else ""
            reward = f", reward {leaf.reward.value:.2f}" if leaf.reward and leaf.reward.value is not None else ""
            parts.append(f"{leaf.stop.replace('_', ' ')}{verdict}{reward}")
    return "  ".join(parts)
