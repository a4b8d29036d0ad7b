"""The table of shapes (``rules.toml``), compiled."""

import re
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from patchgym.redact.judges import JUDGES
from patchgym.redact.words import Judge, Words

_LEFT = "A-Za-z0-9_-"
_NO_JUDGE = "real"


@dataclass(frozen=True, slots=True)
class Rule:
    """One shape, as ``rules.toml`` explains its keys. ``before`` and ``left`` are bytes, each of them one character."""

    kind: str
    anchors: tuple[bytes, ...]
    needle: bytes | None
    after: re.Pattern[bytes]
    within: bool
    fold: bool
    before: bytes | None
    least: int
    most: int
    left: frozenset[int]
    token: bool
    judge: Judge
    words: Words
    rank: int
    """Its place in the table: of two that overlap, the lower one gives the name."""


@lru_cache(maxsize=1)
def rules() -> tuple[Rule, ...]:
    """Every shape, in the order of the table. Read once."""
    data: dict[str, Any] = tomllib.loads(
        resources.files("patchgym.redact").joinpath("rules.toml").read_text(encoding="utf-8")
    )
    words = Words(data)
    return tuple(_rule(rank, entry, data["classes"], words) for rank, entry in enumerate(data["rule"]))


def _rule(rank: int, entry: dict[str, Any], classes: dict[str, str], words: Words) -> Rule:
    fold = entry.get("fold", False)
    before = entry.get("before")
    left = entry.get("left", _LEFT)
    return Rule(
        kind=entry["kind"],
        anchors=tuple(anchor.encode() for anchor in entry["anchors"]),
        needle=entry["needle"].encode() if "needle" in entry else None,
        after=re.compile(
            entry["within" if "within" in entry else "after"].encode("ascii"), re.IGNORECASE if fold else 0
        ),
        within="within" in entry,
        fold=fold,
        before=_members(classes[before]) if before is not None else None,
        least=entry.get("least", 0),
        most=entry.get("most", 0),
        left=frozenset(_members(classes.get(left, left))),
        token=entry.get("token", True),
        judge=JUDGES[entry.get("judge", _NO_JUDGE)],
        words=words,
        rank=rank,
    )


def _members(characters: str) -> bytes:
    """The bytes of a character class."""
    if not characters:
        return b""
    one = re.compile(f"[{characters}]".encode("ascii"))
    return bytes(byte for byte in range(256) if one.fullmatch(bytes([byte])))
