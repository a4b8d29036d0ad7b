"""The two JSON texts inside an R2E-Gym row: a commit taken apart into hunks, and what its tests did before and after.

Of a commit, only what is written here is read: for each file its path, whether it is new, deleted or binary, and its
hunks line by line; and the commit before it. Of the runs, only the summary that ``pytest -rA`` ends with, the names of
the test files and their text.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.content import ObjectStore, apply_patch
from patchgym.errors import PatchError
from patchgym.records import Task
from patchgym.tasks.formats.benchmark import has_files, looks_like_test
from patchgym.tasks.formats.refused import Refused, optional_text, parse_json, shown
from patchgym.tasks.formats.reverse import PatchPart, split_patch

TEST_FOLDER = "r2e_tests"
"""Where R2E-Gym's images hold the tests that decide."""

_MARKS = {"context": " ", "added": "+", "deleted": "-"}
_KINDS = {mark: kind for kind, mark in _MARKS.items()}
_NO_END = "No newline at end of file"
_COLOUR = re.compile(r"(?:\x1b|\\u001b)\[\d*(?:;\d+)*m")
_SUMMARY = re.compile(r"^(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS) (\S+?\.py::.*)$", re.MULTILINE)


class Split(NamedTuple):
    """Tests by what they do: fail before and pass after, or pass both times."""

    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...]


def json_object(value: JsonValue, name: str) -> Mapping[str, JsonValue]:
    """An object, given as such or as JSON text.

    Raises:
        Refused: ``wrong_type``.
    """
    try:
        found = parse_json(value) if isinstance(value, str) else value
    except Refused as error:
        raise Refused("wrong_type", f"{name} is no JSON object: {error.why}") from error
    if not isinstance(found, dict):
        raise Refused("wrong_type", f"{name} is no JSON object: {shown(value)}")
    return found


def gold_of(commit: Mapping[str, JsonValue]) -> str:
    """The patch that a commit is to the files that are no tests.

    Raises:
        Refused: a part of it cannot be read, or is binary.
    """
    return "".join(_file_patch(part) for part in _objects(commit.get("file_diffs"), "file_diffs"))


def _file_patch(part: Mapping[str, JsonValue]) -> str:
    path = _path(_object(part.get("header")).get("file"))
    if path is None:
        raise Refused("wrong_type", "A part of parsed_commit_content names no file.")
    if looks_like_test(path):
        return ""
    if part.get("is_binary_file"):
        raise Refused("broken_patch", f"The commit changes the binary file {path}, and the row does not hold it.")
    misc = optional_text(_object(part.get("header")).get("misc_line")) or ""
    new = misc.startswith("new file") or _path(part.get("minus_file")) == "/dev/null"
    deleted = misc.startswith("deleted file") or _path(part.get("plus_file")) == "/dev/null"
    hunks = [_hunk(hunk) for hunk in _objects(part.get("hunks"), "hunks")]
    if not hunks and not new and not deleted:
        return ""  # only its mode or its name changed
    head = [f"diff --git a/{path} b/{path}"]
    if new or deleted:
        mode = misc.rpartition(" ")[2]
        known = mode if mode in ("100644", "100755", "120000") else "100644"
        head.append(f"{'new' if new else 'deleted'} file mode {known}")
    if hunks:
        head += [f"--- {'/dev/null' if new else f'a/{path}'}", f"+++ {'/dev/null' if deleted else f'b/{path}'}"]
    return "\n".join([*head, *hunks]) + "\n"


def _hunk(hunk: Mapping[str, JsonValue]) -> str:
    descriptor = _object(hunk.get("descriptor"))
    old, new = (_range(_object(descriptor.get(side))) for side in ("old_range", "new_range"))
    section = optional_text(descriptor.get("section"))
    lines = [f"@@ -{old} +{new} @@{f' {section.strip()}' if section else ''}"]
    for line in _objects(_object(hunk.get("line_group")).get("all_lines"), "all_lines"):
        kind, content = line.get("type"), line.get("content")
        if not isinstance(kind, str) or not isinstance(content, str) or (kind not in _MARKS and kind != "note"):
            raise Refused("wrong_type", f"A line of parsed_commit_content is {shown(dict(line))}")
        lines.append(f"\\ {content}" if kind == "note" else _MARKS[kind] + content)
    return "\n".join(lines)


def _range(span: Mapping[str, JsonValue]) -> str:
    start, length = span.get("start"), span.get("length")
    if type(start) is not int or type(length) not in (int, type(None)):
        raise Refused("wrong_type", f"A range of parsed_commit_content is {shown(dict(span))}")
    return f"{start},{length if length is not None else 1}"


