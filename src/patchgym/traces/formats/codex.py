"""Rollouts of Codex: JSON lines of ``timestamp, type, payload``, where ``response_item`` is what went to the model and
came from it, and ``event_msg`` what its user saw of it.

The exit code of a command stands in JSON in a string, or in the first lines of a text, or in an event of its own.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, SpawnedBy, ToolSpec, Trajectory, Usage
from patchgym.traces import items
from patchgym.traces.content import parts_of, tool_specs
from patchgym.traces.draft import Draft, Mark
from patchgym.traces.heads import Head, heads_of
from patchgym.traces.intake import Intake, count_of, moment, open_log, text_of
from patchgym.traces.jsontext import parsed
from patchgym.traces.values import count_kind, flag, mapping, objects, seconds_of, stream, string, whole_number

NAME = "codex"
ABOUT = "rollouts of Codex (rollout-*.jsonl)"

_KINDS = frozenset({"session_meta", "response_item", "turn_context", "event_msg", "compacted", "world_state"})
_OLD_ITEMS = frozenset({"message", "reasoning", "function_call", "function_call_output", "local_shell_call"})
_TOLD_TWICE = frozenset({"user_message", "agent_message", "agent_reasoning", "token_count"})
_CODE = re.compile(r"^(?:Exit code:|Process exited with code) (-?\d+)$", re.MULTILINE)
_WALL = re.compile(r"^Wall time: ([\d.]+) seconds?$", re.MULTILINE)
_OUTPUT = re.compile(r"^Output:\n", re.MULTILINE)
_ABORTED = re.compile(r"\Aaborted(?: by user.*)?\Z", re.DOTALL)
_TIMED_OUT = re.compile(r"command timed out after \d+ milliseconds")
_PREFIX = re.compile(r"\s*(?:<environment_context>|<user_instructions>|# AGENTS\.md|<turn_aborted>|<INSTRUCTIONS>)")
_HEAD = 2000
_FIRST = 1 << 16


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    heads = heads_of(head)
    if any(one.has("payload") and one.texts.get("type") in _KINDS for one in heads):
        return True
    if heads and (heads[0].has("id", "timestamp", "instructions") or _is_document(heads[0])):
        return True
    return any(one.has("record_type") for one in heads[:3])


def _is_document(first: Head) -> bool:
    """Whether a file is one JSON document, as the very first versions wrote."""
    return first.keys == {"session", "items"} and not first.listed


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    rollout = _Rollout(path, intake)
    with open_log(path) as file:
        heads = heads_of(file.read(_FIRST))
    lines: Iterable[tuple[int, dict[str, Any]]] = intake.lines(path)
    if heads and _is_document(heads[0]):
        document = mapping(intake.document(path))
        session = {"type": "session_meta", "payload": mapping(document.get("session"))}
        lines = enumerate([session, *intake.whole(document.get("items"), "items", path.name)])
    for number, line in lines:
        where = f"{path.name}, line {number}"
        if rollout.draft.full:
            intake.damaged("beyond_the_size_limit", where)
        else:
            rollout.take(*_typed(line), line.get("timestamp"), where)
    if rollout.lines:
        yield rollout.finished()
    else:
        intake.damaged("no_conversation", path.name)


def _typed(line: dict[str, Any]) -> tuple[object, dict[str, Any]]:
    """The type and the payload of a line; the first versions had bare items."""
    if "payload" in line:
        return line.get("type"), mapping(line["payload"])
    if str(line.get("type")) in _OLD_ITEMS:
        return "response_item", line
    if "id" in line and "timestamp" in line:
        return "session_meta", line
    return line.get("type", line.get("record_type")), line


class _Rollout:
    """One session."""

    def __init__(self, path: Path, intake: Intake) -> None:
        self.draft = Draft(id=path.stem, format=NAME, file=path.name)
        self.lines = 0
        self._intake = intake
        self._open = False  # whether the next item belongs to the answer before it
        self._usage: Usage | None = None
        self._total: object = None
        self._ran: dict[str, dict[str, Any]] = {}
        self._turns: list[Mark] = []
        self._stopped: tuple[str, ...] = ()

    def take(self, kind: object, payload: dict[str, Any], time: object, where: str) -> None:
        """A line; ``lines`` counts those of a kind that only this format has."""
        self.lines += str(kind) in _KINDS
        if kind == "response_item":
            self._item(payload, time, where)
        elif kind == "event_msg":
            self._event(payload)
        elif kind == "session_meta":
            self._session(payload)
        elif kind == "turn_context":
            self.draft.model = string(payload.get("model")) or self.draft.model
        elif kind == "compacted":
            self._compacted(payload)
        elif isinstance(kind, str):
            count_kind(self.draft.left_out, "line", kind)
        else:
            self._intake.damaged("line_of_no_kind", where)

    def _session(self, payload: dict[str, Any]) -> None:
        draft = self.draft
        if draft.session is not None:
            draft.left_out["later_session_meta"] += 1
            return
        draft.session = string(payload.get("id")) or string(payload.get("session_id")) or draft.id
        draft.id = draft.session
        version, git = string(payload.get("cli_version")), mapping(payload.get("git"))
        draft.agent = f"codex {version}" if version else None
        draft.repo, draft.base_commit = string(git.get("repository_url")), string(git.get("commit_hash"))
        spawn = mapping(mapping(mapping(payload.get("source")).get("subagent")).get("thread_spawn"))
        parent = string(payload.get("parent_thread_id")) or string(spawn.get("parent_thread_id"))
        if parent is not None:
            draft.spawned_by = SpawnedBy(trajectory=parent, step=None)
        base: object = payload.get("base_instructions")
        for told in (mapping(base).get("text", base), payload.get("instructions")):
            if isinstance(told, str) and told:
                draft.given(Message(role="system", content=told))
        draft.tools = _tools(payload.get("dynamic_tools"))

    def _item(self, item: dict[str, Any], time: object, where: str) -> None:
        draft = self.draft
        if items.is_output(item):
            self._output(item)
            return
        message = items.said(item, draft.steps, self._intake, draft.left_out)
        if message is not None:
            if not (self._open and draft.extend_answer(message)):
                draft.answered(message, usage=self._usage, started_at=moment(time))
                self._usage = None
            self._open = True
            return
        message = items.given(item, self._intake, draft.left_out)
        if message is None:
            count_kind(draft.left_out, "item", item.get("type"))
            return
        self._open = False
        if message.role == "user" and not _PREFIX.match(message.content):
            self._turns.append(draft.mark())
        draft.given(message)

    def _output(self, item: dict[str, Any]) -> None:
        draft, self._open = self.draft, False
        call_id = string(item.get("call_id")) or ""
        output: object = item.get("output", item.get("tools"))
        success: bool | None = None
        if isinstance(output, dict) and ("content" in output or "success" in output):
            success = flag(output.get("success"))
            output = output.get("content")
        parts = parts_of(output, self._intake, draft.left_out) if isinstance(output, list | dict) else None
        shown = parts.content if parts is not None and (parts.text or parts.attachments) else text_of(output)
        attachments = tuple(parts.attachments) if parts is not None else ()
        message = Message(role="tool", content=shown, tool_call_id=call_id, attachments=attachments)
        seen = Observation.model_validate(
            {"shown": shown, "ok": success, **_facts(shown), **self._ran.pop(call_id, {})}
        )
        if not draft.observed(seen, call_id, message):
            draft.left_out["results_without_a_call"] += 1

    def _event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "token_count":
            self._counted(mapping(event.get("info")))
        elif kind in ("exec_command_end", "patch_apply_end", "mcp_tool_call_end"):
            facts, call_id = _facts_of_event(event), string(event.get("call_id")) or ""
            if not self.draft.more_of_observation(call_id, **facts):
                self._ran[call_id] = facts
        elif kind == "turn_aborted":
            self._stopped += self.draft.waiting
            self._open = False
            self.draft.left_out["event_turn_aborted"] += 1
        elif kind == "thread_rolled_back":
            self._rolled_back(count_of(event.get("num_turns")) or 0)
        elif str(kind) not in _TOLD_TWICE:
            count_kind(self.draft.left_out, "event", kind)

    def _counted(self, info: dict[str, Any]) -> None:
        """Token counts of one answer, which some versions tell before its items, and others after them. They are told
        again and again: new are those whose total is."""
        last, total = mapping(info.get("last_token_usage")), info.get("total_token_usage")
        prompt, sampled = count_of(last.get("input_tokens")), count_of(last.get("output_tokens"))
        if prompt is None or sampled is None or total == self._total:
            return
        self._total = total
        usage = Usage(
            prompt_tokens=prompt, sampled_tokens=sampled, cached_tokens=count_of(last.get("cached_input_tokens"))
        )
        if self.draft.lacks_usage:
            self.draft.usage_of_answer(usage)
        else:
            self._usage = usage

    def _rolled_back(self, turns: int) -> None:
        """The user took back some turns."""
        self._open = False
        if 0 < turns <= len(self._turns):
            self.draft.back_to(self._turns[-turns])
            del self._turns[-turns:]
        else:
            self.draft.left_out["event_thread_rolled_back"] += 1

    def _compacted(self, payload: dict[str, Any]) -> None:
        """The conversation was replaced: by the items that are told, or else by a summary."""
        draft, self._open = self.draft, False
        draft.compacted()
        kept = objects(payload.get("replacement_history"))
        for item in kept:
            message = items.given(item, self._intake, draft.left_out) or items.said(
                item, 0, self._intake, draft.left_out
            )
            if message is not None:
                draft.given(message)
            else:
                count_kind(draft.left_out, "item", item.get("type"))
        if not kept and string(payload.get("message")):
            draft.given(Message(role="user", content=payload["message"]))

    def finished(self) -> Trajectory:
        """The trajectory."""
        self.draft.interrupted(self._stopped)
        if self._ran:
            self.draft.left_out["events_of_calls_without_an_answer"] += len(self._ran)
        return self.draft.finished()


def _tools(value: object) -> tuple[ToolSpec, ...]:
    """Tools, and those that stand in a namespace."""
    listed = objects(value) if isinstance(value, list) else [mapping(value)]
    return tool_specs([inner for one in listed for inner in (one, *objects(one.get("tools")))])


def _facts(shown: str) -> dict[str, object]:
    """What the text of an output tells of the process behind it."""
    if _ABORTED.match(shown):
        return {"ending": "interrupted"}
    if shown.startswith("{"):
        try:
            told = mapping(parsed(shown))
        except ValueError:
            told = {}
        about = mapping(told.get("metadata"))
        if isinstance(told.get("output"), str) and about:
            return {
                **_ended(about.get("exit_code"), told["output"]),
                "seconds": seconds_of(about.get("duration_seconds")),
            }
    start = _OUTPUT.search(shown, 0, _HEAD)
    if start is None:
        return {}
    head = shown[: start.start()]
    code, wall = _CODE.search(head), _WALL.search(head)
    if code is None and wall is None:
        return {}
    seconds = seconds_of(float(wall[1])) if wall and wall[1].count(".") <= 1 and wall[1] != "." else None
    return {**_ended(int(code[1]) if code else None, shown[start.end() :]), "seconds": seconds}


def _ended(code: object, output: str) -> dict[str, object]:
    """How a process ended, both streams of which were read as one."""
    return {
        "exit_code": whole_number(code),
        "stdout": stream(output),
        "timed_out": code == 124 and _TIMED_OUT.search(output[:_HEAD]) is not None,
    }


def _facts_of_event(event: dict[str, Any]) -> dict[str, object]:
    """What an event tells of a call that came to its end."""
    facts: dict[str, object] = {}
    for name in ("stdout", "stderr"):
        if isinstance(event.get(name), str):
            facts[name] = stream(event[name])
    if (code := whole_number(event.get("exit_code"))) is not None:
        facts["exit_code"] = code
    if (done := flag(event.get("success"))) is not None:
        facts["ok"] = done
    duration = mapping(event.get("duration"))
    seconds, nanos = seconds_of(duration.get("secs")), seconds_of(duration.get("nanos"))
    if seconds is not None:
        facts["seconds"] = seconds + (nanos or 0) / 1e9
    return facts
