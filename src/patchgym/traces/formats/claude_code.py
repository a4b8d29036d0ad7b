"""Sessions of Claude Code: JSON lines that are linked by ``uuid`` and ``parentUuid``.

One answer of the model stands on as many lines as it has parts, under one ``message.id`` and with its usage repeated.
Sub-agents are in the same file (``isSidechain``) or in ``SESSION/subagents/agent-ID.jsonl``. What a tool printed is
told twice: as the model was given it, and in ``toolUseResult``, with both streams.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from patchgym.records import Message, Observation, SpawnedBy, StopReason, ToolCall, Trajectory, Usage
from patchgym.traces.content import Parts, assistant, parts_of
from patchgym.traces.draft import MOST_TEXT, Draft, Mark
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, count_of, moment, text_of
from patchgym.traces.values import count_kind, flag, mapping, milliseconds_of, stream, string, whole_number

NAME = "claude_code"
ABOUT = "sessions of Claude Code (.jsonl, with their sub-agents), and what claude -p prints as stream-json"

_LINKS = frozenset({"uuid", "sessionId", "session_id", "leafUuid", "messageId", "parentUuid"})
_KINDS = frozenset({"user", "assistant", "system", "summary", "progress", "file-history-snapshot", "queue-operation"})
_SYNTHETIC = "<synthetic>"
_EXIT = re.compile(r"\A(?:Error: )?Exit code (\d{1,3})\b")
_TIMED_OUT = re.compile(r"Command timed out after ")
_STOPPED = re.compile(
    r"\[Request interrupted by user|The user doesn't want to (?:proceed|take this action)|User rejected"
)
_STOPS = {"success": StopReason.SUBMITTED, "error_max_turns": StopReason.TURN_LIMIT}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    return any(
        one.texts.get("type") in _KINDS
        and not one.listed
        and not one.keys.isdisjoint(_LINKS)
        and not one.has("payload")
        for one in heads_of(head)
    )


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    file = _File(path, intake)
    intake.claim(path)
    file.take(path)
    for part in _parts(path, intake):
        if intake.claim(part):
            file.take(part)
    yield from file.finished()


def _parts(path: Path, intake: Intake) -> list[Path]:
    """The files of a session's sub-agents."""
    folder = path.with_suffix("") / "subagents"
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    return [one for one in intake.files_in(folder) if one.suffix == ".jsonl"]


@dataclass(eq=False)
class _Conversation:
    """The main conversation of a session, or one of a sub-agent."""

    draft: Draft
    asked: str | None = None
    """The first message of a sub-agent."""
    agent: str | None = None
    spawning_call: str | None = None
    answers: dict[str, int] = field(default_factory=dict)
    """The step at which the answer of a message id begins."""
    linked: bool = False
    """Whether its lines are linked."""
    stop: StopReason | None = None


