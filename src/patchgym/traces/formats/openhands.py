"""Conversations of OpenHands: a folder with an event a file, a list of events, or rows whose ``history`` is one.

Version 1 tags events by ``kind``; version 0 has ``action`` or ``observation`` in each, with the model's whole response
in ``tool_call_metadata``. Which of the two a file is, is told event by event.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.records import StopReason, Trajectory, Usage
from patchgym.traces.draft import Draft
from patchgym.traces.formats.openhands0 import OldEvents
from patchgym.traces.formats.openhands1 import Events
from patchgym.traces.heads import heads_of
from patchgym.traces.intake import Intake, count_of, open_log, text_of
from patchgym.traces.values import count_kind, mapping, objects, seconds_of, string

NAME = "openhands"
ABOUT = "conversations of OpenHands (folders of events, lists of them, rows with a history)"

_EVENT_FILE = re.compile(r"(?:event-)?(\d{1,18})(?:-[0-9A-Za-z-]+)?\.json")
_HEAD = 1 << 16
_STATES = ("base_state.json", "metadata.json", "meta.json")
_KNOWN = {"instance_id", "history", "git_patch", "test_result", "instance", "metadata", "base_commit", "issue"}


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    if path.is_dir():
        folder = _events_folder(path)
        return folder is not None and any(_EVENT_FILE.fullmatch(one.name) for one in folder.iterdir())
    for one in heads_of(head)[:3]:
        if one.has("history") and not one.keys.isdisjoint({"git_patch", "test_result", "instruction", "metrics"}):
            return True
        if one.keys == {"trajectory"} and all(sign in head for sign in (b'"source"', b'"timestamp"', b'"args"')):
            return True
        if one.has("kind", "source", "timestamp") and one.texts.get("kind", "").endswith(("Event", "Condensation")):
            return True
        if one.has("source") and not one.keys.isdisjoint({"action", "observation"}) and one.has("timestamp"):
            return True
    return False


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``."""
    if path.is_dir():
        yield _folder(path, intake)
        return
    with open_log(path) as file:
        begins = file.read(_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip()
    if begins.startswith((b"[", b'{"trajectory"')) or begins.split(b"\n", 1)[0].strip() == b"{":
        yield from _document(path, intake)
        return
    loose: _Conversation | None = None
    for number, row in intake.lines(path):
        if isinstance(row.get("history"), list):
            yield _row(row, f"{path.stem}-{number}", path, intake)
        elif "kind" in row or "action" in row or "observation" in row:
            loose = loose or _conversation(Draft(id=path.stem, format=NAME, file=path.name), [], {}, intake)
            loose.take(row, f"{path.name}, line {number}")
        else:
            intake.damaged("no_history", f"{path.name}, line {number}")
    if loose is not None:
        yield loose.finished()


def _document(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """A file that is one document: a list of events, such a list in ``trajectory``, or a row."""
    document = intake.document(path)
    if isinstance(document, dict) and isinstance(document.get("history"), list):
        yield _row(document, path.stem, path, intake)
        return
    events = document.get("trajectory") if isinstance(document, dict) else document
    if not isinstance(events, list):
        intake.damaged("no_history", path.name)
        return
    draft = Draft(id=path.name.split(".")[0] or path.name, format=NAME, file=path.name)
    yield _conversation(draft, events, {}, intake).finished()


def _events_folder(path: Path) -> Path | None:
    inner = path / "events"
    if inner.is_dir() and not inner.is_symlink():
        return inner
    return path if any(path.glob("event-[0-9]*-*.json")) else None


def _folder(path: Path, intake: Intake) -> Trajectory:
    """A folder of events. Their files sort by number, not by name."""
    folder = _events_folder(path) or path
    numbered = []
    for file in intake.files_in(folder):
        match = _EVENT_FILE.fullmatch(file.name)
        if match is not None:
            numbered.append((int(match[1]), file))
        elif folder != path or file.name not in _STATES:
            intake.damaged("file_that_is_no_event", file.name)
    about: dict[str, Any] = {}
    for name in reversed(_STATES):
        for place in {path / name, folder.parent / name}:
            if place.is_file() and not place.is_symlink() and place.parent in (path, folder.parent):
                about.update(mapping(intake.document(place)))
    named = string(about.get("id")) or string(about.get("conversation_id"))
    own = path.name if path.name not in ("events", "event_service") else path.absolute().parent.name
    draft = Draft(id=named or own, format=NAME, file=path.name, session=named)
    events = (intake.document(file) for _, file in sorted(numbered))
    return _conversation(draft, events, about, intake).finished()


def _row(row: dict[str, Any], name: str, path: Path, intake: Intake) -> Trajectory:
    """A row of an evaluation: the history of one task, with the patch that came of it."""
    issue, instance, result = (mapping(row.get(key)) for key in ("issue", "instance", "test_result"))
    task = string(row.get("instance_id")) or string(instance.get("instance_id"))
    repo = "/".join(text_of(issue[key]) for key in ("owner", "repo")) if {"owner", "repo"} <= set(issue) else None
    draft = Draft(
        id=task or name,
        format=NAME,
        file=path.name,
        task_id=task or (f"{repo}#{text_of(issue.get('number'))}" if repo else None),
        repo=string(instance.get("repo")) or repo,
        base_commit=string(instance.get("base_commit")) or string(row.get("base_commit")),
    )
    if task is None and repo is not None:
        draft.id = f"{repo}-{text_of(issue.get('number'))}"
    for key in row.keys() - _KNOWN:
        if row[key] is not None:
            count_kind(draft.left_out, "", key)
    draft.left_out.update(f"test_result_{key}" for key in result if key != "git_patch")
    history = [one for event in row["history"] for one in (event if isinstance(event, list) else [event])]
    about = {"agent": mapping(mapping(row.get("metadata")).get("llm_config")), **mapping(row.get("metadata"))}
    conversation = _conversation(draft, history, about, intake)
    patch = row.get("git_patch", result.get("git_patch"))
    conversation.patch = patch if isinstance(patch, str) else None
    return conversation.finished()


class _Conversation:
    """Events, of whichever version."""

    def __init__(self, draft: Draft, about: dict[str, Any], intake: Intake) -> None:
        self.patch: str | None = None
        self._draft = draft
        self._intake = intake
        self._new = Events(draft, intake, *_measured(about))
        self._old = OldEvents(draft, intake)
        self._done = string(about.get("agent_status")) or string(about.get("execution_status"))

    def take(self, event: object, where: str) -> None:
        """An event. None stands for a file that could not be read, and was counted."""
        if not isinstance(event, dict):
            if event is not None:
                self._intake.damaged("event_that_is_no_object", where)
        elif self._draft.full:
            self._intake.damaged("beyond_the_size_limit", where)
        elif "kind" in event:
            self._new.take(event)
        else:
            self._old.take(event)

    def finished(self) -> Trajectory:
        """The trajectory."""
        stop = self._new.stop or self._old.stop
        if stop is None and self._done == "finished":
            stop = StopReason.SUBMITTED
        return self._draft.finished(stop=stop, final_patch=self.patch)


def _conversation(draft: Draft, events: Any, about: dict[str, Any], intake: Intake) -> _Conversation:
    llm = mapping(mapping(about.get("agent")).get("llm")) or mapping(about.get("agent"))
    draft.model = string(llm.get("model")) or string(about.get("llm_model"))
    draft.repo = draft.repo or string(about.get("selected_repository"))
    draft.agent = "openhands"
    if "temperature" in llm or "top_p" in llm:
        draft.left_out["sampling_parameters"] += 1
    conversation = _Conversation(draft, about, intake)
    for number, event in enumerate(events if isinstance(events, list | Iterator) else []):
        conversation.take(event, f"{draft.file}, event {number}")
    return conversation


def _measured(about: dict[str, Any]) -> tuple[dict[str, Usage], dict[str, float]]:
    """Token counts and seconds of sampling by the id of the model's response, which version 1 keeps apart."""
    usages: dict[str, Usage] = {}
    seconds: dict[str, float] = {}
    stats = mapping(about.get("stats"))
    by_service = mapping(stats.get("service_to_metrics")) or mapping(stats.get("usage_to_metrics"))
    for metrics in by_service.values():
        for one in objects(mapping(metrics).get("token_usages")):
            prompt, sampled = count_of(one.get("prompt_tokens")), count_of(one.get("completion_tokens"))
            if prompt is not None and sampled is not None:
                usages[str(one.get("response_id"))] = Usage(
                    prompt_tokens=prompt, sampled_tokens=sampled, cached_tokens=count_of(one.get("cache_read_tokens"))
                )
        for one in objects(mapping(metrics).get("response_latencies")):
            latency = seconds_of(one.get("latency"))
            if latency is not None:
                seconds[str(one.get("response_id"))] = latency
    return usages, seconds
