"""Items of OpenAI's Responses API: a message, a thought, a call or what came of it, each for itself."""

from collections import Counter
from typing import Any

from patchgym.records import Message, ToolCall
from patchgym.traces.content import assistant, parts_of
from patchgym.traces.intake import Intake, text_of
from patchgym.traces.values import mapping, string

_CALLS = frozenset(
    {
        "function_call",
        "custom_tool_call",
        "local_shell_call",
        "tool_search_call",
        "web_search_call",
        "image_generation_call",
        "code_interpreter_call",
        "mcp_call",
    }
)
_OUTPUTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output"}
)
_ROLES = {"user": "user", "system": "system", "developer": "system"}


def is_output(item: dict[str, Any]) -> bool:
    """Whether an item says what came of a call."""
    return str(item.get("type")) in _OUTPUTS


def said(item: dict[str, Any], number: int, intake: Intake, left_out: Counter[str]) -> Message | None:
    """What a model said in an item, as (part of) an answer: text, thoughts or a call; None where the item is none of
    these. ``number`` names calls that have no id."""
    kind = str(item.get("type"))
    if kind == "reasoning":
        thoughts = [*_texts(item.get("summary"), intake, left_out), *_texts(item.get("content"), intake, left_out)]
        if string(item.get("encrypted_content")):
            left_out["encrypted_reasoning"] += 1
        return Message(role="assistant", content="", reasoning="\n".join(thoughts) or None)
    if kind == "message" and item.get("role") == "assistant":
        return assistant(parts_of(item.get("content"), intake, left_out))
    if kind in _CALLS:
        return Message(role="assistant", content="", tool_calls=(_call(item, number),))
    return None


def given(item: dict[str, Any], intake: Intake, left_out: Counter[str]) -> Message | None:
    """What a model was given in an item; None where it was nothing of that."""
    role = str(item.get("role"))
    if item.get("type") not in ("message", "agent_message", None) or (role not in _ROLES and "author" not in item):
        return None
    parts = parts_of(item.get("content"), intake, left_out)
    return Message(
        role="system" if _ROLES.get(role) == "system" else "user",
        content=parts.content,
        attachments=tuple(parts.attachments),
    )


def _texts(value: object, intake: Intake, left_out: Counter[str]) -> list[str]:
    parts = parts_of(value, intake, left_out)
    return [*parts.text, *parts.thoughts]


def _call(item: dict[str, Any], number: int) -> ToolCall:
    """The call of an item. What a tool takes as bare text is its argument ``input``."""
    kind = str(item["type"])
    name = string(item.get("name")) or kind.removesuffix("_call")
    if namespace := string(item.get("namespace")):
        name = f"{namespace}.{name}"
    if kind == "custom_tool_call":
        arguments = text_of({"input": text_of(item.get("input"))})
    elif "action" in item:
        arguments = text_of(mapping(item["action"]))
    elif kind in ("image_generation_call", "code_interpreter_call"):
        kept = {key: item[key] for key in ("revised_prompt", "code") if item.get(key) is not None}
        arguments = text_of(kept)
    else:
        arguments = text_of(item.get("arguments")) or "{}"
    return ToolCall(
        id=string(item.get("call_id")) or string(item.get("id")) or f"call-{number}", name=name, arguments=arguments
    )
