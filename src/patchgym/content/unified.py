"""Reading patches: git's extended unified diff and the plain one, strictly.

A hunk must hold exactly the lines that its header counts, and what follows a hunk must not look like more of it: a
patch that was cut or miscounted is refused, never applied in part. Lines end at ``\\n`` alone; all else is content.
"""

import base64
import re
import zlib
from dataclasses import dataclass, field

from patchgym.errors import PatchError

_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_MODES = {b"new file mode": "new", b"deleted file mode": "old", b"old mode": "old", b"new mode": "new"}
_MOST_BINARY = 64 * 1024**2
_ESCAPES = {"a": 7, "b": 8, "t": 9, "n": 10, "v": 11, "f": 12, "r": 13, '"': 34, "\\": 92}


@dataclass(frozen=True)
class Hunk:
    """``old`` and ``new`` are the lines of either side with their newlines; ``start`` is the 0-based line at which
    ``old`` is expected; ``changed`` counts added and removed lines."""

    start: int
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]
    changed: int


@dataclass
class FilePatch:
    """The part of a patch that concerns one file. A side without a path does not exist (creation or deletion).

    ``literal`` is the new content of a binary file; ``copied`` says that the source stays.
    """

    source: str | None
    target: str | None
    mode: int | None = None
    copied: bool = False
    literal: bytes | None = None
    hunks: list[Hunk] = field(default_factory=list)


def parse_patch(patch: str) -> list[FilePatch]:
    """The file patches of ``patch``, in order; none for an empty text.

    Raises:
        PatchError: it is no patch, is cut or miscounted, or names a path outside the workspace.
    """
    if not patch.strip():
        return []
    reader = _Reader(patch.encode("utf-8", "surrogateescape").split(b"\n"))
    parts: list[FilePatch] = []
    while not reader.at_end():
        if reader.peek().startswith(b"diff --git "):
            parts.append(_git_part(reader))
        elif reader.peek().startswith(b"--- ") and reader.peek(1).startswith(b"+++ "):
            parts.append(_named(_side(reader.take()[4:], b"a/"), _side(reader.take()[4:], b"b/")))
            _read_hunks(reader, parts[-1])
        else:
            reader.take()
    if not parts:
        raise PatchError("The patch does not parse", why="It names no file: no diff header was found.")
    return parts


class _Reader:
    def __init__(self, lines: list[bytes]) -> None:
        self._lines = lines[:-1] if lines and lines[-1] == b"" else lines
        self._next = 0

    def at_end(self) -> bool:
        return self._next >= len(self._lines)

    def peek(self, ahead: int = 0) -> bytes:
        """A coming line; empty beyond the end."""
        position = self._next + ahead
        return self._lines[position] if position < len(self._lines) else b""

    def take(self) -> bytes:
        line = self.peek()
        self._next += 1
        return line


def _git_part(reader: _Reader) -> FilePatch:
    names = _header_names(reader.take()[len(b"diff --git ") :])
    part = FilePatch(source=names[0], target=names[1])
    while not reader.at_end():
        line = reader.peek()
        key = next((key for key in _MODES if line.startswith(key + b" ")), None)
        if key is not None:
            _set_mode(part, key, reader.take())
        elif line.startswith((b"rename from ", b"copy from ")):
            part.copied = line.startswith(b"copy")
            part.source = _safe(reader.take().split(b" from ", 1)[1])
        elif line.startswith((b"rename to ", b"copy to ")):
            part.target = _safe(reader.take().split(b" to ", 1)[1])
        elif line.startswith((b"index ", b"similarity index ", b"dissimilarity index ")):
            reader.take()
        else:
            break
    if reader.peek().startswith(b"--- ") and reader.peek(1).startswith(b"+++ "):
        source, target = _side(reader.take()[4:], b"a/"), _side(reader.take()[4:], b"b/")
        # A rename's own lines name both sides already; /dev/null must agree with creation and deletion.
        part.source = part.source if source is not None else None
        part.target = part.target if target is not None else None
    elif reader.peek().startswith(b"GIT binary patch"):
        reader.take()
        part.literal = _literal(reader)
        return part
    elif reader.peek().startswith(b"Binary files "):
        raise PatchError("The patch leaves out a binary file's content", mend="Make it with git diff --binary.")
    _read_hunks(reader, part)
    return _named(part.source, part.target, part)


def _set_mode(part: FilePatch, key: bytes, line: bytes) -> None:
    try:
        mode = int(line[len(key) :], 8)
    except ValueError:
        raise PatchError("The patch does not parse", why=f"Not a file mode: {line!r}") from None
    if mode not in (0o100644, 0o100755, 0o120000):
        raise PatchError("The patch holds something other than files", why=f"Its mode is {mode:o}.")
    if key == b"new file mode":
        part.source = None
    if key == b"deleted file mode":
        part.target = None
    if _MODES[key] == "new":
        part.mode = mode


def _named(source: str | None, target: str | None, part: FilePatch | None = None) -> FilePatch:
    if source is None and target is None:
        raise PatchError("The patch does not parse", why="A part of it names no file on either side.")
    return part or FilePatch(source=source, target=target)