class _File:
    """The conversations of a session's files."""

    def __init__(self, path: Path, intake: Intake) -> None:
        self._path = path
        self._intake = intake
        self._conversations: dict[tuple[str, str], _Conversation] = {}
        self._places: dict[str, tuple[_Conversation, Mark]] = {}
        self._agent_calls: dict[str, str] = {}
        self._said: set[str] = set()
        self._text = 0

    def take(self, path: Path) -> None:
        """Every line of one of the files."""
        for number, line in self._intake.lines(path):
            where = f"{path.name}, line {number}"
            conversation = self._conversation_of(line, path)
            if self._text > MOST_TEXT:
                self._intake.damaged("beyond_the_size_limit", where)
                continue
            before = conversation.draft.text
            kind = line.get("type")
            if kind in ("user", "assistant"):
                self._message(conversation, line, where)
            elif kind == "system":
                self._system(conversation, line)
            elif kind == "result":
                conversation.stop = _STOPS.get(str(line.get("subtype")))
                conversation.draft.left_out["line_result"] += 1
            elif isinstance(kind, str):
                count_kind(conversation.draft.left_out, "line", kind)
            else:
                self._intake.damaged("line_of_no_kind", where)
            self._leave(conversation, line)
            self._text += conversation.draft.text - before

    def _conversation_of(self, line: dict[str, Any], path: Path) -> _Conversation:
        """The conversation of a line: by the agent that it names, the line that it follows, or its session."""
        session = string(line.get("sessionId")) or string(line.get("session_id")) or ""
        agent = string(line.get("agentId")) or string(line.get("parent_tool_use_id")) or ""
        side = line.get("isSidechain") is True
        parent = self._places.get(str(line.get("parentUuid")))
        if parent is not None and not agent:
            return parent[0]
        if not session and self._conversations and not agent:
            return next(reversed(self._conversations.values()))
        if side and not agent:
            agent = f"side-{len(self._conversations)}" if line.get("type") == "user" else "side"
        key = (session, agent)
        if key not in self._conversations:
            self._conversations[key] = self._new(session, agent, line, path)
        return self._conversations[key]

    def _new(self, session: str, agent: str, line: dict[str, Any], path: Path) -> _Conversation:
        named = session or path.stem
        draft = Draft(id=f"{named}.agent-{agent}" if agent else named, format=NAME, file=path.name, session=named)
        conversation = _Conversation(draft, agent=agent or None)
        if agent:
            conversation.spawning_call = string(line.get("parent_tool_use_id"))
            draft.spawned_by = SpawnedBy(trajectory=named, step=None)
        return conversation

    def _leave(self, conversation: _Conversation, line: dict[str, Any]) -> None:
        """Remember where the conversation stands after a line, for those that follow it."""
        name = string(line.get("uuid"))
        if name is None or name in self._places:
            return
        before = self._places.get(str(line.get("parentUuid")))
        said = line.get("type") in ("user", "assistant") or line.get("subtype") == "compact_boundary"
        mark = before[1] if before is not None and before[0] is conversation and not said else conversation.draft.mark()
        self._places[name] = (conversation, mark)

    def _follow(self, conversation: _Conversation, line: dict[str, Any]) -> None:
        """Go back to where a line says that it belongs, where that is not where the conversation stands."""
        draft, parent = conversation.draft, line.get("parentUuid")
        if isinstance(parent, str):
            conversation.linked = True
            place = self._places.get(parent)
            if place is None:
                draft.left_out["links_to_lines_that_are_not_there"] += 1
            elif place[0] is conversation and not self._stands_at(draft, place[1]):
                draft.back_to(place[1])
        elif parent is None and "parentUuid" in line and conversation.linked and not line.get("isCompactSummary"):
            draft.back_to(Mark(None, (), False))

    @staticmethod
    def _stands_at(draft: Draft, mark: Mark) -> bool:
        """Whether a mark is no other point than the present: parallel calls are linked each to its own part of one
        answer, and what came of them to the part that asked."""
        now = draft.mark()
        if draft.answer_of(now.at) != draft.answer_of(mark.at):
            return False
        return [one for one in now.given if one.role == "user"] == [one for one in mark.given if one.role == "user"]

    def _system(self, conversation: _Conversation, line: dict[str, Any]) -> None:
        subtype = line.get("subtype")
        if subtype == "compact_boundary":
            conversation.draft.compacted()
        elif subtype == "init":
            conversation.draft.model = string(line.get("model"))
            self._about(conversation, line)
        else:
            count_kind(conversation.draft.left_out, "system", subtype or "message")

    @staticmethod
    def _about(conversation: _Conversation, line: dict[str, Any]) -> None:
        number = string(line.get("version")) or string(line.get("claude_code_version"))
        if conversation.draft.agent is None:
            conversation.draft.agent = f"claude-code {number}" if number else None

    def _message(self, conversation: _Conversation, line: dict[str, Any], where: str) -> None:
        self._about(conversation, line)
        message = line.get("message")
        if not isinstance(message, dict):
            self._intake.damaged("message_that_is_no_object", where)
            return
        if "content" not in message:
            self._intake.damaged("message_without_content", where)
            return
        name = string(line.get("uuid"))
        if name in self._said:  # resumed sessions repeat what went before
            conversation.draft.left_out["lines_told_again"] += 1
            return
        if name is not None:
            self._said.add(name)
        parts = parts_of(message["content"], self._intake, conversation.draft.left_out)
        if line["type"] == "assistant":
            self._answer(conversation, line, message, parts)
        else:
            self._given(conversation, line, parts)

    def _answer(self, conversation: _Conversation, line: dict[str, Any], message: dict[str, Any], parts: Parts) -> None:
        draft, model = conversation.draft, string(message.get("model"))
        if model == _SYNTHETIC or line.get("isApiErrorMessage") is True:
            draft.left_out["answers_that_no_model_gave"] += 1
            return
        calls = tuple(
            ToolCall(
                id=string(part.get("id")) or f"{line.get('uuid')}-{number}",
                name=string(part.get("name")) or "unnamed",
                arguments=text_of(part.get("input")) or "{}",
            )
            for number, part in enumerate(parts.calls)
        )
        name, usage = string(message.get("id")), _usage(mapping(message.get("usage")))
        known = conversation.answers.get(name) if name is not None else None
        if (
            known is not None
            and known == draft.answer_of(draft.at)
            and draft.extend_answer(assistant(parts, calls), meanwhile=True)
        ):
            if usage is not None:
                draft.usage_of_answer(usage)
        else:
            self._follow(conversation, line)
            head = draft.answered(
                assistant(parts, calls), model=model, usage=usage, started_at=moment(line.get("timestamp"))
            )
            draft.model = draft.model or model
            if name is not None:
                conversation.answers[name] = head
        for part in parts.results:  # of tools that ran at the provider's
            self._result(conversation, part, None, is_line=False)

    def _given(self, conversation: _Conversation, line: dict[str, Any], parts: Parts) -> None:
        draft = conversation.draft
        if not parts.results:
            self._follow(conversation, line)
        if line.get("isCompactSummary") is True and not draft.mark().compacted:
            draft.compacted()
        for part in parts.results:
            self._result(conversation, part, line.get("toolUseResult"), is_line=len(parts.results) == 1)
        if parts.text or parts.attachments or not parts.results:
            if conversation.asked is None:
                conversation.asked = parts.content
            draft.given(Message(role="user", content=parts.content, attachments=tuple(parts.attachments)))

    def _result(self, conversation: _Conversation, part: dict[str, Any], detail: object, *, is_line: bool) -> None:
        draft = conversation.draft
        call_id = string(part.get("tool_use_id")) or ""
        inner = parts_of(part.get("content"), self._intake, draft.left_out)
        told = mapping(detail) if is_line else {}
        seen = _observation(inner.content, flag(part.get("is_error")), told)
        if told.get("agentId") or told.get("agent_id"):
            self._agent_calls[str(told.get("agentId") or told.get("agent_id"))] = call_id
        if set(told) - {"stdout", "stderr", "interrupted", "isImage", "agentId", "content"}:
            draft.left_out["details_of_results"] += 1
        message = Message(
            role="tool", content=inner.content, tool_call_id=call_id, attachments=tuple(inner.attachments)
        )
        if not draft.observed(seen, call_id, message):
            draft.left_out["results_without_a_call"] += 1

    def finished(self) -> Iterator[Trajectory]:
        """The trajectories: the main ones before those of their sub-agents. What says nothing is none."""
        kept = [one for one in self._conversations.values() if one.draft.steps or one.asked is not None]
        for dropped in self._conversations.values():
            if kept and dropped not in kept:
                kept[0].draft.left_out.update(dropped.draft.left_out)
        if not kept:
            self._intake.damaged("no_conversation", self._path.name)
        mains = {one.draft.session: one.draft for one in kept if one.agent is None}
        for conversation in sorted(kept, key=lambda one: one.agent is not None):
            main = mains.get(conversation.draft.session)
            if conversation.agent is not None and main is not None:
                call = conversation.spawning_call or self._agent_calls.get(conversation.agent)
                step = main.step_of(call) if call else _asking(main, conversation.asked)
                conversation.draft.spawned_by = SpawnedBy(trajectory=main.id, step=step)
            yield conversation.draft.finished(stop=conversation.stop)


