"""Where secrets and personal data stand in a text.

A text is searched for the literals of the rules, at the speed of ``bytes.find``; only around each is a pattern tried,
whose repetitions all have bounds. So the time is linear in the text, whatever stands in it.

Most literals begin a token of at least 20 characters, and most text holds few such tokens: they are picked out first,
and the literals are looked for in them alone.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from patchgym.redact.known import Known
from patchgym.redact.rules import Rule, rules
from patchgym.redact.words import Hit

MARKER = re.compile(rb"<redacted:([a-z0-9_]{1,40}):([0-9]{1,9})>")
"""What a secret is replaced by."""

_LONG = 20
_SMALL = b"abcdefghijklmnopqrstuvwxyz_.-"  # what names of files and functions consist of, and no key
_SHORTEST = 6
_SPACES = bytes(
    byte if chr(byte) in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-" else 0x20
    for byte in range(256)
)
# What may end right before a secret though it ends with a letter or a digit: an escape of JSON or of a URL, of mail, a
# colour of the terminal.
_ESCAPE = re.compile(
    rb"(?:\\[abfnrtv0]|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|%[0-9A-Fa-f]{2}|=[0-9A-F]{2}|\[[0-9;]{0,8}m)\Z"
)
_ESCAPE_LENGTH = 12
_LEADING_COLOUR = re.compile(rb"[0-9]{0,3}m")
_LEADING_ESCAPE = re.compile(rb"[abfnrtv]|u[0-9A-Fa-f]{4}")
_SOFT_BREAK = re.compile(rb"=[ \t]{0,8}\r?\n")


class Found(NamedTuple):
    """A secret: the bytes from ``start`` to ``end``. ``same`` is equal for equal secrets."""

    start: int
    end: int
    kind: str
    same: bytes


class _Span(NamedTuple):
    start: int
    end: int
    rank: int
    kind: str
    same: bytes


def find(data: bytes, known: Known | None = None, windows: Sequence[tuple[int, int]] | None = None) -> list[Found]:
    """Every secret of a text, in its order; none overlap. ``known`` are secrets that are looked for as they are.
    ``windows`` are the parts of the text where anchors are looked for (all of it); patterns see beyond them."""
    if len(data) < _SHORTEST:
        return []
    spans = list(_spans(data, windows or ((0, len(data)),)))
    if known is not None:
        spans += [_Span(start, end, -1, "known_secret", same) for start, end, same in known.find(data)]
    if b"uoted-printable" in data or b"UOTED-PRINTABLE" in data:
        spans += _across_soft_breaks(data, known)
    return _merged(data, spans) if spans else []


def _spans(data: bytes, windows: Sequence[tuple[int, int]]) -> Iterator[_Span]:
    lowered = data.lower()
    words = set(data.translate(_SPACES).split())
    tokens = b" ".join([word for word in words if len(word) >= _LONG and word.translate(None, _SMALL)])
    plain = b" ".join(words)
    searches = _searches()
    live = [one for needle, one in searches.words if needle in plain]
    live += [one for needle, one in searches.others if needle in (lowered if one.fold else data)]
    if tokens:
        live += [one for needle, one in searches.tokens if needle in tokens and one.begins_in(tokens)]
        yield from _inside(data, tokens)
    plain = plain.lower()
    live += [one for needle, one in searches.folded if needle in plain]
    for search in live:
        text = lowered if search.fold else data
        for low, high in windows:
            at = text.find(search.needle, low, high)
            while at >= 0:
                for rule, anchor, offset in search.anchors:
                    if text.startswith(anchor, at - offset):
                        span = _match(rule, data, at - offset, len(anchor))
                        if span is not None:
                            yield span
                at = text.find(search.needle, at + 1, high)


def _inside(data: bytes, tokens: bytes) -> Iterator[_Span]:
    """What the rules without anchors find: in the whole text, once one of its long tokens shows that it is worth it."""
    for rule in _searches().within:
        if any(_judged(rule, tokens, match) for match in rule.after.finditer(tokens)):
            for match in rule.after.finditer(data):
                if _judged(rule, data, match):
                    start = _after_escape(data, match.start(), match.end())
                    yield _Span(start, match.end(), rule.rank, rule.kind, match["secret"])


def _judged(rule: Rule, data: bytes, match: re.Match[bytes]) -> bool:
    return rule.judge(Hit(data, match.start(), match.start(), match, match["secret"]), rule.words)


def _after_escape(data: bytes, start: int, end: int) -> int:
    """Where a run really begins, whose first letters may be the rest of an escape."""
    before = data[start - 1 : start]
    if before == b"\\":
        escape = _LEADING_ESCAPE.match(data, start, end)
    elif before in (b"[", b";"):
        escape = _LEADING_COLOUR.match(data, start, end)
    else:
        return start
    return escape.end() if escape is not None else start


class _Search(NamedTuple):
    """A literal that is searched for, and the anchors that it is part of, each with the place of the literal in it."""

    needle: bytes
    fold: bool
    anchors: tuple[tuple[Rule, bytes, int], ...]

    def begins_in(self, tokens: bytes) -> bool:
        """Whether one of the anchors is followed as it should be somewhere among some tokens."""
        for rule, anchor, _ in self.anchors:
            at = tokens.find(anchor)
            while at >= 0:
                if rule.after.match(tokens, at + len(anchor)):
                    return True
                at = tokens.find(anchor, at + 1)
        return False


class _Searches(NamedTuple):
    """All searches, by where it shows first that they are needless: among the long tokens of a text, among its words
    (as they are or in small letters), or only in the whole text."""

    tokens: list[tuple[bytes, _Search]]
    words: list[tuple[bytes, _Search]]
    folded: list[tuple[bytes, _Search]]
    others: list[tuple[bytes, _Search]]
    within: list[Rule]


@lru_cache(maxsize=1)
def _searches() -> _Searches:
    found: dict[tuple[bytes, bool, bool], list[tuple[Rule, bytes, int]]] = {}
    for rule in rules():
        for anchor in rule.anchors:
            needle = rule.needle or anchor
            found.setdefault((needle, rule.fold, rule.token), []).append((rule, anchor, anchor.index(needle)))
    searches = _Searches([], [], [], [], [rule for rule in rules() if rule.within])
    for (needle, fold, token), anchors in found.items():
        whole = b" " not in needle.translate(_SPACES)
        words = searches.folded if fold else searches.words
        place = searches.tokens if token else words if whole else searches.others
        place.append((needle, _Search(needle, fold, tuple(anchors))))
    return searches


def _match(rule: Rule, data: bytes, at: int, size: int) -> _Span | None:
    """The secret around an anchor, if there is one."""
    start = at
    if rule.before is not None:
        window = data[max(0, at - rule.most - _ESCAPE_LENGTH) : at]
        run = len(window) - len(window.rstrip(rule.before))
        start -= run
        start = _after_escape(data, start, at)
        if not rule.least <= at - start <= rule.most:
            return None
    elif start and data[start - 1] in rule.left and not _ESCAPE.search(data, max(0, start - _ESCAPE_LENGTH), start):
        return None
    match = rule.after.match(data, at + size)
    if match is None:
        return None
    first, last = _secret(match, start)
    while last > first and data[last - 1] == 0x5C:  # the quote that ends it is escaped
        last -= 1
    while last < len(data) and 0x80 <= data[last] < 0xC0:  # the bound fell into a character
        last += 1
    if last <= first or not rule.judge(Hit(data, start, at, match, data[first:last]), rule.words):
        return None
    return _Span(first, last, rule.rank, rule.kind, data[first:last])


def _secret(match: re.Match[bytes], start: int) -> tuple[int, int]:
    groups = match.re.groupindex
    for name in ("secret", "bare"):
        if name in groups and match[name] is not None:
            return match.span(name)
    return start, match.end()


def _across_soft_breaks(data: bytes, known: Known | None) -> Iterator[_Span]:
    """What is found once the line breaks that quoted-printable mail puts into long lines are taken out."""
    breaks = [match.span() for match in _SOFT_BREAK.finditer(data)]
    if not breaks:
        return
    joined, kept, at = [], [], 0
    places = []  # where each kept part begins in the joined text
    length = 0
    for low, high in [*breaks, (len(data), len(data))]:
        joined.append(data[at:low])
        kept.append(at)
        places.append(length)
        length += low - at
        at = high
    whole = b"".join(joined)

    def original(place: int) -> int:
        part = bisect_right(places, place) - 1
        return kept[part] + place - places[part]

    found: list[_Span] = list(_spans(whole, ((0, len(whole)),)))
    if known is not None:
        found += [_Span(start, end, -1, "known_secret", same) for start, end, same in known.find(whole)]
    for span in found:
        yield span._replace(start=original(span.start), end=original(span.end - 1) + 1)


def _merged(data: bytes, spans: list[_Span]) -> list[Found]:
    """Spans without overlaps, those that touch one another joined under the name of the first rule, and without what
    is a marker already."""
    joined: list[_Span] = []
    for span in sorted(spans):
        last = joined[-1] if joined else None
        if last is None or span.start >= last.end:
            joined.append(span)
            continue
        better = min(last, span, key=lambda one: one.rank)
        end = max(last.end, span.end)
        whole = (last.start, end) == (better.start, better.end) or better.rank < 0
        same = better.same if whole else data[last.start : end]
        joined[-1] = _Span(last.start, end, better.rank, better.kind, same)
    found = []
    for span in joined:
        at = span.start
        for marker in MARKER.finditer(data, max(0, span.start - 64), min(len(data), span.end + 64)):
            if marker.end() <= span.start or marker.start() >= span.end:
                continue
            if marker.start() > at:
                found.append(Found(at, marker.start(), span.kind, data[at : marker.start()]))
            at = max(at, marker.end())
        if at == span.start:
            found.append(Found(span.start, span.end, span.kind, span.same))
        elif at < span.end:
            found.append(Found(at, span.end, span.kind, data[at : span.end]))
    return found


@lru_cache(maxsize=1)
def kinds() -> tuple[str, ...]:
    """Every kind that can be found, sorted."""
    return tuple(sorted({rule.kind for rule in rules()} | {"known_secret"}))
