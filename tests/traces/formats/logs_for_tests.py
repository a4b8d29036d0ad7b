"""One made-up conversation written as a log of each format, in the way that the agent itself would."""

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.traces.imports_for_tests import Turn

WHEN = "2026-01-02T03:04:05.678Z"


def _lines(lines: Sequence[object]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _id(turn: int, call: int) -> str:
    return f"call-{turn}-{call}"


def _chat_calls(turn: Turn, at: int) -> list[dict[str, Any]]:
    return [
        {
            "id": _id(at, number),
            "type": "function",
            "function": {"name": call.tool, "arguments": json.dumps(call.arguments)},
        }
        for number, call in enumerate(turn.calls)
    ]


def claude_code(turns: Sequence[Turn]) -> bytes:
    """A session: an answer is a line a part, and what came of parallel calls is linked to the part that asked."""
    lines: list[dict[str, Any]] = []

    def line(kind: str, message: dict[str, Any], parent: str | None = None) -> str:
        name = f"line-{len(lines)}"
        lines.append(
            {
                "type": kind,
                "uuid": name,
                "parentUuid": parent or (lines[-1]["uuid"] if lines else None),
                "isSidechain": False,
                "sessionId": "session-1",
                "version": "2.1.0",
                "timestamp": WHEN,
                "message": message,
            }
        )
        return name

    for at, turn in enumerate(turns):
        line("user", {"role": "user", "content": turn.asked})
        parts: list[dict[str, Any]] = [
            {"type": "thinking", "thinking": turn.thought, "signature": "s"},
            {"type": "text", "text": turn.text},
        ]
        for number, call in enumerate(turn.calls):
            parts.append({"type": "tool_use", "id": _id(at, number), "name": call.tool, "input": call.arguments})
        usage = {"input_tokens": 3, "cache_read_input_tokens": 5, "output_tokens": 7}
        names = [
            line(
                "assistant",
                {"id": f"msg-{at}", "role": "assistant", "model": "m", "content": [part], "usage": usage},
            )
            for part in parts
        ]
        for number, call in enumerate(turn.calls):
            result = {"type": "tool_result", "tool_use_id": _id(at, number), "content": call.shown, "is_error": False}
            line("user", {"role": "user", "content": [result]}, names[2 + number])
    return _lines(lines)


def codex(turns: Sequence[Turn]) -> bytes:
    """A rollout, in which each answer's token counts come before its items."""
    lines: list[object] = [
        {
            "timestamp": WHEN,
            "type": "session_meta",
            "payload": {"id": "session-1", "cli_version": "0.58.0", "git": {"commit_hash": "c" * 40}},
        },
        {"timestamp": WHEN, "type": "turn_context", "payload": {"model": "m"}},
    ]

    def item(payload: dict[str, Any]) -> None:
        lines.append({"timestamp": WHEN, "type": "response_item", "payload": payload})

    for at, turn in enumerate(turns):
        item({"type": "message", "role": "user", "content": [{"type": "input_text", "text": turn.asked}]})
        counts = {"input_tokens": 10 + at, "cached_input_tokens": 5, "output_tokens": 7}
        info = {"last_token_usage": counts, "total_token_usage": {"total_tokens": at}}
        for _ in range(2):
            lines.append({"timestamp": WHEN, "type": "event_msg", "payload": {"type": "token_count", "info": info}})
        item({"type": "reasoning", "summary": [{"type": "summary_text", "text": turn.thought}]})
        item({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": turn.text}]})
        for number, call in enumerate(turn.calls):
            arguments = json.dumps(call.arguments)
            item({"type": "function_call", "name": call.tool, "call_id": _id(at, number), "arguments": arguments})
        for number, call in enumerate(turn.calls):
            item({"type": "function_call_output", "call_id": _id(at, number), "output": call.shown})
    return _lines(lines)


def gemini_messages(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The messages of a session of Gemini CLI."""
    for at, turn in enumerate(turns):
        yield {"id": f"u{at}", "timestamp": WHEN, "type": "user", "content": [{"text": turn.asked}]}
        calls = [
            {
                "id": _id(at, number),
                "name": call.tool,
                "args": call.arguments,
                "status": "success",
                "result": [{"functionResponse": {"name": call.tool, "response": {"output": call.shown}}}],
            }
            for number, call in enumerate(turn.calls)
        ]
        yield {
            "id": f"a{at}",
            "timestamp": WHEN,
            "type": "gemini",
            "model": "m",
            "content": turn.text,
            "thoughts": [{"subject": "", "description": turn.thought}],
            "toolCalls": calls,
            "tokens": {"input": 10, "output": 3, "thoughts": 4, "cached": 5},
        }


_GEMINI = {"sessionId": "session-1", "projectHash": "0" * 64, "startTime": WHEN, "lastUpdated": WHEN}


def gemini_json(turns: Sequence[Turn]) -> bytes:
    """A session as a document."""
    return json.dumps({**_GEMINI, "messages": list(gemini_messages(turns))}, indent=2).encode()


def gemini_jsonl(turns: Sequence[Turn]) -> bytes:
    """A session as lines, in which each answer is told once without its calls and then again with them."""
    lines: list[object] = [_GEMINI]
    for message in gemini_messages(turns):
        if message.get("toolCalls"):
            lines.append({**message, "toolCalls": []})
        lines += [message, {"$set": {"lastUpdated": WHEN}}]
    return _lines(lines)


def mini_swe_agent(turns: Sequence[Turn]) -> bytes:
    """A trajectory of version 2."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": "You act."}]
    for at, turn in enumerate(turns):
        messages.append({"role": "user", "content": turn.asked})
        extra = {"response": {"model": "m", "usage": {"prompt_tokens": 10, "completion_tokens": 7}}, "timestamp": 1.5e9}
        answer = {"role": "assistant", "content": turn.text, "reasoning_content": turn.thought, "extra": extra}
        messages.append({**answer, "tool_calls": _chat_calls(turn, at) or None})
        for number, call in enumerate(turn.calls):
            extra = {"raw_output": call.shown, "returncode": 0, "exception_info": ""}
            messages.append({"role": "tool", "content": call.shown, "tool_call_id": _id(at, number), "extra": extra})
    messages.append({"role": "exit", "content": "", "extra": {"exit_status": "Submitted", "submission": ""}})
    info = {"exit_status": "Submitted", "submission": "diff --git a/x b/x\n", "mini_version": "2.2.7"}
    return json.dumps({"info": info, "messages": messages, "trajectory_format": "mini-swe-agent-1.1"}).encode()


def openhands_v0(turns: Sequence[Turn]) -> bytes:
    """A list of events of version 0."""
    events: list[dict[str, Any]] = []

    def event(**values: object) -> int:
        events.append({"id": len(events), "timestamp": "2026-01-02T03:04:05.678", **values})
        return len(events) - 1

    for at, turn in enumerate(turns):
        event(source="user", action="message", args={"content": turn.asked, "image_urls": None})
        if not turn.calls:
            event(source="agent", action="message", args={"content": turn.text, "wait_for_response": True})
        message = {"role": "assistant", "content": turn.text, "tool_calls": _chat_calls(turn, at)}
        usage = {"prompt_tokens": 10, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 5}}
        response = {"id": f"response-{at}", "model": "m", "choices": [{"message": message}], "usage": usage}
        for number, call in enumerate(turn.calls):
            about = {"function_name": call.tool, "tool_call_id": _id(at, number), "model_response": response}
            cause = event(source="agent", action="run", args={"command": "x"}, tool_call_metadata=about)
            event(source="agent", observation="run", content=call.shown, cause=cause, tool_call_metadata=about)
    return json.dumps(events).encode()


def openhands_v1_events(turns: Sequence[Turn]) -> Iterator[dict[str, Any]]:
    """The events of version 1."""
    number = 0

    def event(kind: str, **values: object) -> dict[str, Any]:
        nonlocal number
        number += 1
        return {"kind": kind, "id": f"{number:032x}", "timestamp": "2026-01-02T03:04:05.678", **values}

    for at, turn in enumerate(turns):
        asked = {"role": "user", "content": [{"type": "text", "text": turn.asked}]}
        yield event("MessageEvent", source="user", llm_message=asked)
        text = [{"type": "text", "text": turn.text}]
        if not turn.calls:
            said = {"role": "assistant", "content": text, "reasoning_content": turn.thought}
            yield event("MessageEvent", source="agent", llm_message=said, llm_response_id=f"response-{at}")
        for place, call in enumerate(turn.calls):
            first = {"thought": text, "reasoning_content": turn.thought} if place == 0 else {"thought": []}
            called = {"id": _id(at, place), "name": call.tool, "arguments": json.dumps(call.arguments)}
            names = {"tool_name": call.tool, "tool_call_id": _id(at, place)}
            response = {"llm_response_id": f"response-{at}", "action": {"kind": "X"}, "tool_call": called}
            yield event("ActionEvent", source="agent", **first, **names, **response)
        for place, call in enumerate(turn.calls):
            names = {"tool_name": call.tool, "tool_call_id": _id(at, place), "action_id": "x"}
            seen = {"kind": "TerminalObservation", "content": [{"type": "text", "text": call.shown}], "exit_code": 0}
            yield event("ObservationEvent", source="environment", **names, observation=seen)


def openhands_v1(turns: Sequence[Turn]) -> bytes:
    """A list of events of version 1."""
    return json.dumps(list(openhands_v1_events(turns))).encode()


def inspect_sample(turns: Sequence[Turn]) -> dict[str, Any]:
    """A sample of a log of Inspect. What the model said stands in the attachments."""
    messages: list[dict[str, Any]] = []
    events: list[dict[str, Any]] = []
    attachments: dict[str, str] = {}
    for at, turn in enumerate(turns):
        key = f"{at:032x}"
        attachments[key] = turn.text
        calls = [
            {"id": _id(at, number), "function": call.tool, "arguments": call.arguments}
            for number, call in enumerate(turn.calls)
        ]
        content = [{"type": "reasoning", "reasoning": turn.thought}, {"type": "text", "text": f"attachment://{key}"}]
        answer = {"role": "assistant", "id": f"answer-{at}", "content": content, "tool_calls": calls}
        usage = {"input_tokens": 5, "output_tokens": 7, "input_tokens_cache_read": 5}
        output = {"model": "m", "choices": [{"message": answer}], "usage": usage, "time": 1.5}
        events.append({"event": "model", "timestamp": WHEN, "model": "m", "input": [], "output": output})
        messages += [{"role": "user", "content": turn.asked}, answer]
        for number, call in enumerate(turn.calls):
            events.append({"event": "tool", "timestamp": WHEN, "id": _id(at, number), "working_time": 0.5})
            messages.append({"role": "tool", "tool_call_id": _id(at, number), "content": call.shown})
    return {"id": 1, "epoch": 1, "input": "", "messages": messages, "events": events, "attachments": attachments}


_INSPECT = {"version": 2, "status": "success", "eval": {"task": "t", "model": "m", "run_id": "r"}, "plan": {}}


def inspect_json(turns: Sequence[Turn]) -> bytes:
    """A log as a document."""
    return json.dumps({**_INSPECT, "samples": [inspect_sample(turns)]}).encode()


def inspect_eval(turns: Sequence[Turn]) -> bytes:
    """A log as a zip."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(_INSPECT))
        archive.writestr("samples/1_epoch_1.json", json.dumps(inspect_sample(turns)))
        archive.writestr("header.json", json.dumps(_INSPECT))
    return held.getvalue()


def swe_agent(turns: Sequence[Turn]) -> bytes:
    """A trajectory of SWE-agent with native calls."""
    history: list[dict[str, Any]] = [{"role": "system", "content": "You act.", "agent": "main"}]
    steps = []
    for at, turn in enumerate(turns):
        history.append({"role": "user", "content": turn.asked, "agent": "main"})
        history.append(
            {"role": "assistant", "content": turn.text, "agent": "main", "tool_calls": _chat_calls(turn, at) or None}
        )
        for number, call in enumerate(turn.calls):
            ids = [_id(at, number)]
            history.append({"role": "tool", "content": call.shown, "agent": "main", "tool_call_ids": ids})
        observation = turn.calls[0].shown if turn.calls else ""
        steps.append({"action": "", "observation": observation, "response": turn.text, "state": {}, "thought": ""})
    info = {"exit_status": "submitted", "submission": "diff --git a/x b/x\n"}
    config = json.dumps({"agent": {"model": {"name": "m"}}})
    document = {"trajectory": steps, "history": history, "info": info, "replay_config": config}
    return json.dumps({"environment": "main", **document}).encode()


@dataclass(frozen=True)
class Kind:
    """A way of writing logs: the format that it is of, and whether it tells thoughts and token counts."""

    format: str
    ending: str
    write: Callable[[Sequence[Turn]], bytes]
    thoughts: bool = True
    counts: bool = True


KINDS = {
    "claude_code": Kind("claude_code", ".jsonl", claude_code),
    "codex": Kind("codex", ".jsonl", codex),
    "gemini_json": Kind("gemini_cli", ".json", gemini_json),
    "gemini_jsonl": Kind("gemini_cli", ".jsonl", gemini_jsonl),
    "mini_swe_agent": Kind("mini_swe_agent", ".traj.json", mini_swe_agent),
    "openhands_v0": Kind("openhands", ".json", openhands_v0, thoughts=False, counts=False),
    "openhands_v1": Kind("openhands", ".json", openhands_v1, counts=False),
    "swe_agent": Kind("swe_agent", ".traj", swe_agent, thoughts=False, counts=False),
    "inspect_json": Kind("inspect", ".json", inspect_json),
    "inspect_eval": Kind("inspect", ".eval", inspect_eval),
}
"""Every way in which a log is written."""
