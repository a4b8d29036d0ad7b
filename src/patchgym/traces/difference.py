"""What turns one JSON value into another, as JSON: what a format cannot say itself is said with it, beside.

A difference is a value that takes the other's place; or, of two objects or of two lists of one length, an object with a
difference for each key or index. ``{"$is": VALUE}`` is a value that could be mistaken for one of these.
"""

import json
from collections.abc import Mapping

from pydantic import JsonValue

_IS = "$is"


def difference(have: JsonValue, want: JsonValue) -> JsonValue:
    """What ``with_difference`` makes ``want`` from ``have`` with. Of equal values it is ``{}``, where ``have`` is an
    object or a list; a number is never equal to a flag."""
    if isinstance(have, dict) and isinstance(want, dict) and have.keys() <= want.keys() and _IS not in want:
        return {
            key: difference(have[key], value) if key in have else _plain(value)
            for key, value in want.items()
            if key not in have or not same(have[key], value)
        }
    if isinstance(have, list) and isinstance(want, list) and len(have) == len(want):
        return {
            str(index): difference(old, new)
            for index, (old, new) in enumerate(zip(have, want, strict=True))
            if not same(old, new)
        }
    return _plain(want)


def with_difference(have: JsonValue, change: JsonValue) -> JsonValue:
    """``have``, changed.

    Raises:
        ValueError: the difference is not one of this value.
    """
    if not isinstance(change, dict):
        return change
    if change.keys() == {_IS}:
        return change[_IS]
    if isinstance(have, dict):
        return {
            **have,
            **{
                key: with_difference(have[key], part) if key in have else _unwrapped(part)
                for key, part in change.items()
            },
        }
    if isinstance(have, list):
        changed = list(have)
        for key, part in change.items():
            if not (key.isascii() and key.isdigit() and int(key) < len(have)):
                raise ValueError(f"a list of {len(have)} has no index {key[:20]!r}")
            changed[int(key)] = with_difference(have[int(key)], part)
        return changed
    raise ValueError("an object's difference belongs to something that is neither object nor list")


def same(one: JsonValue, other: JsonValue) -> bool:
    """Whether two values are the same JSON: 1, 1.0 and true are three."""
    # Python's own equality, which takes those for one, rules most differences out at once.
    return one == other and json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _plain(value: JsonValue) -> JsonValue:
    """A value as a difference: objects are wrapped, since they would be taken for changes."""
    return {_IS: value} if isinstance(value, Mapping) else value


def _unwrapped(change: JsonValue) -> JsonValue:
    return with_difference(None, change)
