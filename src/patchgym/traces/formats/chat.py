"""Rows of chat messages: nebius, Open-SWE-Traces, SWE-smith, SWE-Gym, mini-coder, NeMo Gym, TRL, ShareGPT, and bare
lists of messages. One row is one trajectory."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from patchgym.records import Trajectory
from patchgym.traces.draft import Draft
from patchgym.traces.formats.conversation import Conversation, tools_of, unpacked
from patchgym.traces.formats.outcome import report_of, reward_of, stop_of
from patchgym.traces.formats.responses import messages_of_response
from patchgym.traces.formats.rows import PARQUET, rows
from patchgym.traces.intake import Intake, text_of

NAME = "chat"
ABOUT = "rows of chat messages, with tools or without (JSONL, JSON, Parquet)"

_MESSAGES = ("messages", "trajectory", "conversations", "conversation", "traj")
_IDS = ("trajectory_id", "traj_id", "id", "uuid")
_TASKS = ("instance_id", "task_id")
_MODELS = ("model", "model_name", "model_name_or_path")
_PATCHES = ("model_patch", "final_patch", "generated_patch", "git_patch", "patch")
_STOPS = ("exit_status", "stop")
_RESOLVED = ("resolved", "target", "success")
_COLUMNS = frozenset(
    {*_MESSAGES, *_IDS, *_TASKS, *_MODELS, *_PATCHES, *_STOPS, *_RESOLVED, "prompt", "completion"}
    | {"repo", "base_commit", "tools", "reward", "agent", "seconds", "response", "responses_create_params"}
)
_IN_HEAD = re.compile(
    rb'\\?"(?:messages|trajectory|conversations?|traj|completion|prompt|response|responses_create_params)\\?"\s*:'
    rb'\s*(?:\[|\{|"\[)'
)
_ROLE_IN_HEAD = re.compile(rb'\\?"(?:role|from)\\?"\s*:\s*\\?"')


def recognises(path: Path, head: bytes) -> bool:
    """See ``Reader.recognises``."""
    if head.startswith(PARQUET):
        return True
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if not start.startswith((b"{", b"[")):
        return False
    bare = start.startswith(b"[") and _ROLE_IN_HEAD.search(start[:200]) is not None
    return (
        bare
        or (_IN_HEAD.search(start) is not None and _ROLE_IN_HEAD.search(start) is not None)
        or (b'"responses_create_params"' in start)
    )


def read(path: Path, intake: Intake) -> Iterator[Trajectory]:
    """See ``Reader.read``.

    Raises:
        PrerequisiteError: it is a Parquet file, and DuckDB is not installed.
    """
    for number, (where, row) in enumerate(rows(path, intake), start=1):
        found = trajectory_of(row, f"{path.stem}-{number}", path.name, intake)
        if found is None:
            intake.damaged("no_messages", where)
        else:
            yield found


def trajectory_of(row: Mapping[str, Any], name: str, file: str, intake: Intake) -> Trajectory | None:
    """The trajectory of a row; None where it holds no messages. ``name`` is its id where the row gives none."""
    row, messages = _with_messages(row)
    if messages is None:
        return None
    own, task = _first(row, _IDS), _first(row, _TASKS)
    draft = Draft(
        id=text_of(own) or text_of(task) or name,
        format=NAME,
        file=file,
        session=text_of(own) or None,
        agent=text_of(row.get("agent")) or None,
        model=text_of(_first(row, _MODELS)) or None,
        repo=text_of(row.get("repo")) or None,
        base_commit=text_of(row.get("base_commit")) or None,
        task_id=text_of(task) or None,
        tools=tools_of(row.get("tools")),
    )
    draft.left_out.update(key for key in row if key not in _COLUMNS and row[key] not in (None, "", [], {}))
    Conversation(draft, intake).read(messages)
    stop, resolved = _first(row, _STOPS), _first(row, _RESOLVED)
    report = report_of(resolved)
    for column, value, read_as in (("exit_status", stop, stop_of(stop)), ("resolved", resolved, report)):
        if value is not None and read_as is None:
            draft.left_out[column] += 1
    patch = next((row[key] for key in _PATCHES if isinstance(row.get(key), str)), None)
    seconds = row.get("seconds")
    known = isinstance(seconds, int | float) and not isinstance(seconds, bool) and seconds >= 0
    trajectory = draft.finished(
        stop=stop_of(stop), final_patch=patch, report=report, total_seconds=seconds if known else None
    )
    return trajectory.model_copy(update={"reward": reward_of(row.get("reward"))})


def _first(row: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((row[key] for key in keys if row.get(key) is not None and row[key] != ""), None)


def _with_messages(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[Any] | None]:
    """The messages of a row, and the row with what lies deeper in it laid open."""
    if isinstance(row.get("response"), dict):
        return messages_of_response(row)
    for key in _MESSAGES:
        found = unpacked(row.get(key))
        if isinstance(found, list) and any(isinstance(item, dict) and _is_message(item) for item in found):
            return row, found
    parts = [unpacked(row.get(key)) for key in ("prompt", "completion")]
    if all(isinstance(part, list) for part in parts):
        return row, [*parts[0], *parts[1]]
    return row, None


def _is_message(item: dict[str, Any]) -> bool:
    return "role" in item or "from" in item
