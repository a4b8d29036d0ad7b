"""Sessions of Gemini CLI: one JSON document, or since 0.40 lines of which a later one with the same ``id`` replaces an
earlier, ``$rewindTo`` takes messages back and ``$set`` changes the rest; and saved chats, which are lists of contents.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, SpawnedBy, ToolCall, Trajectory, Usage
from patchgym.traces.content import Parts, assistant, parts_of
from patchgym.traces.draft import MOST_TEXT, Draft, Mark
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, count_of, moment, open_log, text_of
from patchgym.traces.values import count_kind, mapping, objects, string

NAME = "gemini_cli"
ABOUT = "sessions of Gemini CLI (session-*.json or .jsonl), and saved chats"

_CODE = re.compile(r"^Exit Code: (\d{1,3})$", re.MULTILINE)
_SHOWN = ("output", "error", "content")
_KNOWN = {"sessionId", "projectHash", "startTime", "lastUpdated", "messages", "kind", "history", "$set", "directories"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    one = next(iter(heads_of(head)), None)
    if one is None:
        return False
    if one.listed:
        return one.has("role", "parts")
    return one.has("sessionId", "projectHash") or (one.has("history") and b'"parts"' in head and b'"role"' in head)


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    with open_log(path) as file:
        first = file.readline(1 << 16).removeprefix(b"\xef\xbb\xbf").strip()
    session = _Session(path, intake)
    if first.startswith(b"{") and first != b"{":
        for number, line in intake.lines(path):
            session.line(line, f"{path.name}, line {number}")
    else:
        document = intake.document(path)
        if isinstance(document, list):
            document = {"history": document}
        if document is None:
            return
        session.line(mapping(document), path.name)
    yield session.finished()


class _Session:
    """The lines of a session in their order; its messages as they were at last."""

    def __init__(self, path: Path, intake: Intake) -> None:
        self._path = path
        self._intake = intake
        self._about: dict[str, Any] = {}
        self._messages: dict[str, dict[str, Any]] = {}
        self._order: list[tuple[str, str]] = []  # what happened: "said" or "rewound", and to which message
        self._contents: list[dict[str, Any]] = []
        self._text = 0
        self._draft = Draft(id=path.stem, format=NAME, file=path.name)

    def line(self, line: dict[str, Any], where: str) -> None:
        """A line, or the whole document."""
        if isinstance(line.get("$rewindTo"), str):
            self._order.append(("rewound", line["$rewindTo"]))
        elif "$set" in line:
            self._change(mapping(line["$set"]), where)
        elif isinstance(line.get("id"), str) and "type" in line:
            self._said(line)
        elif "sessionId" in line or "messages" in line or "history" in line:
            self._change(line, where)
        else:
            self._intake.damaged("line_of_no_kind", where)

    def _change(self, change: dict[str, Any], where: str) -> None:
        self._about.update({key: value for key, value in change.items() if key not in ("messages", "history")})
        messages, history = (
            self._intake.whole(change[key], key, where) if change.get(key) is not None else []
            for key in ("messages", "history")
        )
        names = {text_of(one.get("id")) for one in messages}
        if isinstance(change.get("messages"), list) and self._current() - names:
            self._order.append(("compacted", ""))
        for number, message in enumerate(messages):
            self._said({**message, "id": text_of(message.get("id")) or f"message-{number}"})
        self._contents += history

    def _current(self) -> set[str]:
        return {name for kind, name in self._order if kind == "said"}

    def _said(self, message: dict[str, Any]) -> None:
        name = message["id"]
        more = len(text_of(message)) - len(text_of(self._messages.get(name)))
        if self._text + more > MOST_TEXT:
            self._intake.damaged("beyond_the_size_limit", self._path.name)
            return
        self._text += more
        if name not in self._messages or any(kind != "said" for kind, _ in self._order[self._place(name) :]):
            self._order.append(("said", name))
        self._messages[name] = message

    def _place(self, name: str) -> int:
        return next((at for at in range(len(self._order) - 1, -1, -1) if self._order[at] == ("said", name)), 0)

    def finished(self) -> Trajectory:
        """The trajectory."""
        draft = self._draft
        draft.session = string(self._about.get("sessionId"))
        draft.id = draft.session or draft.id
        draft.agent = "gemini-cli"
        if self._about.get("kind") == "subagent":
            parent = self._path.absolute().parent.name
            draft.spawned_by = SpawnedBy(trajectory=parent, step=None)
        for key in self._about.keys() - _KNOWN:
            count_kind(draft.left_out, "", key)
        places: dict[str, Mark] = {}
        for kind, name in self._order:
            if draft.full:
                self._intake.damaged("beyond_the_size_limit", self._path.name)
            elif kind == "rewound":
                draft.back_to(places.get(name, Mark(None, (), False)))
            elif kind == "compacted":
                draft.compacted()
            else:
                places[name] = draft.mark()
                self._message(self._messages[name])
        for number, content in enumerate(self._contents):
            self._content(content, number)
        return draft.finished(started_at=moment(self._about.get("startTime")))

    def _message(self, message: dict[str, Any]) -> None:
        draft, kind = self._draft, message.get("type")
        parts = parts_of(message.get("content"), self._intake, draft.left_out)
        if kind == "user":
            draft.given(Message(role="user", content=parts.content, attachments=tuple(parts.attachments)))
        elif kind == "gemini":
            self._answer(message, parts)
        else:
            count_kind(draft.left_out, "message_of_type", kind)

    def _answer(self, message: dict[str, Any], parts: Parts) -> None:
        draft, calls = self._draft, objects(message.get("toolCalls"))
        thoughts = [
            ": ".join(text_of(one[key]) for key in ("subject", "description") if one.get(key))
            for one in objects(message.get("thoughts"))
        ]
        named = [
            ToolCall(
                id=string(call.get("id")) or f"{message['id']}-{number}",
                name=string(call.get("name")) or "unnamed",
                arguments=text_of(call.get("args")) or "{}",
            )
            for number, call in enumerate(calls)
        ]
        draft.answered(
            assistant(parts, tuple(named), "\n".join(thoughts)),
            model=string(message.get("model")),
            usage=_usage(mapping(message.get("tokens"))),
            started_at=moment(message.get("timestamp")),
        )
        draft.model = draft.model or string(message.get("model"))
        for call, name in zip(calls, named, strict=True):
            if call.get("result") is not None or call.get("status") in ("error", "cancelled"):
                self._result(call, name.id)

    def _result(self, call: dict[str, Any], call_id: str) -> None:
        """What came of a call: what the model was given is the response, what its user saw ``resultDisplay``."""
        inner = parts_of(call.get("result"), self._intake, self._draft.left_out)
        texts = [_text_of_response(mapping(one.get("functionResponse"))) for one in inner.results]
        shown = "\n".join([*texts, *inner.text])
        status = call.get("status")
        code = _CODE.search(shown) if call.get("name") == "run_shell_command" else None
        seen = Observation(
            shown=shown,
            ok={"success": True, "error": False, "cancelled": False}.get(str(status)),
            exit_code=int(code[1]) if code else None,
            ending="interrupted" if status == "cancelled" else "none",
        )
        told = Message(role="tool", content=shown, tool_call_id=call_id, attachments=tuple(inner.attachments))
        self._draft.observed(seen, call_id, told)

    def _content(self, content: dict[str, Any], number: int) -> None:
        """A content of a saved chat: the model's own form."""
        draft = self._draft
        parts = parts_of(content.get("parts"), self._intake, draft.left_out)
        if content.get("role") == "model":
            calls = [mapping(part.get("functionCall")) for part in parts.calls]
            named = tuple(
                ToolCall(
                    id=string(call.get("id")) or f"content-{number}-{at}",
                    name=string(call.get("name")) or "unnamed",
                    arguments=text_of(call.get("args")) or "{}",
                )
                for at, call in enumerate(calls)
            )
            draft.answered(assistant(parts, named))
            return
        for part in parts.results:
            response = mapping(part.get("functionResponse"))
            call_id = string(response.get("id"))
            if call_id not in draft.waiting:
                call_id = next(iter(draft.waiting), "")
            if not draft.observed(Observation(shown=_text_of_response(response)), call_id):
                draft.left_out["results_without_a_call"] += 1
        if parts.text or parts.attachments:
            draft.given(Message(role="user", content=parts.content, attachments=tuple(parts.attachments)))


def _text_of_response(response: dict[str, Any]) -> str:
    told = response.get("response")
    if isinstance(told, dict):
        for key in _SHOWN:
            if isinstance(told.get(key), str):
                return str(told[key])
    return text_of(told)


def _usage(tokens: dict[str, Any]) -> Usage | None:
    """Token counts; where nothing was counted all of them are 0."""
    prompt, sampled = count_of(tokens.get("input")), count_of(tokens.get("output"))
    if not prompt or sampled is None:
        return None
    thought = count_of(tokens.get("thoughts")) or 0
    return Usage(prompt_tokens=prompt, sampled_tokens=sampled + thought, cached_tokens=count_of(tokens.get("cached")))
