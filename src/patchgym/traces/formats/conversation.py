"""A list of chat messages, in any of the usual dialects, told to a draft."""

import json
from collections import deque
from collections.abc import Sequence
from typing import Any, Literal

from patchgym.records import Action, Attachment, Message, Observation, ToolCall, ToolSpec, Usage
from patchgym.traces.content import Parts, parts_of
from patchgym.traces.draft import Draft
from patchgym.traces.formats.textcalls import exit_code_in, fenced_command, xml_calls
from patchgym.traces.intake import Intake, count_of, moment, text_of
from patchgym.traces.values import count_kind

_Role = Literal["system", "user", "assistant", "tool"]
_ROLES: dict[str, _Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "agent": "assistant",
    "tool": "tool",
    "function": "tool",
    "observation": "tool",
    "environment": "tool",
}
_CONTENT = ("content", "text", "value", "system_prompt")
_REASONING = ("reasoning_content", "reasoning", "thinking")
_CALLS = ("tool_calls", "function_call", "tool_call_id")
_READ = frozenset({"role", "from", "type", *_CONTENT, *_REASONING, *_CALLS, "name", "timestamp", "usage"})


class Conversation:
    """Reads messages one after the other. Calls and outcomes without an id are matched in their order; of calls that
    are written as text, the next message is the outcome."""

    def __init__(self, draft: Draft, intake: Intake) -> None:
        self._draft, self._intake = draft, intake
        self._waiting: deque[str] = deque()
        self._asked_in_text = False
        self._unnamed = 0

    def read(self, messages: Sequence[object]) -> None:
        """Tell the draft every message. What is no message is counted."""
        for position, message in enumerate(messages):
            if not isinstance(message, dict):
                self._draft.left_out["messages_that_are_no_objects"] += 1
                continue
            following = messages[position + 1] if position + 1 < len(messages) else None
            self._message(message, following if isinstance(following, dict) else {})

    def _message(self, message: dict[str, Any], following: dict[str, Any]) -> None:
        name = text_of(message.get("role") or message.get("from")).lower()
        role = _ROLES.get(name)
        if role is None:
            self._draft.left_out[f"role_{name[:40] or 'missing'}"] += 1
            return
        self._draft.left_out.update(
            f"message_{key}" for key in message if key not in _READ and message[key] not in (None, "", [], {})
        )
        parts = self._content(message)
        text, attachments = parts.content, tuple(parts.attachments)
        for part in (*parts.calls, *parts.results):
            count_kind(self._draft.left_out, "content", part.get("type") or "call")
        if role == "assistant":
            self._answer(message, parts, following)
        elif role == "tool":
            self._told_by_tool(message, text, attachments)
        elif role == "user" and self._asked_in_text:
            self._observed(text, None, Message(role="user", content=text, attachments=attachments))
        else:
            self._draft.given(Message(role=role, content=text, attachments=attachments))

    def _content(self, message: dict[str, Any]) -> Parts:
        value = next((message[key] for key in _CONTENT if message.get(key) not in (None, "")), None)
        return parts_of(value, self._intake, self._draft.left_out)

    def _answer(self, message: dict[str, Any], parts: Parts, following: dict[str, Any]) -> None:
        text = parts.content
        calls = self._calls(message)
        in_text: list[Action] = [] if calls else xml_calls(text)
        if not calls and not in_text and _ROLES.get(text_of(following.get("role") or following.get("from"))) == "user":
            command = fenced_command(text, self._content(following).content)
            in_text = [command] if command else []
        beside = next((message[key] for key in _REASONING if message.get(key)), None)
        thoughts = parts_of(beside, self._intake, self._draft.left_out)
        self._draft.answered(
            Message(
                role="assistant",
                content=text,
                reasoning="\n".join([*thoughts.text, *thoughts.thoughts, *parts.thoughts]) or None,
                tool_calls=calls,
                attachments=tuple(parts.attachments),
            ),
            None if calls else in_text,
            usage=usage_of(message.get("usage")),
            started_at=moment(message.get("timestamp")),
        )
        self._waiting = deque(call.id for call in calls)
        self._asked_in_text = bool(in_text)

    def _calls(self, message: dict[str, Any]) -> tuple[ToolCall, ...]:
        found = unpacked(message.get("tool_calls")) or []
        if not found and isinstance(message.get("function_call"), dict):
            found = [{"function": message["function_call"]}]
        calls: list[ToolCall] = []
        for item in found if isinstance(found, list) else [found]:
            function = item.get("function", item) if isinstance(item, dict) else None
            if not isinstance(function, dict) or not function.get("name"):
                self._draft.left_out["calls_without_a_name"] += 1
                continue
            arguments = function.get("arguments", function.get("input", function.get("parameters")))
            calls.append(
                ToolCall(
                    id=self._id(item.get("id") or item.get("call_id")),
                    name=text_of(function["name"]),
                    arguments="{}" if arguments is None else text_of(arguments),
                )
            )
        return tuple(calls)

    def _id(self, value: object) -> str:
        if value:
            return text_of(value)
        self._unnamed += 1
        return f"unnamed-{self._unnamed}"

    def _told_by_tool(self, message: dict[str, Any], text: str, attachments: tuple[Attachment, ...]) -> None:
        call = text_of(message.get("tool_call_id")) or None
        if call is None and self._waiting:
            call = self._waiting[0]
        if call is None and not self._asked_in_text:
            self._draft.left_out["outcomes_of_no_call"] += 1
            return
        if call is not None and call in self._waiting:
            self._waiting.remove(call)
        self._observed(text, call, Message(role="tool", content=text, tool_call_id=call, attachments=attachments))

    def _observed(self, text: str, call: str | None, message: Message) -> None:
        self._asked_in_text = False
        observation = Observation(shown=text, exit_code=exit_code_in(text))
        if not self._draft.observed(observation, call, message):
            self._draft.left_out["outcomes_of_no_call"] += 1
            self._draft.given(message)


def unpacked(value: object) -> Any:
    """What JSON text says, or a value as it is; None where the text is no JSON."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def tools_of(value: object) -> tuple[ToolSpec, ...]:
    """Tools as OpenAI's interfaces and their likes describe them; those without a name are left out."""
    found: list[ToolSpec] = []
    items = unpacked(value)
    for item in items if isinstance(items, list) else []:
        function = item.get("function", item) if isinstance(item, dict) else None
        if isinstance(function, dict) and function.get("name"):
            parameters = unpacked(function.get("parameters", function.get("input_schema")))
            found.append(
                ToolSpec(
                    name=text_of(function["name"]),
                    description=text_of(function.get("description")),
                    parameters=parameters if isinstance(parameters, dict) else {},
                )
            )
    return tuple(found)


def usage_of(value: object) -> Usage | None:
    """Token counts as OpenAI's interfaces tell them; None where they tell none."""
    if not isinstance(value, dict):
        return None
    given = count_of(value.get("prompt_tokens", value.get("input_tokens")))
    sampled = count_of(value.get("completion_tokens", value.get("output_tokens")))
    details = value.get("prompt_tokens_details", value.get("input_tokens_details"))
    cached = count_of(details.get("cached_tokens")) if isinstance(details, dict) else None
    if given is None or sampled is None:
        return None
    return Usage(prompt_tokens=given, sampled_tokens=sampled, cached_tokens=cached)
