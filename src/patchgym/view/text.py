"""Text from tasks, agents and logs, made fit to be looked at: never markup, and nothing in it acts.

Control characters, ANSI escapes, marks that turn the line around, invisible characters and lone surrogates are written
out (``\\x1b``, ``\\u202e``), so that what is shown is what is there.
"""

import re
from typing import NamedTuple

from markupsafe import Markup, escape

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff"
    "\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_UNITS = ("bytes", "KB", "MB", "GB")


class Shown(NamedTuple):
    """A text cut to what a page can hold."""

    text: str
    left_out: int
    """Characters that are not shown."""


class DiffLine(NamedTuple):
    """A line of a unified diff. ``kind``: ``add``, ``del``, ``hunk``, ``file`` or empty for context."""

    kind: str
    text: str


def visible(text: str) -> str:
    """Text in which whatever acts or hides is written out. Line ends of either kind stay line ends."""
    return _ACTING.sub(_written_out, text.replace("\r\n", "\n"))


def shown(text: str) -> Markup:
    """The same as markup: escaped, and what was written out is set apart."""
    parts = []
    at = 0
    text = text.replace("\r\n", "\n")
    for match in _ACTING.finditer(text):
        parts.append(escape(text[at : match.start()]))
        parts.append(Markup('<span class="esc">{}</span>').format(_written_out(match)))
        at = match.end()
    parts.append(escape(text[at:]))
    return Markup("").join(parts)


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def cut(text: str, most: int) -> Shown:
    """The beginning of a text, at a line's end where one is near."""
    if len(text) <= most:
        return Shown(text, 0)
    end = text.rfind("\n", most - most // 8, most) + 1 or most
    return Shown(text[:end], len(text) - end)


def one_line(text: str, most: int = 90) -> str:
    """A text as one line of at most so many characters."""
    line = " ".join(text[: 8 * most].split())
    return line if len(line) <= most and len(text) <= 8 * most else f"{line[: most - 1]}…"


def diff_lines(diff: str) -> list[DiffLine]:
    """A unified diff, line by line."""
    lines = diff.split("\n")
    return [DiffLine(_kind(line), line) for line in (lines[:-1] if lines[-1] == "" else lines)]


def _kind(line: str) -> str:
    if line.startswith(("diff --git ", "--- ", "+++ ", "index ", "new file", "deleted file", "old mode", "new mode")):
        return "file"
    return {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "")


def decoded(data: bytes) -> str:
    """Bytes as text; what is no UTF-8 becomes escapes."""
    return data.decode("utf-8", "surrogateescape")


def is_binary(data: bytes) -> bool:
    """Whether bytes are no text that a person would read."""
    return b"\0" in data[:8192]


def size(count: int) -> str:
    """A number of bytes in words."""
    value = float(count)
    for unit in _UNITS[:-1]:
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "bytes" or value >= 100 else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} {_UNITS[-1]}"


def figure(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash where there is none."""
    if value is None:
        return "–"
    told = f"{value:.{digits}f}"
    return told.removeprefix("-") if not told.strip("-0.") else told


def share(value: float | None) -> str:
    """A share as per cent; a dash where there is none."""
    return "–" if value is None else f"{100 * value:.1f}%" if 0 < abs(value) < 0.1 else f"{100 * value:.0f}%"