def commit_text(task: Task, objects: ObjectStore) -> str:
    """A gold patch as ``parsed_commit_content``, with the files before and after where the task has files."""
    before = {path: entry.id for path, entry in objects.entries(task.workspace).items()} if has_files(task) else {}
    after: dict[str, str] = {}
    if before:
        try:
            solved = apply_patch(objects, task.workspace, task.gold_patch)
        except PatchError as error:
            raise Refused("gold_does_not_apply", str(error)) from error
        after = {path: entry.id for path, entry in objects.entries(solved).items()}

    def content(side: Mapping[str, str], path: str) -> str:
        return objects.get(side[path]).decode("utf-8", "replace") if path in side else ""

    diffs: list[JsonValue] = []
    for part in split_patch(task.gold_patch):
        path, parsed = _parsed_part(part)
        diffs.append({**parsed, "old_file_content": content(before, path), "new_file_content": content(after, path)})
    document: JsonValue = {
        "file_diffs": diffs,
        "old_commit_hash": task.source.base_commit or "",
        "new_commit_hash": task.source.fix_commit or "",
        "commit_message": "",
        "commit_date": task.source.created_at.isoformat() if task.source.created_at else "",
    }
    return json.dumps(document)


def _parsed_part(part: PatchPart) -> tuple[str, dict[str, JsonValue]]:
    names = {line[:4]: line[4:].split("\t", 1)[0] for line in part.head if line.startswith(("--- ", "+++ "))}
    minus, plus = names.get("--- ", ""), names.get("+++ ", "")
    header = next((line for line in part.head if line.startswith("diff --git ")), "")
    path = (plus if plus not in ("", "/dev/null") else minus)[2:] or header.rpartition(" b/")[2]
    misc = next((line for line in part.head if line.startswith(("new file mode", "deleted file mode"))), None)
    hunks: list[JsonValue] = []
    for hunk in part.hunks:
        lines: list[JsonValue] = [_parsed_line(line) for line in hunk.lines]
        hunks.append(
            {
                "descriptor": {
                    "old_range": {"start": hunk.old[0], "length": hunk.old[1]},
                    "new_range": {"start": hunk.new[0], "length": hunk.new[1]},
                    "section": hunk.section.strip(),
                },
                "line_group": {"all_lines": lines},
            }
        )
    return path, {
        "header": {"file": {"path": path}, "misc_line": misc},
        "is_binary_file": bool(part.binary),
        "minus_file": {"path": minus},
        "plus_file": {"path": plus},
        "hunks": hunks,
    }


def _parsed_line(line: str) -> JsonValue:
    if line.startswith("\\"):
        return {"content": line[1:].strip() or _NO_END, "type": "note"}
    return {"content": line[1:], "type": _KINDS[line[:1] or " "]}


def tests_of(expected: Mapping[str, JsonValue], execution: Mapping[str, JsonValue]) -> Split:
    """The tests that are expected to pass, as pytest ids where the run after the fix names them.

    Where the run before the fix is not there, which of them failed is not known, and none counts as fail-to-pass.
    """
    wanted = list(dict.fromkeys(_plain(name) for name, outcome in expected.items() if outcome == "PASSED"))
    before = _outcomes(execution.get("old_commit_res_stdout"))
    ids: dict[str, list[str]] = {}
    for test in _outcomes(execution.get("new_commit_res_stdout")):
        ids.setdefault(short_name(test), []).append(test)
    passed_before = {short_name(test) for test, outcome in before.items() if outcome == "PASSED"}
    failing = dict.fromkeys(name for name in wanted if before and name not in passed_before)

    def full(names: Iterable[str]) -> tuple[str, ...]:
        return tuple(test for name in names for test in ids.get(name, [name]))

    return Split(full(failing), full(name for name in wanted if name not in failing))


def short_name(test: str) -> str:
    """A pytest id as R2E-Gym's map names it: without its file, and with dots."""
    return ".".join(test.split("::")[1:]) or test


def _plain(name: str) -> str:
    return _COLOUR.sub("", name).split(" - ")[0]


def _outcomes(log: JsonValue) -> dict[str, str]:
    if not isinstance(log, str):
        return {}
    return {match[2].split(" - ")[0].strip(): match[1] for match in _SUMMARY.finditer(_COLOUR.sub("", log))}


def _path(value: JsonValue) -> str | None:
    return optional_text(_object(value).get("path"))


def _object(value: JsonValue) -> Mapping[str, JsonValue]:
    return value if isinstance(value, dict) else {}


def _objects(value: JsonValue, name: str) -> list[Mapping[str, JsonValue]]:
    if not isinstance(value, list):
        raise Refused("not_a_list", f"{name} of parsed_commit_content is {shown(value)}")
    return [_object(item) for item in value]
