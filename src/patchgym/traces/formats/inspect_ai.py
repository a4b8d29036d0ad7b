"""Logs of Inspect: a JSON document, or a zip (``.eval``) with a JSON document a sample.

A sample's ``messages`` are the conversation as it was at the end; its ``events`` tell of each answer and each call when
it was, how long it took, and the token counts. Long texts stand once, in ``attachments``; the messages that went to the
model may stand in a pool.
"""

import re
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import Action, Message, Observation, StopReason, ToolSpec, Trajectory, Usage
from patchgym.traces.content import assistant, parts_of, tool_calls_of, tool_specs
from patchgym.traces.draft import Draft
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, count_of, moment, open_log, text_of
from patchgym.traces.values import count_kind, mapping, objects, seconds_of, string, whole_number

NAME = "inspect"
ABOUT = "logs of Inspect (.eval and .json)"

_MEMBER_BYTES = 1 << 27
_SAMPLE = re.compile(r"samples/[^/]+\.json")
_REFERENCE = re.compile(r"(?:attachment|tc)://([0-9a-f]{16,64})")
_STOPS = {
    "message": StopReason.TURN_LIMIT,
    "turn": StopReason.TURN_LIMIT,
    "time": StopReason.TIME_LIMIT,
    "working": StopReason.TIME_LIMIT,
    "token": StopReason.TOKEN_LIMIT,
    "cost": StopReason.TOKEN_LIMIT,
    "context": StopReason.CONTEXT_LIMIT,
}
_USED = {"id", "epoch", "input", "messages", "events", "attachments", "events_data", "limit", "uuid", "total_time"}
_USED |= {"started_at", "completed_at", "message_pool"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    if head.startswith(b"PK\x03\x04"):
        return any(name in head for name in (b"_journal/start.json", b"header.json", b"samples/")) or (
            path.suffix == ".eval"
        )
    one = next(iter(heads_of(head)), None)
    return (
        one is not None and not one.listed and one.has("version", "eval") and "plan" in head.decode("utf-8", "replace")
    )


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    with open_log(path) as file:
        if not file.read(4).startswith(b"PK"):
            document = mapping(intake.document(path))
            if document.get("samples") == []:
                intake.damaged("no_samples", path.name)
            for sample in intake.whole(document.get("samples"), "samples", path.name):
                yield _Sample(mapping(document.get("eval")), sample, path, intake).trajectory()
            return
        file.seek(0)
        try:
            archive = zipfile.ZipFile(file)
        except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
            intake.damaged("broken_zip", path.name, str(error)[:200])
            return
        with archive:
            yield from _archive(archive, path, intake)


def _archive(archive: zipfile.ZipFile, path: Path, intake: Intake) -> Iterator[Trajectory]:
    names = archive.namelist()
    header = mapping(_member(archive, "header.json", path, intake)) if "header.json" in names else {}
    if not header and "_journal/start.json" in names:
        header = mapping(_member(archive, "_journal/start.json", path, intake))
    seen = set()
    for name in names:
        if not _SAMPLE.fullmatch(name):
            continue
        sample = _member(archive, name, path, intake)
        if isinstance(sample, dict):
            seen.add((text_of(sample.get("id")), text_of(sample.get("epoch"))))
            yield _Sample(mapping(header.get("eval")), sample, path, intake).trajectory()
    if "summaries.json" in names:
        for summary in objects(_member(archive, "summaries.json", path, intake)):
            if (text_of(summary.get("id")), text_of(summary.get("epoch"))) not in seen:
                intake.damaged("missing_sample", path.name, f"sample {text_of(summary.get('id'))[:60]} is only listed")
    if not seen:
        intake.damaged("no_samples", path.name, text_of(header.get("status"))[:60])


def _member(archive: zipfile.ZipFile, name: str, path: Path, intake: Intake) -> Any:
    """The JSON value of a member, of which no more than 128 MiB are unpacked; None, and counted, where it is none."""
    where = f"{path.name}, {name[:100]}"
    try:
        with archive.open(name) as member:
            data = member.read(_MEMBER_BYTES + 1)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError, NotImplementedError) as error:
        intake.damaged("broken_zip_member", where, str(error)[:200])
        return None
    if len(data) > _MEMBER_BYTES:
        intake.damaged("zip_member_too_large", where)
        return None
    value = intake.json(data, where)
    return value if isinstance(value, dict | list) else None


