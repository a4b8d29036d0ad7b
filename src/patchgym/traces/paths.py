"""The root-to-leaf paths of a trajectory, and where a conversation begins anew on them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from patchgym.records import Message, Step, Trajectory


@dataclass(frozen=True)
class Stretch:
    """A part of a path over which one conversation goes on. ``path`` and ``part`` count from 0."""

    path: int
    part: int
    steps: tuple[Step, ...]


def paths(trajectory: Trajectory) -> list[tuple[Step, ...]] | None:
    """Every root-to-leaf path, in the order of the leaves; None where a step names a parent that is not before it."""
    found: dict[int, tuple[Step, ...]] = {}
    parents = {step.parent for step in trajectory.steps}
    for step in trajectory.steps:
        if step.index in found or (step.parent is not None and step.parent not in found):
            return None
        found[step.index] = (*(found[step.parent] if step.parent is not None else ()), step)
    return [path for index, path in found.items() if index not in parents]


def conversations(trajectory: Trajectory) -> list[Stretch] | None:
    """The stretches of every path, cut where the conversation was compacted. One that several paths share is there
    once, with the first of them. None where the steps make no tree."""
    return _stretches(trajectory, [step.index for step in trajectory.steps if step.compacted])


def contexts(trajectory: Trajectory) -> list[Stretch] | None:
    """The same, cut where the token ids begin anew."""
    return _stretches(trajectory, [step.index for step in trajectory.steps if step.tokens and step.tokens.restart])


def _stretches(trajectory: Trajectory, beginnings: Sequence[int]) -> list[Stretch] | None:
    whole = paths(trajectory)
    if whole is None:
        return None
    found: list[Stretch] = []
    seen: set[int] = set()
    for number, path in enumerate(whole):
        for part, steps in enumerate(_cut(path, set(beginnings))):
            if steps[-1].index not in seen:
                seen.add(steps[-1].index)
                found.append(Stretch(number, part, steps))
    return found


def _cut(path: Sequence[Step], beginnings: set[int]) -> Iterator[tuple[Step, ...]]:
    start = 0
    for position in range(1, len(path)):
        if path[position].index in beginnings:
            yield tuple(path[start:position])
            start = position
    yield tuple(path[start:])


def messages_of(steps: Sequence[Step]) -> list[Message]:
    """The conversation of a stretch, the outcome of its last action included."""
    found: list[Message] = []
    for step in steps:
        found += step.prompt
        if not step.continues:
            found.append(step.message)
    calls = {call.id for step in steps for call in step.message.tool_calls}
    told = {message.tool_call_id for message in found}
    for step in last_answer(steps):
        call = step.action.call_id if step.action and step.action.call_id in calls else None
        if step.observation is not None and (call is not None or step is steps[-1]) and call not in told - {None}:
            role: Literal["tool", "user"] = "user" if call is None else "tool"
            found.append(Message(role=role, content=step.observation.shown, tool_call_id=call))
    return found


def last_answer(steps: Sequence[Step]) -> Sequence[Step]:
    """The steps of the last message: the one that holds it, and those that continue it."""
    first = max((position for position, step in enumerate(steps) if not step.continues), default=0)
    return steps[first:]
