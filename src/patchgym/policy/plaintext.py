"""The plain-text action protocol, for models without native tool calls.

A message holds one action, after any text of the model's own::

    tool: edit_file
    path: src/clock.py
    old:
    <<<
    hours = 23
    >>>
    new:
    <<<
    hours = 24
    >>>

A value of one line stands behind its key; any other stands between a line of ``<`` and a line of as many ``>``, three
or more, so that every text can be written.
"""

import re

from patchgym.errors import PatchgymError
from patchgym.records import Action

_TOOL = re.compile(r"^tool:[ \t]*([A-Za-z_]+)[ \t]*$")
_PAIR = re.compile(r"^([a-z_]+):(?:[ \t]+(.*?))?[ \t]*$")
_OPEN = re.compile(r"^<{3,}[ \t]*$")


class ProtocolError(PatchgymError):
    """A message holds no readable action; ``what`` is said to the model."""


def render_action(action: Action) -> str:
    """An action as text. Values that are not strings are written as ``str`` writes them."""
    lines = [f"tool: {action.tool}"]
    for key, value in action.arguments.items():
        text = value if isinstance(value, str) else str(value)
        if text and text == text.strip() and not re.search(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]", text):
            lines.append(f"{key}: {text}")
        else:
            runs = [len(line) for line in text.split("\n") if line.strip(">") == "" and line]
            width = max([2, *runs]) + 1
            body = text.split("\n") if text else []
            lines += [f"{key}:", "<" * width, *body, ">" * width]
    return "\n".join(lines)


def parse_action(text: str) -> Action:
    """The action of a message; every value is a string.

    Raises:
        ProtocolError: there is none, there are two, or a line of it cannot be read.
    """
    lines = text.split("\n")
    starts = [number for number, line in enumerate(lines) if _TOOL.match(line)]
    if not starts:
        raise ProtocolError("No action found: write a line 'tool: NAME', then its arguments.")
    arguments: dict[str, str] = {}
    position = starts[0] + 1
    while position < len(lines):
        line = lines[position]
        position += 1
        if not line.strip():
            continue
        if _TOOL.match(line):
            raise ProtocolError("Two actions in one message: write one.")
        pair = _PAIR.match(line)
        if pair is None:
            raise ProtocolError(f"Not an argument: {line.strip()[:60]!r}. Write 'name: value'.")
        key, value = pair.group(1), pair.group(2) or ""
        if not value and position < len(lines) and _OPEN.match(lines[position]):
            value, position = _block(lines, position)
        if key in arguments:
            raise ProtocolError(f"The argument {key} is given twice.")
        arguments[key] = value
    matched = _TOOL.match(lines[starts[0]])
    assert matched is not None
    return Action(tool=matched.group(1), arguments=dict(arguments))


def _block(lines: list[str], opening: int) -> tuple[str, int]:
    """The text of the block that opens at a line, and the number of the line behind its end."""
    closing = ">" * len(lines[opening].strip())
    for end in range(opening + 1, len(lines)):
        if lines[end].rstrip() == closing:
            return "\n".join(lines[opening + 1 : end]), end + 1
    raise ProtocolError(f"A value opened with {lines[opening].strip()} is never closed with {closing}.")
