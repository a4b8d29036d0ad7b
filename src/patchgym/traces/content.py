"""The parts that a message is made of, in the shapes that the providers give them."""

import base64
import binascii
import mimetypes
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote_to_bytes

from patchgym.records import Attachment, Message, ToolCall, ToolSpec, Usage
from patchgym.traces.intake import Intake, count_of
from patchgym.traces.jsontext import text_of
from patchgym.traces.values import count_kind, mapping, objects, string

_TEXTS = frozenset({"text", "input_text", "output_text", "summary_text", "reasoning_text", "refusal"})
_MEDIA = frozenset(
    {"image", "document", "audio", "video", "image_url", "input_image", "input_file", "input_audio", "file"}
)
_PARAMETERS = ("parameters", "input_schema", "inputSchema", "parametersJsonSchema")
_DATA_URI = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.DOTALL)
_MEDIA_TYPE = re.compile(r"[\w.+-]{1,60}/[\w.+*-]{1,100}")


@dataclass
class Parts:
    """What a message holds: ``calls`` and ``results`` are the parts that ask for a tool, or say what came of one."""

    text: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    @property
    def content(self) -> str:
        """Its text."""
        return "\n".join(self.text)

    @property
    def reasoning(self) -> str | None:
        """Its thoughts."""
        return "\n".join(self.thoughts) or None


def parts_of(content: object, intake: Intake, left_out: Counter[str]) -> Parts:
    """What a message's content holds, be it a text, a part or a list of parts. Parts that have no place are counted in
    ``left_out`` by their kind."""
    parts = Parts()
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            parts.text += [part] if part else []
        elif isinstance(part, dict):
            _take(part, parts, intake, left_out)
        elif part is not None:
            left_out["content_that_is_no_part"] += 1
    return parts


def text_and_more(content: object, intake: Intake, left_out: Counter[str]) -> tuple[str, tuple[Attachment, ...]]:
    """The text of a message's content and its attachments, where thoughts and calls stand elsewhere. What stands here
    all the same is counted."""
    parts = parts_of(content, intake, left_out)
    for part in (*parts.calls, *parts.results):
        count_kind(left_out, "content", part.get("type") or "call")
    if parts.thoughts:
        left_out["content_thoughts"] += len(parts.thoughts)
    return parts.content, tuple(parts.attachments)


def _take(part: dict[str, Any], parts: Parts, intake: Intake, left_out: Counter[str]) -> None:
    kind = str(part.get("type", ""))
    if kind in ("thinking", "reasoning") or part.get("thought") is True:
        _think(part, parts, left_out)
    elif kind.lower() in _TEXTS or (not kind and isinstance(part.get("text"), str)):
        text = part.get("text", part.get("refusal"))
        parts.text += [text_of(text)] if text else []
    elif kind in _MEDIA or "image_urls" in part or "inlineData" in part or "fileData" in part:
        parts.attachments += _attachments(part, kind, intake, left_out)
    elif kind in ("tool_use", "server_tool_use", "mcp_tool_use") or "functionCall" in part:
        parts.calls.append(part)
    elif kind.endswith("tool_result") or "functionResponse" in part:
        parts.results.append(part)
    elif kind == "redacted_thinking" or kind == "encrypted_content":
        left_out["encrypted_reasoning"] += 1
    else:
        count_kind(left_out, "content", kind or "unnamed")


def _think(part: dict[str, Any], parts: Parts, left_out: Counter[str]) -> None:
    text = part.get("thinking", part.get("reasoning", part.get("text")))
    if part.get("redacted") is True:
        left_out["encrypted_reasoning"] += 1
        text = part.get("summary")
    parts.thoughts += [text_of(text)] if text else []