class _Sample:
    """A sample, its references resolved."""

    def __init__(self, about: dict[str, Any], sample: dict[str, Any], path: Path, intake: Intake) -> None:
        self._intake = intake
        self._where = path.name
        self._texts = mapping(sample.get("attachments"))
        self._sample = sample
        task = text_of(about.get("task")) or path.stem
        name, epoch = text_of(sample.get("id")) or "sample", count_of(sample.get("epoch")) or 1
        packages, run = mapping(about.get("packages")), string(about.get("run_id"))
        version = string(packages.get("inspect_ai"))
        self._draft = Draft(
            id=f"{task.rsplit('/', 1)[-1]}-{name}-epoch-{epoch}" + (f"-{run[:8]}" if run else ""),
            format=NAME,
            file=path.name,
            session=string(sample.get("uuid")),
            task_id=f"{task}/{name}",
            agent=f"inspect {version}" if version else "inspect",
            model=string(about.get("model")),
        )
        self._draft.sample_index = max(0, epoch - 1)
        for key in sample.keys() - _USED:
            if sample[key]:
                count_kind(self._draft.left_out, "", key)
        self._models: deque[tuple[dict[str, Any], list[dict[str, Any]]]] = deque()  # with the answers that they tell
        self._tools: dict[str, dict[str, Any]] = {}
        self._ran: list[dict[str, Any]] = []
        self._sort(objects(sample.get("events")))

    def _sort(self, events: list[dict[str, Any]]) -> None:
        """Keep the events that tell more of an answer or a call, and count the rest."""
        for event in events:
            kind = event.get("event")
            if kind == "model":
                self._models.append((event, [self._whole(answer) for answer in _choices(event)]))
            elif kind == "tool":
                self._tools[text_of(event.get("id"))] = event
                self._sort(objects(event.get("events")))
            elif kind == "sandbox" and event.get("action") == "exec":
                self._ran.append(event)
            else:
                count_kind(self._draft.left_out, "event", kind)

    def _whole(self, value: Any) -> Any:
        """A value with what its references stand for."""
        if isinstance(value, str):
            match = _REFERENCE.fullmatch(value) if value[:13].startswith(("attachment://", "tc://")) else None
            if match is None:
                return value
            found = self._texts.get(match[1])
            if not isinstance(found, str):
                self._intake.damaged("missing_attachment", self._where)
                return value
            return found
        if isinstance(value, dict):
            return {key: self._whole(inner) for key, inner in value.items()}
        return [self._whole(inner) for inner in value] if isinstance(value, list) else value

    def trajectory(self) -> Trajectory:
        """The trajectory."""
        draft, sample = self._draft, self._sample
        if self._models and isinstance(self._models[0][0].get("tools"), list):
            draft.tools = self._specs(self._models[0][0]["tools"])
        messages = objects(sample.get("messages")) or self._last_conversation() or self._input()
        for message in messages:
            if draft.full:
                self._intake.damaged("beyond_the_size_limit", self._where)
            else:
                self._message(self._whole(message))
        if self._models:
            draft.left_out["model_calls_outside_of_the_conversation"] += len(self._models)
        limit = mapping(sample.get("limit"))
        stop = _STOPS.get(str(limit.get("type")))
        if limit and stop is None:
            count_kind(draft.left_out, "limit", limit.get("type"))
        return draft.finished(
            stop=stop or (StopReason.SUBMITTED if self._submitted(messages) else None),
            started_at=moment(sample.get("started_at")),
            total_seconds=seconds_of(sample.get("total_time")),
        )

    def _specs(self, tools: list[Any]) -> tuple[ToolSpec, ...]:
        return tool_specs(self._whole(tools))

    def _input(self) -> list[dict[str, Any]]:
        """The messages that a sample begins with."""
        given = self._sample.get("input")
        return [{"role": "user", "content": given}] if isinstance(given, str) else objects(given)

    def _last_conversation(self) -> list[dict[str, Any]]:
        """The conversation as the last call of the model had it, for a sample that has no messages of its own."""
        if not self._models:
            return []
        event = self._models[-1][0]
        pool = objects(mapping(self._sample.get("events_data")).get("messages")) or objects(
            self._sample.get("message_pool")
        )
        given = objects(event.get("input"))
        for pair in event.get("input_refs") or [] if isinstance(event.get("input_refs"), list) else []:
            if isinstance(pair, list) and len(pair) == 2 and all(count_of(one) is not None for one in pair):
                given += pool[pair[0] : pair[1]]
        return [*given, *_choices(event)]

    @staticmethod
    def _submitted(messages: list[dict[str, Any]]) -> bool:
        answers = [one for one in messages if one.get("role") == "assistant"]
        return bool(answers) and any(
            call.get("function") == "submit" for call in objects(answers[-1].get("tool_calls"))
        )

    def _message(self, message: dict[str, Any]) -> None:
        draft, role = self._draft, message.get("role")
        parts = parts_of(message.get("content"), self._intake, draft.left_out)
        if role == "assistant":
            self._answer(message)
        elif role == "tool":
            self._result(message)
        elif role in ("user", "system"):
            draft.given(
                Message.model_validate(
                    {"role": role, "content": parts.content, "attachments": tuple(parts.attachments)}
                )
            )
        else:
            count_kind(draft.left_out, "message_of_role", role)

    def _answer(self, message: dict[str, Any]) -> None:
        draft = self._draft
        parts = parts_of(message.get("content"), self._intake, draft.left_out)
        calls = tool_calls_of(message.get("tool_calls"), draft.left_out, f"step-{draft.steps}")
        event = self._event_of(message)
        output = mapping(event.get("output"))
        actions = None
        unread = [one for one in objects(message.get("tool_calls")) if one.get("parse_error")]
        if not calls and parts.calls:  # tools that ran at the provider's
            actions = [
                Action(tool=text_of(one.get("name")), arguments={"arguments": text_of(one.get("arguments"))})
                for one in parts.calls[:1]
            ]
        draft.answered(
            assistant(parts, calls, string(message.get("reasoning"))),
            actions,
            parse_error=text_of(unread[0].get("parse_error")) if unread else None,
            model=string(output.get("model")) or string(message.get("model")),
            usage=_usage(mapping(output.get("usage"))),
            sampling_seconds=seconds_of(output.get("time")),
            started_at=moment(event.get("timestamp")),
        )
        for one in parts.calls[:1] if not calls else []:
            draft.observed(Observation(shown=text_of(one.get("result")), ok=not one.get("error")))

    def _event_of(self, message: dict[str, Any]) -> dict[str, Any]:
        """The event of an answer. Those before it, whose answers are no part of the conversation, are counted."""
        for at, (event, answers) in enumerate(self._models):
            if any(_same(answer, message) for answer in answers):
                for _ in range(at):
                    self._models.popleft()
                    self._draft.left_out["model_calls_outside_of_the_conversation"] += 1
                self._models.popleft()
                return event
        return {}

    def _result(self, message: dict[str, Any]) -> None:
        draft, call_id = self._draft, string(message.get("tool_call_id")) or ""
        parts = parts_of(message.get("content"), self._intake, draft.left_out)
        error = message.get("error")
        kind = str(error.get("type")) if isinstance(error, dict) else ""
        told = text_of(error.get("message")) if isinstance(error, dict) else text_of(error)
        event = self._tools.get(call_id, {})
        begun, done = moment(event.get("timestamp")), moment(event.get("completed"))
        seconds = seconds_of(event.get("working_time"))
        if seconds is None and begun is not None and done is not None:
            seconds = seconds_of((done - begun).total_seconds())
        shown = parts.content or told
        seen = Observation(
            shown=shown,
            ok=not error,
            exit_code=self._code(event),
            timed_out=kind == "timeout",
            ending="interrupted" if kind == "cancelled" else "none",
            seconds=seconds,
        )
        role = Message(role="tool", content=shown, tool_call_id=call_id, attachments=tuple(parts.attachments))
        if not draft.observed(seen, call_id, role):
            draft.given(role)
            draft.left_out["results_without_a_call"] += 1

    def _code(self, event: dict[str, Any]) -> int | None:
        """The exit code of the one command that a call ran in the sandbox; None where it ran none or several."""
        inner = [one for one in objects(event.get("events")) if one.get("event") == "sandbox"]
        ran = [one for one in inner if one.get("action") == "exec"]
        begun, done = moment(event.get("timestamp")), moment(event.get("completed"))
        if not ran and begun is not None and done is not None:
            ran = [one for one in self._ran if (at := moment(one.get("timestamp"))) is not None and begun <= at <= done]
        return whole_number(ran[0].get("result")) if len(ran) == 1 else None


def _choices(event: dict[str, Any]) -> list[dict[str, Any]]:
    choices = objects(mapping(event.get("output")).get("choices"))
    return [one["message"] for one in choices[:1] if isinstance(one.get("message"), dict)]


def _same(answer: dict[str, Any], message: dict[str, Any]) -> bool:
    """Whether an answer of an event is a message of the conversation."""
    if answer.get("id") is not None and answer.get("id") == message.get("id"):
        return True
    same = _ids(answer.get("tool_calls")) == _ids(message.get("tool_calls"))
    return same and answer.get("content") == message.get("content")


def _ids(calls: object) -> list[str]:
    return [text_of(one.get("id")) for one in objects(calls)]


def _usage(usage: dict[str, Any]) -> Usage | None:
    """Token counts: Inspect tells those that were written to or read from a cache besides ``input_tokens``."""
    fresh, sampled = count_of(usage.get("input_tokens")), count_of(usage.get("output_tokens"))
    if fresh is None or sampled is None:
        return None
    read, written = count_of(usage.get("input_tokens_cache_read")), count_of(usage.get("input_tokens_cache_write"))
    return Usage(prompt_tokens=fresh + (read or 0) + (written or 0), sampled_tokens=sampled, cached_tokens=read)
