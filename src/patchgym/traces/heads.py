"""What the first kilobytes of a file tell of its format: the keys of the JSON objects that it begins with."""

import re
from dataclasses import dataclass, field
from functools import lru_cache

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]:,]|[^\s"{}\[\]:,]+', re.DOTALL)
_LINES = 50


@dataclass(frozen=True)
class Head:
    """An object: its keys, and those of its values that are text. Of an object that the first kilobytes cut, what they
    hold. ``listed``: it is the first of a list."""

    keys: frozenset[str] = frozenset()
    texts: dict[str, str] = field(default_factory=dict)
    listed: bool = False

    def has(self, *keys: str) -> bool:
        """Whether all of the keys are there."""
        return self.keys.issuperset(keys)


@lru_cache(maxsize=4)
def heads_of(head: bytes) -> tuple[Head, ...]:
    """The objects that a file begins with: the one document that it is, or the first fifty of its lines."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text[:1] not in (b"{", b"["):
        lines = [line.strip() for line in text.split(b"\n", _LINES)]
        return tuple(_outline(line) for line in lines if line.startswith(b"{"))
    first = text.split(b"\n", 1)[0].strip()
    if text[:1] == b"[" or not first.endswith(b"}"):
        if text[:1] == b"{" and b"\n{" in text and len(first) > 2:  # a torn first line among others
            return (_outline(first), *heads_of(text.split(b"\n", 1)[1]))
        return (_outline(text),)
    return tuple(_outline(line.strip()) for line in text.split(b"\n", _LINES)[:_LINES] if line.strip().startswith(b"{"))


def _outline(text: bytes) -> Head:
    """The keys of the first object of a text, which may be cut anywhere."""
    listed = text.startswith(b"[")
    level = 2 if listed else 1
    depth, key = 0, None
    keys: set[str] = set()
    texts: dict[str, str] = {}
    awaiting = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        if token in (b"{", b"["):
            depth += 1
            awaiting = False
            if listed and depth == 2 and token == b"[":  # a list of lists: look into the first
                level = 3
        elif token in (b"}", b"]"):
            depth -= 1
            if depth < level:
                break
        elif depth == level and token == b":":
            awaiting = key is not None
            if key is not None:
                keys.add(key)
        elif depth == level and token.startswith(b'"'):
            if awaiting and key is not None:
                texts[key] = _plain(token)
                awaiting = False
            else:
                key = _plain(token)
        elif depth == level:
            awaiting = False
    return Head(frozenset(keys), texts, listed)


def _plain(token: bytes) -> str:
    return token[1:-1][:200].decode("utf-8", "replace")
