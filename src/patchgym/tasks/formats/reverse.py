"""Turning a patch round without the files that it applies to.

A patch is taken apart into the very lines that it is written in. What a patch does not hold cannot be turned round:
where a copy came from, or what a binary file held before.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from patchgym.content.unified import parse_patch
from patchgym.errors import PatchError

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)", re.DOTALL)
_SWAPPED = {
    "old mode ": "new mode ",
    "new mode ": "old mode ",
    "new file mode ": "deleted file mode ",
    "deleted file mode ": "new file mode ",
    "rename from ": "rename to ",
    "rename to ": "rename from ",
    "--- ": "+++ ",
    "+++ ": "--- ",
}
_FIRST = ("old mode ", "rename from ", "--- ")  # of two lines that change places, the one that stands first
_SIDES = {"a/": "b/", "b/": "a/"}


@dataclass
class PatchHunk:
    """A hunk as it is written: both ranges (``start``, ``count``), what follows them in its header, and its lines
    without their ends, markers of a missing end among them."""

    old: tuple[int, int]
    new: tuple[int, int]
    section: str
    lines: list[str] = field(default_factory=list)


@dataclass
class PatchPart:
    """What a patch says of one file: the lines before its hunks, its hunks, and the lines of a binary change."""

    head: list[str] = field(default_factory=list)
    hunks: list[PatchHunk] = field(default_factory=list)
    binary: list[str] = field(default_factory=list)


def split_patch(patch: str) -> list[PatchPart]:
    """A patch by file and hunk. What stands before the first file, and between files, is left out.

    Raises:
        PatchError: it does not parse.
    """
    parse_patch(patch)  # counts and names are right from here on
    lines = patch.split("\n")
    parts: list[PatchPart] = []
    at = 0
    while at < len(lines):
        line, following = lines[at], lines[at + 1] if at + 1 < len(lines) else ""
        names = line.startswith("--- ") and following.startswith("+++ ")
        if line.startswith("diff --git "):
            parts.append(PatchPart([line]))
        elif names:
            if not parts or parts[-1].hunks or parts[-1].head[-1].startswith("+++ "):
                parts.append(PatchPart())
            parts[-1].head += [line, following]
            at += 1
        elif parts and (match := _HUNK.fullmatch(line)):
            parts[-1].hunks.append(_hunk(match))
            at = _take_hunk(parts[-1].hunks[-1], lines, at + 1) - 1
        elif parts and (line == "GIT binary patch" or parts[-1].binary):
            parts[-1].binary.append(line)
        elif parts and not parts[-1].hunks and _is_head(line):
            parts[-1].head.append(line)
        at += 1
    return parts


def reverse_patch(patch: str) -> str:
    """The patch that undoes ``patch``. Turned round twice, a patch as git writes it is what it was.

    Raises:
        PatchError: it does not parse, copies a file, or changes a binary file without saying what it held before.
    """
    return "".join(f"{line}\n" for part in split_patch(patch) for line in _reversed_part(part))


def _is_head(line: str) -> bool:
    known = (*_SWAPPED, "copy from ", "copy to ", "index ", "similarity index ", "dissimilarity index ")
    return line.startswith(known)


def _hunk(match: re.Match[str]) -> PatchHunk:
    old = int(match[1]), int(match[2] or 1)
    new = int(match[3]), int(match[4] or 1)
    return PatchHunk(old, new, match[5])


def _take_hunk(hunk: PatchHunk, lines: list[str], at: int) -> int:
    """Read a hunk's lines; the index behind them."""
    old, new = hunk.old[1], hunk.new[1]
    while old > 0 or new > 0 or (at < len(lines) and lines[at].startswith("\\")):
        mark = lines[at][:1] or " "
        old -= mark in " -"
        new -= mark in " +"
        hunk.lines.append(lines[at])
        at += 1
    return at


def _reversed_part(part: PatchPart) -> Iterator[str]:
    renamed = _renamed(part)
    pending: dict[str, str] = {}
    for line in part.head:
        key = next((key for key in _SWAPPED if line.startswith(key)), None)
        if line.startswith("copy "):
            raise PatchError("The patch copies a file", why="It does not say what undoes a copy.")
        if line.startswith("diff --git ") and renamed is not None:
            yield f"diff --git {renamed}"
        elif line.startswith("index "):
            yield re.sub(r"^index (\w+)\.\.(\w+)", r"index \2..\1", line)
        elif key is None:
            yield line
        elif key.startswith(("new file", "deleted file")):
            yield _SWAPPED[key] + line.removeprefix(key)
        elif _SWAPPED[key] in pending:  # the second of two: now both, the other way round
            yield from sorted(
                [_turned(key, line), pending.pop(_SWAPPED[key])], key=lambda found: not found.startswith(_FIRST)
            )
        else:
            pending[key] = _turned(key, line)
    yield from pending.values()
    for hunk in part.hunks:
        yield from _reversed_hunk(hunk)
    yield from _reversed_binary(part.binary)


def _turned(key: str, line: str) -> str:
    name = line.removeprefix(key)
    if key in ("--- ", "+++ "):
        name = re.sub(r'^("?)([ab]/)', lambda match: match[1] + _SIDES[match[2]], name)
    return _SWAPPED[key] + name


def _renamed(part: PatchPart) -> str | None:
    """Both names for the header of a rename that is turned round."""
    keys = ("rename from ", "rename to ")
    found = {key: line.removeprefix(key) for line in part.head for key in keys if line.startswith(key)}
    if len(found) < 2:
        return None
    return f"{_prefixed('a/', found['rename to '])} {_prefixed('b/', found['rename from '])}"


def _prefixed(side: str, name: str) -> str:
    return f'"{side}{name[1:]}' if name.startswith('"') else side + name


def _reversed_hunk(hunk: PatchHunk) -> Iterator[str]:
    yield f"@@ -{_range(hunk.new)} +{_range(hunk.old)} @@{hunk.section}"
    removed: list[str] = []
    added: list[str] = []
    last: list[str] | None = None
    for line in hunk.lines:
        if line.startswith("\\") and last is not None:
            last.append(line)
        elif line.startswith(("+", "-")):
            last = removed if line[0] == "+" else added
            last.append(("-" if line[0] == "+" else "+") + line[1:])
        else:
            yield from (*removed, *added)
            yield line
            removed, added, last = [], [], None
            if line.startswith("\\"):
                continue
    yield from (*removed, *added)


def _range(span: tuple[int, int]) -> str:
    return str(span[0]) if span[1] == 1 else f"{span[0]},{span[1]}"


def _reversed_binary(lines: list[str]) -> Iterator[str]:
    """Both sections of a binary change, in the other order."""
    if not lines:
        return
    sections: list[list[str]] = [[]]
    for line in lines[1:]:
        if line:
            sections[-1].append(line)
        elif sections[-1]:
            sections.append([])
    full = [section for section in sections if section]
    if len(full) < 2 or not full[1][0].startswith("literal "):
        raise PatchError(
            "The patch changes a binary file and cannot be turned round",
            why="It does not hold the whole of what the file was before.",
        )
    yield lines[0]
    for section in (full[1], full[0]):
        yield from (*section, "")