def _attachments(part: dict[str, Any], kind: str, intake: Intake, left_out: Counter[str]) -> list[Attachment]:
    """The images or documents of a part."""
    source = mapping(part.get("source")) or mapping(part.get("file")) or mapping(part.get("input_audio"))
    inline, at = mapping(part.get("inlineData")), mapping(part.get("fileData"))
    family = "image" if "image" in kind or not kind else kind
    if inline or (source.get("type", "base64") == "base64" and string(source.get("data"))):
        media = string(source.get("media_type")) or string(inline.get("mimeType"))
        data = source.get("data", inline.get("data"))
        return [_decoded(data if isinstance(data, str) else "", media, family, intake)]
    if source.get("type") in ("text", "content"):
        return [
            intake.attachment(string(source.get("media_type")) or "text/plain", text_of(source.get("data")).encode())
        ]
    found = []
    image = part.get("image_url")
    named = [image.get("url") if isinstance(image, dict) else image, at.get("fileUri")]
    named += [source.get("url"), source.get("file_data")]
    named += [part.get(key) for key in ("image", "document", "audio", "video", "file_data", "data")]
    named += part["image_urls"] if isinstance(part.get("image_urls"), list) else []
    for address in named:
        if isinstance(address, str) and address:
            found.append(_addressed(address, family, intake, left_out))
    media = string(source.get("media_type")) or string(part.get("mime"))
    if not found and media is not None:  # it lies elsewhere
        found.append(intake.attachment(_media_type(media, family), None))
    if not found:
        count_kind(left_out, "empty", family)
    return found


def _addressed(address: str, family: str, intake: Intake, left_out: Counter[str]) -> Attachment:
    """What an address stands for: the bytes in it, or where it names another place, something that was not kept."""
    head = _DATA_URI.match(address[:1000])
    if head is None:
        left_out["addresses_of_attachments"] += 1
        guess = mimetypes.guess_type(address.split("?")[0][-200:])[0]
        return intake.attachment(guess or f"{family}/*", None)
    if "base64" in head[2]:
        return _decoded(address[head.end() :], head[1], family, intake)
    return intake.attachment(_media_type(head[1], family), unquote_to_bytes(address[head.end() :]))


def _decoded(data: str, media_type: str | None, family: str, intake: Intake) -> Attachment:
    try:
        return intake.attachment(_media_type(media_type, family), base64.b64decode(data, validate=False))
    except (binascii.Error, ValueError):
        intake.damaged("broken_base64", family)
        return intake.attachment(_media_type(media_type, family), None)


def _media_type(value: str | None, family: str) -> str:
    return value if value is not None and _MEDIA_TYPE.fullmatch(value) else f"{family}/*"


def tool_calls_of(value: object, left_out: Counter[str], name: str = "call") -> tuple[ToolCall, ...]:
    """The tool calls of a chat message, be they nested in ``function`` or flat. One that has no id is called ``name``
    with its number."""
    calls = []
    for number, call in enumerate(objects(value)):
        function = mapping(call.get("function"))
        named = string(function.get("name")) or string(call.get("name")) or string(call.get("function"))
        if named is None:
            left_out["calls_without_a_name"] += 1
            continue
        arguments = function.get("arguments", call.get("arguments", call.get("input")))
        calls.append(
            ToolCall(
                id=string(call.get("id")) or string(call.get("call_id")) or f"{name}-{number}",
                name=named,
                arguments=text_of(arguments) or "{}",
            )
        )
    return tuple(calls)


def tool_specs(value: object) -> tuple[ToolSpec, ...]:
    """Tools as a model is told of them, be they nested in ``function`` or flat. What has no parameters is none."""
    found = []
    for tool in objects(value):
        function = mapping(tool.get("function")) or tool
        parameters = next((function[key] for key in _PARAMETERS if isinstance(function.get(key), dict)), None)
        name = string(function.get("name"))
        if name is not None and parameters is not None:
            found.append(ToolSpec(name=name, description=text_of(function.get("description")), parameters=parameters))
    return tuple(found)


def usage_of(value: object) -> Usage | None:
    """Token counts as OpenAI's APIs give them; None where one of the two is missing."""
    usage = mapping(value)
    prompt = count_of(usage.get("prompt_tokens", usage.get("input_tokens")))
    sampled = count_of(usage.get("completion_tokens", usage.get("output_tokens")))
    if prompt is None or sampled is None:
        return None
    details = mapping(usage.get("prompt_tokens_details")) or mapping(usage.get("input_tokens_details"))
    return Usage(prompt_tokens=prompt, sampled_tokens=sampled, cached_tokens=count_of(details.get("cached_tokens")))


def assistant(parts: Parts, calls: tuple[ToolCall, ...] = (), reasoning: str | None = None) -> Message:
    """An answer of a model, of its parts, its calls and what it thought."""
    thoughts = "\n".join(thought for thought in (reasoning, parts.reasoning) if thought)
    return Message(
        role="assistant",
        content=parts.content,
        reasoning=thoughts or None,
        tool_calls=calls,
        attachments=tuple(parts.attachments),
    )