def _asking(draft: Draft, asked: str | None) -> int | None:
    """The step that asked a sub-agent with these words."""
    return draft.step_where(lambda action: action.arguments.get("prompt") == asked) if asked else None


def _usage(usage: dict[str, Any]) -> Usage | None:
    fresh, sampled = count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens"))
    if fresh is None or sampled is None:
        return None
    cached = count_of(usage.get("cache_read_input_tokens"))
    written = count_of(usage.get("cache_creation_input_tokens"))
    return Usage(prompt_tokens=fresh + (cached or 0) + (written or 0), sampled_tokens=sampled, cached_tokens=cached)


def _observation(shown: str, is_error: bool | None, told: dict[str, Any]) -> Observation:
    """What came of a call. A command that failed tells its exit code in its text alone."""
    code = _EXIT.match(shown) if is_error else None
    stopped = told.get("interrupted") is True or (is_error is not False and _STOPPED.match(shown) is not None)
    out, err = told.get("stdout") if told.get("isImage") is not True else None, told.get("stderr")
    printed = stream(out) if isinstance(out, str) else None
    kept_elsewhere = count_of(told.get("persistedOutputSize"))
    if printed is not None and kept_elsewhere is not None and kept_elsewhere > printed.size:
        printed = printed.model_copy(update={"size": kept_elsewhere, "cut": True})
    return Observation(
        shown=shown,
        ok=None if is_error is None else (code is not None or not is_error),
        exit_code=whole_number(int(code[1])) if code else None,
        stdout=printed,
        stderr=stream(err) if isinstance(err, str) else None,
        timed_out=bool(is_error) and _TIMED_OUT.search(shown[:300]) is not None,
        ending="interrupted" if stopped else "none",
        seconds=milliseconds_of(told.get("durationMs", told.get("totalDurationMs"))),
    )
