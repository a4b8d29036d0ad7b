"""Differences between two states of a workspace, as far as a page can show them.

An agent may write anything: what is large, binary or has very many lines is named with its size, and not compared.
"""

import difflib
from collections.abc import Sequence
from typing import NamedTuple

from patchgym.content import Entry, ObjectStore
from patchgym.content.objects import EXECUTABLE, SYMLINK
from patchgym.view.text import DiffLine, decoded, diff_lines, is_binary, size

_MOST_BYTES = 400_000
_MOST_LINES = 6_000
_MOST_FILES = 60
_MOST_SHOWN = 2_000


class FileDiff(NamedTuple):
    """What happened to one file. ``note`` says why its lines are not shown, where they are not."""

    path: str
    how: str
    """``added``, ``removed`` or ``changed``."""
    lines: Sequence[DiffLine]
    note: str
    left_out: int
    """Lines of the difference that are not shown."""


class StateDiff(NamedTuple):
    """The files that differ, the first ones, and how many more there are."""

    files: Sequence[FileDiff]
    more: int


def compare(objects: ObjectStore, before: str, after: str) -> StateDiff:
    """What differs between two trees.

    Raises:
        DataError: part of them is missing.
    """
    changes = objects.changes(before, after)
    files = [_file(objects, path, *changes[path]) for path in sorted(changes)[:_MOST_FILES]]
    return StateDiff(files, max(0, len(changes) - _MOST_FILES))


def patch_files(patch: str) -> StateDiff:
    """A recorded patch, file by file, as it stands there."""
    files: list[FileDiff] = []
    lines: list[DiffLine] = []
    left = 0
    for line in diff_lines(patch):
        starts = line.text.startswith("diff --git ") or not files
        if starts:
            lines, left = [], 0
            files.append(FileDiff(_name(line.text), "changed", lines, "", 0))
        if len(lines) < _MOST_SHOWN:
            lines.append(line)
        else:
            left += 1
            files[-1] = files[-1]._replace(left_out=left)
    return StateDiff(files[:_MOST_FILES], max(0, len(files) - _MOST_FILES))


def _name(header: str) -> str:
    return header.rpartition(" b/")[2] if " b/" in header else "patch"


def _file(objects: ObjectStore, path: str, old: Entry | None, new: Entry | None) -> FileDiff:
    how = "added" if old is None else "removed" if new is None else "changed"
    before = objects.get(old.id) if old is not None else b""
    after = objects.get(new.id) if new is not None else b""
    note = _mode_note(old, new)
    if is_binary(before) or is_binary(after):
        return FileDiff(path, how, (), f"{note}binary, {size(len(before))} before and {size(len(after))} after", 0)
    if max(len(before), len(after)) > _MOST_BYTES or max(before.count(b"\n"), after.count(b"\n")) > _MOST_LINES:
        sizes = f"{size(len(before))} before and {size(len(after))} after"
        return FileDiff(path, how, (), f"{note}too large to compare here: {sizes}", 0)
    found = list(difflib.unified_diff(decoded(before).split("\n"), decoded(after).split("\n"), lineterm="", n=3))[2:]
    lines = [line for text in found[:_MOST_SHOWN] for line in diff_lines(text)[:1] or [DiffLine("", "")]]
    return FileDiff(path, how, lines, note.removesuffix("; "), max(0, len(found) - _MOST_SHOWN))


def _mode_note(old: Entry | None, new: Entry | None) -> str:
    if old is None or new is None or old.mode == new.mode:
        entry = new or old
        return "symbolic link; " if entry is not None and entry.mode == SYMLINK else ""
    return "made executable; " if new.mode == EXECUTABLE else "mode changed; "
