"""JSON as other programs write it, read so that any of it can be stored again."""

import json
import math
import re
from collections.abc import Callable
from typing import Any

_DEEPEST = 100  # a record's own JSON must stay readable: validators give up beyond some 200 levels
_HALF_CHARACTER = re.compile("[\ud800-\udfff]")


def parsed(text: str, on_half: Callable[[], None] = lambda: None) -> Any:
    """The value of a JSON text. NaN and infinite numbers are None; halves of characters become U+FFFD, and ``on_half``
    is called for each text that held one.

    Raises:
        ValueError: it is no JSON, or nested more than a hundred levels deep.
    """
    try:
        value = json.loads(text, parse_constant=lambda name: None, parse_float=_finite)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _whole(value, 0, on_half)


def text_of(value: object) -> str:
    """A value as text: itself where it is text, nothing where it is None, else JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def _whole(value: Any, depth: int, on_half: Callable[[], None]) -> Any:
    if isinstance(value, str):
        if value.isascii() or not _HALF_CHARACTER.search(value):
            return value
        on_half()
        return _HALF_CHARACTER.sub("\ufffd", value)
    if depth > _DEEPEST:
        raise ValueError("nested too deeply")
    if isinstance(value, dict):
        return {_whole(key, depth + 1, on_half): _whole(inner, depth + 1, on_half) for key, inner in value.items()}
    if isinstance(value, list):
        return [_whole(inner, depth + 1, on_half) for inner in value]
    return value
