"""OpenCode's storage: a folder with ``session/PROJECT/SESSION.json``, ``message/SESSION/*.json`` and
``part/MESSAGE/*.json``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, SpawnedBy, ToolCall, Trajectory, Usage
from patchgym.traces.draft import Draft
from patchgym.traces.intake import Intake, count_of, moment, text_of

NAME = "opencode"
ABOUT = "the storage folder of OpenCode (session, message and part)"
_MESSAGE = {"id", "sessionID", "role", "time", "agent", "model", "modelID", "providerID", "parentID", "tokens", "mode"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return path.is_dir() and all((path / name).is_dir() for name in ("session", "message", "part"))


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    for file in sorted((path / "session").rglob("*.json")):
        session = intake.document(file)
        if isinstance(session, dict) and session.get("id"):
            found = _session(path, session, file, intake)
            if found is not None:
                yield found
        elif session is not None:
            intake.damaged("no_session", file.name)


def _session(root: Path, session: dict[str, Any], file: Path, intake: Intake) -> Trajectory | None:
    name, parent = text_of(session["id"]), text_of(session.get("parentID"))
    draft = Draft(
        id=name,
        format=NAME,
        file=file.name,
        session=name,
        agent=f"{NAME} {text_of(session.get('version'))}".strip(),
        spawned_by=SpawnedBy(trajectory=parent, step=None) if parent else None,
    )
    messages = list(_objects(root / "message", name, intake))
    for message in sorted(messages, key=_created):
        _message(draft, message, list(_objects(root / "part", text_of(message.get("id")), intake)))
    return draft.finished() if draft.steps else None


def _objects(folder: Path, name: str, intake: Intake) -> Iterator[dict[str, Any]]:
    """The objects below one name of a folder, in the order of their files. A name is never a path."""
    inner = folder / name
    if not name or inner.parent != folder or name in (".", "..") or "/" in name or "\0" in name or not inner.is_dir():
        return
    for file in sorted(inner.glob("*.json")):
        found = intake.document(file)
        if isinstance(found, dict):
            yield found
        elif found is not None:
            intake.damaged("no_object", file.name)


def _created(message: dict[str, Any]) -> float:
    times = message.get("time")
    created = times.get("created") if isinstance(times, dict) else None
    return created if isinstance(created, int | float) else 0.0


def _message(draft: Draft, message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
    texts = [text_of(part.get("text")) for part in parts if part.get("type") == "text"]
    thoughts = [text_of(part.get("text")) for part in parts if part.get("type") == "reasoning"]
    tools = [part for part in parts if part.get("type") == "tool"]
    draft.left_out.update(f"message_{key}" for key in message if key not in _MESSAGE)
    for part in parts:
        if part.get("type") not in ("text", "reasoning", "tool", "step-start", "step-finish"):
            draft.left_out[f"part_{text_of(part.get('type')) or 'without_type'}"] += 1
    if message.get("role") == "user":
        draft.given(Message(role="user", content="\n".join(texts)))
        return
    model = message.get("model")
    draft.answered(
        Message(
            role="assistant",
            content="\n".join(texts),
            reasoning="\n".join(thoughts) or None,
            tool_calls=tuple(_call(part) for part in tools),
        ),
        model=text_of(message.get("modelID") or (model.get("modelID") if isinstance(model, dict) else None)) or None,
        usage=_usage(parts),
        started_at=moment(_created(message) or None),
    )
    for part in tools:
        _outcome(draft, part)


def _state(part: dict[str, Any]) -> dict[str, Any]:
    state = part.get("state")
    return state if isinstance(state, dict) else {}


def _call(part: dict[str, Any]) -> ToolCall:
    asked = _state(part).get("input")
    return ToolCall(
        id=text_of(part.get("callID") or part.get("id")),
        name=text_of(part.get("tool")),
        arguments=text_of(asked if asked is not None else {}),
    )


def _usage(parts: list[dict[str, Any]]) -> Usage | None:
    """The token counts of the model's calls that made a message, added up."""
    told = [part["tokens"] for part in parts if isinstance(part.get("tokens"), dict)]
    given = [count_of(tokens.get("input")) for tokens in told]
    sampled = [count_of(tokens.get("output")) for tokens in told]
    known = [(one, other) for one, other in zip(given, sampled, strict=True) if one is not None and other is not None]
    if not known or len(known) < len(told):
        return None
    return Usage(prompt_tokens=sum(one for one, _ in known), sampled_tokens=sum(other for _, other in known))


def _outcome(draft: Draft, part: dict[str, Any]) -> None:
    state = _state(part)
    if state.get("status") not in ("completed", "error"):
        return
    metadata = state.get("metadata")
    code = metadata.get("exit") if isinstance(metadata, dict) else None
    draft.observed(
        Observation(
            shown=text_of(state.get("output") if state.get("output") is not None else state.get("error")),
            ok=state["status"] == "completed",
            exit_code=code if isinstance(code, int) and not isinstance(code, bool) else None,
            seconds=_seconds(state.get("time")),
        ),
        text_of(part.get("callID") or part.get("id")),
    )


def _seconds(times: object) -> float | None:
    began, ended = (times.get("start"), times.get("end")) if isinstance(times, dict) else (None, None)
    if not isinstance(began, int | float) or not isinstance(ended, int | float) or ended < began:
        return None
    return (ended - began) / 1000
