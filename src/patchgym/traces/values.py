"""Values out of a log, of which none needs to be what its format promises."""

import re
from collections import Counter
from typing import Any

from patchgym.records import Stream

_ODD = re.compile(r"[^A-Za-z0-9]+")
_LONGEST_KIND = 60
_MOST_KINDS = 300


def mapping(value: object) -> dict[str, Any]:
    """A JSON object; an empty one where it is none."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """The JSON objects of a list; none where it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def string(value: object) -> str | None:
    """A text that is not empty; None where it is none."""
    return value if isinstance(value, str) and value else None


def whole_number(value: object) -> int | None:
    """A whole number of at most 53 bits, such as an exit code; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 1 << 53:
        return None
    return value


def seconds_of(value: object) -> float | None:
    """A duration in seconds; None where it is none, or is negative."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e12:
        return None
    return float(value)


def milliseconds_of(value: object) -> float | None:
    """The same out of a number of milliseconds."""
    seconds = seconds_of(value)
    return None if seconds is None else seconds / 1000


def flag(value: object) -> bool | None:
    """True or False; None where it is neither."""
    return value if isinstance(value, bool) else None


def stream(text: str) -> Stream:
    """An output stream as a log shows it."""
    return Stream(text=text, size=len(text.encode()))


def count_kind(counts: Counter[str], prefix: str, kind: object) -> None:
    """Count something by a kind that the log names, which may be anything at all."""
    name = _ODD.sub("_", str(kind))[:_LONGEST_KIND].strip("_").lower() or "unnamed"
    key = f"{prefix}_{name}" if prefix else name
    if key not in counts and len(counts) >= _MOST_KINDS:
        key = "other_kinds"
    counts[key] += 1