def _read_hunks(reader: _Reader, part: FilePatch) -> None:
    while match := _HUNK.match(reader.peek()):
        reader.take()
        part.hunks.append(_hunk(reader, match))
    line = reader.peek()
    if line.startswith(b"@@") or (line[:1] in (b"+", b" ", b"\\") and part.hunks) or _stray_removal(reader):
        raise PatchError("The patch does not parse", why=f"A hunk is longer than its header says, at {line[:80]!r}.")


def _stray_removal(reader: _Reader) -> bool:
    """Whether a removed line comes where none may: neither a file header nor a mail signature."""
    line = reader.peek()
    header = line.startswith(b"--- ") and reader.peek(1).startswith(b"+++ ")
    return line.startswith(b"-") and not header and line not in (b"-- ", b"--")


def _hunk(reader: _Reader, match: re.Match[bytes]) -> Hunk:
    start, old_left, new_left = int(match[1]), int(match[2] or 1), int(match[4] or 1)
    old: list[bytes] = []
    new: list[bytes] = []
    first = start - 1 if old_left else start
    changed = 0
    while old_left > 0 or new_left > 0:
        if reader.at_end():
            raise PatchError("The patch does not parse", why="Its last hunk is cut.")
        line = reader.take()
        mark, text = line[:1] or b" ", line[1:] + b"\n"
        if mark not in (b" ", b"+", b"-") or (mark != b"+" and not old_left) or (mark != b"-" and not new_left):
            raise PatchError("The patch does not parse", why=f"Not a line of its hunk: {line[:80]!r}.")
        changed += mark != b" "
        if mark != b"+":
            old.append(text)
            old_left -= 1
        if mark != b"-":
            new.append(text)
            new_left -= 1
        if reader.peek().startswith(b"\\"):
            reader.take()
            for side in [side for side, unlike in ((old, b"+"), (new, b"-")) if mark != unlike]:
                side[-1] = side[-1][:-1]
    return Hunk(start=first, old=tuple(old), new=tuple(new), changed=changed)


def _literal(reader: _Reader) -> bytes:
    """The forward content of a binary patch; the reverse content behind it is skipped."""
    head = reader.take()
    if not head.startswith(b"literal "):
        raise PatchError("The patch holds a binary delta", mend="Only whole binary content is read: give the new file.")
    packed = bytearray()
    try:
        while line := reader.take():
            size = line[0] - 64 if line[0] <= ord("Z") else line[0] - 70
            packed += base64.b85decode(line[1:])[:size]
        unpacking = zlib.decompressobj()
        data = unpacking.decompress(bytes(packed), _MOST_BINARY)
        if not unpacking.eof:
            raise ValueError(f"It is cut, or longer than {_MOST_BINARY // 1024**2} MB.")
    except (ValueError, zlib.error) as error:
        raise PatchError("The patch's binary content is damaged", why=str(error)) from error
    if reader.peek().startswith((b"literal ", b"delta ")):
        while reader.take():
            pass
    return data


def _header_names(rest: bytes) -> tuple[str | None, str | None]:
    """Both paths of a ``diff --git`` line. Unquoted ones are alike, so that they split in the middle."""
    if rest.startswith(b'"'):
        end = re.match(rb'"(?:[^"\\]|\\.)*"', rest)
        first, second = (rest[: end.end()], rest[end.end() + 1 :]) if end else (rest, b"")
    elif rest.endswith(b'"'):
        first, _, second = rest.partition(b' "')
        second = b'"' + second
    else:
        half = len(rest) // 2
        first, second = rest[:half], rest[half + 1 :]
        if first.removeprefix(b"a/") != second.removeprefix(b"b/"):
            first, _, second = rest.partition(b" b/")
            second = b"b/" + second
    return _side(first, b"a/"), _side(second, b"b/")


def _side(raw: bytes, prefix: bytes) -> str | None:
    """A path of a header line, without its prefix; None for /dev/null. A time stamp behind a tab is left out."""
    name = raw if raw.startswith(b'"') else raw.split(b"\t", 1)[0].rstrip(b"\r")
    plain = _unquoted(name)
    return None if plain == b"/dev/null" else _safe(plain.removeprefix(prefix))


def _unquoted(name: bytes) -> bytes:
    name = name.rstrip()
    if len(name) < 2 or not (name.startswith(b'"') and name.endswith(b'"')):
        return name

    def byte(match: re.Match[bytes]) -> bytes:
        code = match[1].decode("latin-1")
        return bytes([int(code, 8) & 255 if code[0].isdigit() else _ESCAPES.get(code, ord(code))])

    return re.sub(rb"\\([0-7]{3}|.)", byte, name[1:-1], flags=re.DOTALL)


def _safe(raw: bytes) -> str:
    path = _unquoted(raw).decode("utf-8", "surrogateescape")
    parts = path.split("/")
    if "\0" in path or any(part in ("", ".", "..") or part.lower() == ".git" for part in parts):
        raise PatchError(f"The patch names the path {path!r}, which is not inside the workspace")
    return path
