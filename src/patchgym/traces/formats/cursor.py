"""Cursor's command line: JSON lines ``{role, message: {content: [...]}}``. It records calls, and not what came of
them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, ToolCall, Trajectory
from patchgym.traces.content import text_and_more
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, text_of

NAME = "cursor"
ABOUT = "transcripts of Cursor's command line (JSONL)"
_LINE = {"role", "message"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    try:
        found = json.loads(first.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() == _LINE and isinstance(found["message"], dict)


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    draft = Draft(id=path.stem, format=NAME, file=path.name, agent=NAME)
    for number, line in intake.lines(path):
        message = line.get("message")
        if not isinstance(message, dict) or line.get("role") not in ("user", "assistant"):
            intake.damaged("no_message", f"{path.name}, line {number}")
            continue
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
        calls = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_use"]
        rest = [block for block in blocks if block not in calls]
        text, attachments = text_and_more(rest, intake, draft.left_out)
        if line["role"] == "user":
            draft.given(Message(role="user", content=text, attachments=attachments))
        else:
            draft.answered(
                Message(
                    role="assistant",
                    content=text,
                    tool_calls=tuple(_call(call, f"unnamed-{number}-{at}") for at, call in enumerate(calls)),
                    attachments=attachments,
                )
            )
    if draft.steps:
        yield draft.finished()


def _call(block: dict[str, Any], name: str) -> ToolCall:
    return ToolCall(
        id=text_of(block.get("id")) or name,
        name=text_of(block.get("name")),
        arguments=text_of(block.get("input") if block.get("input") is not None else {}),
    )
