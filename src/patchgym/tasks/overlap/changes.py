"""The hunks of a patch from anywhere, and the change that they make, token by token.

``patchgym.content`` reads patches strictly, to apply them. Here they are only compared: what is no hunk is passed over,
and a hunk that is cut counts as far as it goes.
"""

import difflib
import re
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from patchgym.tasks.overlap.tokens import code_tokens

_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@(.*)")
_LONGEST_BLOCK = 400


@dataclass(frozen=True)
class HunkText:
    """One hunk: the file that it changes (its new path, or the old one of a file that goes), what git wrote behind the
    ``@@`` (mostly the function's first line), the 0-based line where ``old`` stands, and both sides without line
    ends."""

    path: str
    section: str
    start: int
    old: tuple[str, ...]
    new: tuple[str, ...]


def hunks_of(patch: str) -> list[HunkText]:
    """The hunks of a unified diff, in order; none in a text that is no patch."""
    lines = patch.split("\n")
    found: list[HunkText] = []
    path, at = "", 0
    while at < len(lines):
        line = lines[at]
        match = _HUNK.match(line)
        if match is not None:
            hunk, at = _read_hunk(lines, at + 1, match, path)
            found.append(hunk)
            continue
        if line.startswith(("--- ", "+++ ")):
            name = line[4:].split("\t")[0].strip().strip('"')
            path = path if name == "/dev/null" else re.sub(r"^[ab]/", "", name)
        at += 1
    return found


def reversed_patch(patch: str) -> str:
    """The hunks of ``patch`` the other way round: what it adds is removed and what it removes is added. Only for
    comparison: modes, renames and binary files are left out."""
    parts = []
    for hunk in hunks_of(patch):
        head = f"@@ -{hunk.start + 1},{len(hunk.new)} +{hunk.start + 1},{len(hunk.old)} @@{hunk.section}"
        body = [f"{mark}{line}" for mark, line in _marked_lines(hunk.new, hunk.old)]
        parts.append("\n".join([f"--- a/{hunk.path}", f"+++ b/{hunk.path}", head, *body, ""]))
    return "".join(parts)


def marked_tokens(hunk: HunkText) -> list[str]:
    """A hunk's tokens, each behind a mark: ``-`` removed, ``+`` added, a space where both sides have it. A change of
    comments or whitespace alone leaves no removed and no added token."""
    old, new = ([tuple(code_tokens(line, hunk.path)) for line in side] for side in (hunk.old, hunk.new))
    old, new = [line for line in old if line], [line for line in new if line]
    marked: list[str] = []
    for kind, old_start, old_end, new_start, new_end in _opcodes(old, new):
        before = [token for line in old[old_start:old_end] for token in line]
        after = [token for line in new[new_start:new_end] for token in line]
        if kind == "equal":
            marked += [f" {token}" for token in before]
        elif max(len(before), len(after)) > _LONGEST_BLOCK:  # a rewrite: finding what is common costs more than it says
            marked += [*(f"-{token}" for token in before), *(f"+{token}" for token in after)]
        else:
            marked += _marked_block(before, after)
    return marked


def changed_lines(patch: str) -> str:
    """The removed and added lines of a patch with their marks, for a person to read."""
    hunks = hunks_of(patch)
    return "\n".join(
        f"{mark}{line}" for hunk in hunks for mark, line in _marked_lines(hunk.old, hunk.new) if mark != " "
    )


def _read_hunk(lines: list[str], at: int, match: re.Match[str], path: str) -> tuple[HunkText, int]:
    old_left, new_left = int(match[2] or 1), int(match[4] or 1)
    old: list[str] = []
    new: list[str] = []
    while at < len(lines) and (old_left > 0 or new_left > 0):
        mark, text = lines[at][:1] or " ", lines[at][1:].rstrip("\r")
        if mark == "\\":
            at += 1
            continue
        if mark not in " +-" or (not lines[at] and at == len(lines) - 1):
            break
        if mark != "+":
            old.append(text)
            old_left -= 1
        if mark != "-":
            new.append(text)
            new_left -= 1
        at += 1
    return HunkText(path, match[5], max(int(match[1]) - 1, 0), tuple(old), tuple(new)), at


def _marked_lines(old: tuple[str, ...], new: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for kind, old_start, old_end, new_start, new_end in _opcodes(list(old), list(new)):
        if kind == "equal":
            yield from ((" ", line) for line in old[old_start:old_end])
        else:
            yield from (("-", line) for line in old[old_start:old_end])
            yield from (("+", line) for line in new[new_start:new_end])


def _marked_block(before: list[str], after: list[str]) -> list[str]:
    marked: list[str] = []
    for kind, old_start, old_end, new_start, new_end in _opcodes(before, after):
        if kind == "equal":
            marked += [f" {token}" for token in before[old_start:old_end]]
        else:
            marked += [f"-{token}" for token in before[old_start:old_end]]
            marked += [f"+{token}" for token in after[new_start:new_end]]
    return marked


def _opcodes(old: Sequence[Hashable], new: Sequence[Hashable]) -> list[tuple[str, int, int, int, int]]:
    """How to turn one list into the other. Equal ends, which are most of a small change, are cut off first."""
    head = 0
    while head < min(len(old), len(new)) and old[head] == new[head]:
        head += 1
    tail = 0
    while tail < min(len(old), len(new)) - head and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    old_end, new_end = len(old) - tail, len(new) - tail
    found = [("equal", 0, head, 0, head)] if head else []
    if head in (old_end, new_end):
        if (old_end, new_end) != (head, head):
            found.append(("replace", head, old_end, head, new_end))
    else:
        matcher = difflib.SequenceMatcher(None, old[head:old_end], new[head:new_end], autojunk=False)
        found += [(kind, head + i, head + j, head + k, head + m) for kind, i, j, k, m in matcher.get_opcodes()]
    return [*found, ("equal", old_end, len(old), new_end, len(new))] if tail else found
