"""GitHub Copilot's command line: JSON lines ``{type, data, id, timestamp, parentId}``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, ToolCall, Trajectory
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, moment, text_of

NAME = "copilot"
ABOUT = "events of GitHub Copilot's command line (JSONL)"


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return b'"session.start"' in head and b'"copilot' in head and b'"parentId"' in head


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    draft = Draft(id=path.stem, format=NAME, file=path.name, agent=NAME)
    for _, line in intake.lines(path):
        data = line.get("data")
        _event(draft, text_of(line.get("type")), data if isinstance(data, dict) else {}, line.get("timestamp"))
    if draft.steps:
        yield draft.finished()


def _event(draft: Draft, kind: str, data: dict[str, Any], at: object) -> None:
    match kind:
        case "session.start":
            _start(draft, data)
        case "session.model_change":
            draft.model = text_of(data.get("newModel")) or draft.model
        case "system.message" | "user.message":
            system = kind == "system.message"
            draft.given(Message(role="system" if system else "user", content=text_of(data.get("content"))))
            if data.get("attachments"):
                draft.left_out["attachments"] += 1
        case "assistant.message":
            _answer(draft, data, at)
        case "tool.execution_complete":
            _outcome(draft, data)
        case _:
            draft.left_out[kind or "events_without_a_type"] += 1


def _start(draft: Draft, data: dict[str, Any]) -> None:
    session = text_of(data.get("sessionId"))
    context = data.get("context")
    context = context if isinstance(context, dict) else {}
    draft.id, draft.session = session or draft.id, session or None
    draft.agent = " ".join((NAME, text_of(data.get("copilotVersion")))).strip()
    draft.model = text_of(data.get("selectedModel")) or None
    draft.repo = text_of(context.get("repository")) or None
    draft.base_commit = text_of(context.get("headCommit") or context.get("baseCommit")) or None


def _answer(draft: Draft, data: dict[str, Any], at: object) -> None:
    requests = data.get("toolRequests")
    calls = tuple(
        ToolCall(
            id=text_of(request.get("toolCallId")),
            name=text_of(request.get("name")),
            arguments=text_of(request.get("arguments") if request.get("arguments") is not None else {}),
        )
        for request in (requests if isinstance(requests, list) else [])
        if isinstance(request, dict)
    )
    draft.answered(
        Message(
            role="assistant",
            content=text_of(data.get("content")),
            reasoning=text_of(data.get("reasoningText")) or None,
            tool_calls=calls,
        ),
        model=text_of(data.get("model")) or None,
        started_at=moment(at),
    )


def _outcome(draft: Draft, data: dict[str, Any]) -> None:
    result, error = data.get("result"), data.get("error")
    told = result.get("content") if isinstance(result, dict) else result
    if told is None:
        told = error.get("message") if isinstance(error, dict) else error
    success = data.get("success")
    observation = Observation(shown=text_of(told), ok=success if isinstance(success, bool) else None)
    if not draft.observed(observation, text_of(data.get("toolCallId"))):
        draft.left_out["outcomes_of_no_call"] += 1
