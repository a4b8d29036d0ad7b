"""Rows that hold a response of OpenAI's Responses interface (NeMo Gym writes them), as chat messages."""

from collections.abc import Mapping
from typing import Any

from patchgym.traces.formats.conversation import unpacked
from patchgym.traces.intake import text_of


def messages_of_response(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any] | None]:
    """The messages that a row's ``response`` and what it was asked with amount to, and the row with the task, the
    model and the tools beside its own columns; None for the messages where there is no output."""
    response = row["response"]
    asked = row.get("responses_create_params")
    asked = asked if isinstance(asked, dict) else {}
    output = response.get("output")
    if not isinstance(output, list):
        return row, None
    given = asked.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given if isinstance(given, list) else []
    instructions = asked.get("instructions")
    messages: list[Any] = [{"role": "system", "content": instructions}] if isinstance(instructions, str) else []
    messages += _messages([*items, *output])
    metadata = asked.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    instance = unpacked(metadata.get("instance_dict"))
    instance = instance if isinstance(instance, dict) else {}
    agent = row.get("agent_ref")
    told = {
        "instance_id": metadata.get("instance_id") or instance.get("instance_id"),
        "repo": instance.get("repo"),
        "base_commit": instance.get("base_commit"),
        "model": response.get("model") or asked.get("model"),
        "tools": asked.get("tools") or response.get("tools"),
        "agent": agent.get("name") if isinstance(agent, dict) else None,
        "seconds": row.get("agent_run_time"),
    }
    own = {key: value for key, value in row.items() if key not in ("agent_ref", "agent_run_time")}
    return {**own, **{key: value for key, value in told.items() if value is not None}}, messages


def _messages(items: list[Any]) -> list[Any]:
    """Items as messages: calls belong to the answer that they follow, thoughts to the one that follows them."""
    messages: list[Any] = []
    thoughts: list[str] = []
    for item in items:
        kind = item.get("type", "message") if isinstance(item, dict) else ""
        if kind == "message":
            messages.append({"role": item.get("role"), "content": item.get("content")})
            if item.get("role") == "assistant" and thoughts:
                messages[-1]["reasoning"] = "\n".join(thoughts)
                thoughts = []
        elif kind == "reasoning":
            thoughts += [text for text in map(_thought, item.get("summary") or item.get("content") or []) if text]
        elif kind == "function_call":
            if not messages or messages[-1].get("role") != "assistant" or thoughts:
                messages.append({"role": "assistant", "content": "", "reasoning": "\n".join(thoughts) or None})
                thoughts = []
            call = {"id": item.get("call_id"), "function": {key: item.get(key) for key in ("name", "arguments")}}
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            messages.append(
                {"role": "tool", "tool_call_id": item.get("call_id"), "content": text_of(item.get("output"))}
            )
        else:
            messages.append({"role": kind or "missing"})  # counted by the name of its kind
    return messages


def _thought(part: object) -> str:
    return text_of(part.get("text")) if isinstance(part, dict) else text_of(part)
