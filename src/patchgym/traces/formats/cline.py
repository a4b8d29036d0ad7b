"""Cline's sessions: one JSON document with ``sessionId`` and ``messages``, whose content are blocks in Anthropic's
form."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, ToolCall, Trajectory, Usage
from patchgym.traces.content import assistant, parts_of, text_and_more
from patchgym.traces.draft import Draft
from patchgym.traces.formats.textcalls import exit_code_in
from patchgym.traces.intake import Intake, count_of, moment, text_of

NAME = "cline"
ABOUT = "sessions of Cline (a .messages.json document)"
_SESSION = re.compile(rb'"sessionId"\s*:')
_MESSAGE = {"id", "role", "content", "ts", "modelInfo", "metrics"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return (
        head.lstrip().startswith(b"{") and _SESSION.search(head) is not None and b'"ts"' in head and b'"agent"' in head
    )


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    document = intake.document(path)
    messages = document.get("messages") if isinstance(document, dict) else None
    if not isinstance(messages, list):
        if document is not None:
            intake.damaged("no_messages", path.name)
        return
    session = text_of(document.get("sessionId"))
    draft = Draft(id=session or path.stem, format=NAME, file=path.name, session=session or None, agent=NAME)
    if document.get("system_prompt"):
        draft.given(Message(role="system", content=text_of(document["system_prompt"])))
    for message in messages:
        if isinstance(message, dict) and message.get("role") in ("user", "assistant"):
            _message(draft, message, intake)
        else:
            draft.left_out["messages_without_a_role"] += 1
    yield draft.finished()


def _message(draft: Draft, message: dict[str, Any], intake: Intake) -> None:
    draft.left_out.update(f"message_{key}" for key in message if key not in _MESSAGE)
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": text_of(content)}]
    if message["role"] == "assistant":
        _answer(draft, message, blocks, intake)
        return
    rest: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and block.get("type") == "tool_result":
            _outcome(draft, block, intake)
        elif isinstance(block, dict) and block.get("type") == "file" and isinstance(block.get("content"), str):
            rest.append({"type": "text", "text": f"{text_of(block.get('path'))}\n{block['content']}"})
        else:
            rest.append(block)
    text, attachments = text_and_more(rest, intake, draft.left_out)
    if text or attachments:
        draft.given(Message(role="user", content=text, attachments=attachments))


def _answer(draft: Draft, message: dict[str, Any], blocks: list[Any], intake: Intake) -> None:
    parts = parts_of(blocks, intake, draft.left_out)
    calls = tuple(
        ToolCall(
            id=text_of(block.get("id")), name=text_of(block.get("name")), arguments=text_of(block.get("input") or {})
        )
        for block in parts.calls
    )
    model = message.get("modelInfo")
    draft.answered(
        assistant(parts, calls),
        model=text_of(model.get("id")) or None if isinstance(model, dict) else None,
        usage=_usage(message.get("metrics")),
        started_at=moment(message.get("ts")),
    )


def _usage(metrics: object) -> Usage | None:
    if not isinstance(metrics, dict):
        return None
    given, sampled = count_of(metrics.get("inputTokens")), count_of(metrics.get("outputTokens"))
    if given is None or sampled is None:
        return None
    return Usage(prompt_tokens=given, sampled_tokens=sampled, cached_tokens=count_of(metrics.get("cacheReadTokens")))


def _outcome(draft: Draft, block: dict[str, Any], intake: Intake) -> None:
    content = block.get("content")
    parts = [_answered(part) for part in content] if isinstance(content, list) else content
    text, attachments = text_and_more(parts, intake, draft.left_out)
    call = text_of(block.get("tool_use_id"))
    failed = block.get("is_error")
    observation = Observation(
        shown=text, ok=not failed if isinstance(failed, bool) else None, exit_code=exit_code_in(text)
    )
    message = Message(role="tool", content=text, tool_call_id=call, attachments=attachments)
    if not draft.observed(observation, call, message):
        draft.left_out["outcomes_of_no_call"] += 1
        draft.given(message)


def _answered(part: object) -> object:
    """A part of an outcome; of a tool that takes several questions at once, the answer to one of them."""
    return text_of(part["result"]) if isinstance(part, dict) and "type" not in part and "result" in part else part
