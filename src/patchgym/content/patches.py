"""Patches between trees, in git's format, made and applied without a work tree and without the git program.

Files that are not UTF-8 text travel as ``GIT binary patch`` literals, so that a patch is always valid UTF-8 and always
applies byte for byte. A hunk applies where its old lines stand: at the stated line, else at the nearest place.
"""

import base64
import difflib
import re
import zlib
from collections.abc import Callable

from patchgym.content.objects import FILE, Entry, ObjectStore
from patchgym.content.unified import FilePatch, Hunk, parse_patch
from patchgym.errors import PatchError
from patchgym.records import Scope

_NO_NEWLINE = "\\ No newline at end of file\n"
_B85_LINE = 52


def diff_trees(store: ObjectStore, before: str, after: str) -> str:
    """The patch that turns tree ``before`` into tree ``after``. Renames appear as a removal and an addition."""
    if before == after:
        return ""
    old, new = store.entries(before), store.entries(after)
    changed = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return "".join(_diff_file(store, path, old.get(path), new.get(path)) for path in changed)


def apply_patch(
    store: ObjectStore, tree_id: str, patch: str, *, allow: Callable[[str], bool] = lambda path: True
) -> str:
    """The tree that results from applying ``patch``; files whose path ``allow`` refuses are skipped.

    Raises:
        PatchError: it does not parse, leaves the root, or does not apply.
    """
    entries = store.entries(tree_id)
    changes: dict[str, Entry | None] = {}
    for part in parse_patch(patch):
        if not all(allow(path) for path in (part.source, part.target) if path is not None):
            continue
        current = None
        if part.source is not None:
            current = changes.get(part.source, entries.get(part.source))
            if current is None:
                raise PatchError(f"The patch does not apply: there is no file {part.source}")
            if part.source != part.target and not part.copied:
                changes[part.source] = None
        elif part.target is not None and changes.get(part.target, entries.get(part.target)) is not None:
            raise PatchError(f"The patch does not apply: it creates {part.target}, which is there already")
        if part.target is not None:
            data = patched_file(part, store.get(current.id) if current else b"")
            changes[part.target] = Entry(part.mode or (current.mode if current else FILE), store.put(data))
    return store.update_tree(tree_id, changes)


def patched_paths(patch: str) -> tuple[str, ...]:
    """Every path that a patch reads, writes or removes, sorted.

    Raises:
        PatchError: it does not parse or leaves the root.
    """
    found = {path for part in parse_patch(patch) for path in (part.source, part.target) if path is not None}
    return tuple(sorted(found))


def patch_scope(patch: str) -> Scope:
    """Files, hunks and added plus removed lines of a patch. A binary file counts as no hunk.

    Raises:
        PatchError: it does not parse or leaves the root.
    """
    parts = parse_patch(patch)
    hunks = [hunk for part in parts for hunk in part.hunks]
    return Scope(files=len(parts), hunks=len(hunks), lines=sum(hunk.changed for hunk in hunks))


def patched_file(part: FilePatch, data: bytes) -> bytes:
    """The content of one file after its part of a patch, from the content before.

    Raises:
        PatchError: a hunk does not apply.
    """
    if part.literal is not None:
        return part.literal
    lines = _lines(data)
    shift = 0
    for hunk in part.hunks:
        place = _place(lines, hunk, hunk.start + shift)
        if place is None:
            raise PatchError(
                f"The patch does not apply to {part.source or part.target}",
                why=f"The lines that the hunk at line {hunk.start + 1} expects are not there.",
            )
        lines[place : place + len(hunk.old)] = hunk.new
        shift = place - hunk.start + len(hunk.new) - len(hunk.old)
    return b"".join(lines)


def _place(lines: list[bytes], hunk: Hunk, expected: int) -> int | None:
    """Where the hunk's old lines stand, nearest to where they are expected."""
    size = len(hunk.old)
    if not size:
        return expected if 0 <= expected <= len(lines) else None
    places = [at for at in range(len(lines) - size + 1) if tuple(lines[at : at + size]) == hunk.old]
    return min(places, key=lambda at: abs(at - expected), default=None)


def _lines(data: bytes) -> list[bytes]:
    """Lines by newline alone: a lone carriage return is content, not an ending."""
    return re.findall(rb"[^\n]*\n|[^\n]+", data)


def _diff_file(store: ObjectStore, path: str, old: Entry | None, new: Entry | None) -> str:
    a, b = _quoted(f"a/{path}"), _quoted(f"b/{path}")
    head = [f"diff --git {a} {b}\n"]
    if old is None and new is not None:
        head.append(f"new file mode {new.mode:o}\n")
    elif new is None and old is not None:
        head.append(f"deleted file mode {old.mode:o}\n")
    elif old is not None and new is not None and old.mode != new.mode:
        head.append(f"old mode {old.mode:o}\nnew mode {new.mode:o}\n")
    if old is not None and new is not None and old.id == new.id:
        return "".join(head)
    zero = "0" * 40
    head.append(f"index {old.id if old else zero}..{new.id if new else zero}\n")
    before, after = (store.get(entry.id) if entry else b"" for entry in (old, new))
    try:
        texts = before.decode("utf-8"), after.decode("utf-8")
    except UnicodeDecodeError:
        texts = None
    if texts is None or b"\0" in before or b"\0" in after:
        return "".join(head) + "GIT binary patch\n" + _binary(after) + _binary(before)
    body = _unified(*texts, a if old else "/dev/null", b if new else "/dev/null")
    return "".join(head) + body


def _unified(before: str, after: str, a: str, b: str) -> str:
    old, new = (re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, after))
    lines = list(difflib.unified_diff(old, new, a, b, lineterm="\n"))
    return "".join(line if line.endswith("\n") else f"{line}\n{_NO_NEWLINE}" for line in lines)


def _binary(data: bytes) -> str:
    """One ``literal`` section of git's binary patch format (``Documentation/gitformat-patch``): base85 lines of at most
    52 bytes, each led by its length (A-Z for 1-26, a-z for 27-52)."""
    packed = zlib.compress(data)
    lines = []
    for start in range(0, len(packed), _B85_LINE):
        chunk = packed[start : start + _B85_LINE]
        length = chr(ord("A") + len(chunk) - 1) if len(chunk) <= 26 else chr(ord("a") + len(chunk) - 27)
        lines.append(length + base64.b85encode(chunk, pad=True).decode() + "\n")
    return f"literal {len(data)}\n{''.join(lines)}\n"


def _quoted(path: str) -> str:
    """A path as git writes it: C-quoted where it holds anything beyond plain printable characters."""
    raw = path.encode("utf-8", "surrogateescape")
    if all(32 <= byte < 127 and byte not in b'"\\' for byte in raw):
        return path
    escaped = "".join(
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in raw
    )
    return f'"{escaped}"'
