"""A statement without what gives the answer away."""

import re
from collections.abc import Iterable, Iterator

from patchgym.tasks.gates.statement.leak import Leak
from patchgym.tasks.gates.statement.pointers import REFERENCE, is_commit_at, is_diff

_FENCE = re.compile(
    r"^[ \t]{0,8}(`{3,8}|~{3,8})(?![`~])[^\n]*\n(.*?)(?:^[ \t]{0,8}\1[ \t]*(?:\n|\Z)|\Z)", re.MULTILINE | re.DOTALL
)
_SENTENCE = re.compile(r"(?<=[.!?])(?=\s)|(?<=[。！？；])")
_COMMIT = re.compile(
    r"[ \t]?[(\[]?(?:\b(?:in|by|with|see|from|of|since|as of)\s+)?"
    r"(?:\b(?:commit|changeset|revision|sha)\s*:?\s*)?[`'\"]?(?<![\w#/-])(?P<sha>[0-9a-f]{7,40})(?![\w-])[`'\"]?[)\]]?",
    re.IGNORECASE,
)
_EMPTY = re.compile(r"\(\s*\)|\[\s*\]")
_TWICE = re.compile(r"([.!?])[ \t]+[.!?](?=\s|$)")
_HOLLOW = re.compile(r"(?:[,;]?[ \t]{0,3}\b(?:see|cf|via|in|by)\.?)?[ \t]{1,3}\)")
_BARE = re.compile(r"[\W\d_]*")
_TRAILER = re.compile(
    r"^(?:signed-off-by|co-authored-by|reviewed-by|change-id|cherry picked from|git-svn-id|refs?|see also|fixes|closes)"
    r"\b[^\n]{0,20}:?[ \t]*(?:#\d+|[0-9a-f]{7,40}\b|[^\n]*<[^>\n]*@[^>\n]*>)[^\n]*$",
    re.IGNORECASE | re.MULTILINE,
)
_PHRASES = frozenset({"commit", "reference"})


def scrub(statement: str, leaks: Iterable[Leak]) -> str:
    """``statement`` without the sentences (in lists and code: the lines) that hold a leak; empty where nothing is left.

    Commits and references lose only themselves, not their sentence. Dropped whether they are among the leaks or not:
    ids of commits, links to commits and pull requests, "Fixes #12", sign-offs, and code blocks that hold a diff. A
    statement that none of this is in comes back as it was, but for white space at its ends.
    """
    spans = [(leak.start, leak.end) for leak in leaks if leak.kind not in _PHRASES and leak.end > leak.start]
    kept: list[str] = []
    for start, end, code in _blocks(statement):
        text = statement[start:end]
        if code:
            if not is_diff(text):
                kept.append(_without(statement, list(_lines(statement, start, end)), spans))
        else:
            kept.append(_without(statement, list(_sentences(statement, start, end)), spans))
            if is_diff(kept[-1]):
                kept[-1] = _before_diff(kept[-1])
    text = _TRAILER.sub("", "".join(kept))
    text = "\n".join(_clean_line(line) for line in text.split("\n"))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Prose and fenced code, in order: start, end, whether it is code."""
    at = 0
    for match in _FENCE.finditer(text):
        yield at, match.start(), False
        yield match.start(), match.end(), True
        at = match.end()
    yield at, len(text), False


def _lines(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while start < end:
        stop = text.find("\n", start, end) + 1 or end
        yield start, stop
        start = stop


def _sentences(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    for head, tail in _lines(text, start, end):
        if re.match(r"\s*(?:[-*•+]|\d+[.)])\s", text[head:tail]):
            yield head, tail
            continue
        at = head
        for match in _SENTENCE.finditer(text, head, tail):
            yield at, match.start()
            at = match.start()
        yield at, tail


def _without(text: str, units: list[tuple[int, int]], spans: list[tuple[int, int]]) -> str:
    """The units that no span touches; a dropped one leaves its line end."""
    kept = []
    for start, end in units:
        if any(start < stop and head < end for head, stop in spans):
            kept.append("\n" if text[start:end].endswith("\n") else "")
        else:
            kept.append(text[start:end])
    return "".join(kept)


def _clean_line(line: str) -> str:
    """A line without commits and references; nothing where nothing but punctuation is left of it."""
    cleaned = REFERENCE.sub("", line)
    cleaned = _COMMIT.sub(lambda match: "" if is_commit_at(line, match["sha"]) else match[0], cleaned)
    if cleaned == line:
        return line
    cleaned = _HOLLOW.sub(")", _TWICE.sub(r"\1", cleaned))
    cleaned = re.sub(r"[ \t]+([.,;:!?])", r"\1", _EMPTY.sub("", cleaned))
    cleaned = re.sub(r"(?<=\S)[ \t]{2,}", " ", cleaned).rstrip()
    return "" if _BARE.fullmatch(cleaned) else cleaned


def _before_diff(text: str) -> str:
    """Prose up to a diff that stands in it without a fence; what follows the diff cannot be told from it."""
    lines = text.split("\n")
    first = next(number for number, line in enumerate(lines) if is_diff(line))
    return "\n".join(lines[:first])
