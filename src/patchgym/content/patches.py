"""Patches between trees, in git's format, made and applied without a work tree and without the git program.

Files that are not UTF-8 text travel as ``GIT binary patch`` literals, so that a patch is always valid UTF-8 and always
applies byte for byte. Application is exact: context must match at the stated line (hunks shift with those before them).
"""

import base64
import difflib
import re
import zlib
from collections.abc import Callable

from dulwich.patch import FilePatch, apply_patch_hunks, git_base85_decode, parse_unified_diff

from patchgym.content.objects import FILE, Entry, ObjectStore
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
    for part in _parse(patch):
        source, target = _paths(part)
        if not all(allow(path) for path in (source, target) if path is not None):
            continue
        current = changes.get(source, entries.get(source)) if source is not None else None
        if source is not None and current is None:
            raise PatchError(f"The patch does not apply: there is no file {source}")
        data = store.get(current.id) if current is not None else b""
        if source is not None and source != target and part.copy_from is None:
            changes[source] = None
        if target is not None:
            changes[target] = Entry(
                part.new_mode or (current.mode if current else FILE), store.put(_patched(part, data))
            )
    return store.update_tree(tree_id, changes)


def patched_paths(patch: str) -> tuple[str, ...]:
    """Every path that a patch reads, writes or removes, sorted.

    Raises:
        PatchError: it does not parse or leaves the root.
    """
    return tuple(sorted({path for part in _parse(patch) for path in _paths(part) if path is not None}))


def patch_scope(patch: str) -> Scope:
    """Files, hunks and added plus removed lines of a patch."""
    parts = _parse(patch)
    hunks = [hunk for part in parts for hunk in part.hunks]
    lines = sum(line[:1] in (b"+", b"-") for hunk in hunks for line in hunk.lines)
    return Scope(files=len(parts), hunks=len(hunks), lines=lines)


def _parse(patch: str) -> list[FilePatch]:
    data = patch.encode("utf-8", "surrogateescape")
    if not data.strip():
        return []
    try:
        parts = parse_unified_diff(data)
    except (ValueError, IndexError, AssertionError) as error:
        raise PatchError("The patch does not parse", why=str(error)) from error
    if not parts:
        raise PatchError("The patch does not parse", why="It names no file (no diff header was found).")
    return parts


def _paths(part: FilePatch) -> tuple[str | None, str | None]:
    """(source, target), relative and inside the root; None for /dev/null."""
    source = part.rename_from or part.copy_from or part.old_path
    target = part.rename_to or part.copy_to or part.new_path
    return _safe(source), _safe(target)


def _safe(raw: bytes | None) -> str | None:
    if raw is None:
        return None
    path = raw.decode("utf-8", "surrogateescape")
    parts = path.split("/")
    if path.startswith("/") or "\0" in path or any(part in ("", ".", "..", ".git") for part in parts):
        raise PatchError(f"The patch names the path {path!r}, which is not inside the workspace")
    return path


def _patched(part: FilePatch, data: bytes) -> bytes:
    name = (part.new_path or part.old_path or b"?").decode("utf-8", "replace")
    if part.binary:
        if part.binary_new is None or part.binary_new_delta:
            raise PatchError(
                f"The patch holds no usable binary content for {name}", mend="Make it with git diff --binary."
            )
        try:
            return zlib.decompress(git_base85_decode(part.binary_new))
        except (ValueError, zlib.error) as error:
            raise PatchError(f"The patch's binary content for {name} is damaged", why=str(error)) from error
    if not part.hunks:
        return data
    lines = apply_patch_hunks(part, data.splitlines(keepends=True) if b"\r" not in data else _lines(data))
    if lines is None:
        raise PatchError(f"The patch does not apply to {name}", why="The lines that it expects are not there.")
    return b"".join(lines)


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
