"""What cannot be imported or exported, and reading the fields of a row that somebody else wrote."""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

from pydantic import JsonValue

Row = Mapping[str, JsonValue]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@=-]{0,254}")


class Refused(Exception):
    """A row or folder is no task; ``reason`` is the name under which it is counted, ``why`` says more in one line.

    ``not_json``, ``not_utf8``, ``not_unicode``, ``not_an_object``, ``empty_file``, ``broken_parquet``: it cannot be
    read. ``no_task``: a folder that holds none. ``missing_field``, ``wrong_type``, ``not_a_list``, ``bad_id``: a field
    is not what its format says. ``second_of_one_id``: an earlier task has its id. ``broken_patch``: its patch does not
    parse; ``not_reversible``: it cannot be turned round. ``gold_does_not_apply``, ``test_patch_does_not_apply``: not
    to the files of its commit. ``too_large``, ``unreadable``, ``link``: a folder's files cannot be kept.
    ``not_runnable`` (export): the task has not the files that the format runs.
    """

    def __init__(self, reason: str, why: str = "") -> None:
        super().__init__(f"{reason}: {why}" if why else reason)
        self.reason = reason
        self.why = why


def parse_json(text: str) -> JsonValue:
    """One JSON document, strictly: no NaN, no infinity, no key twice, no half of a character.

    Raises:
        Refused: ``not_json`` or ``not_unicode``.
    """
    try:
        found: JsonValue = json.loads(
            text, parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_without_doubles
        )
    except json.JSONDecodeError as error:
        line = f"line {error.lineno}, " if error.lineno > 1 else ""
        raise Refused("not_json", f"{error.msg} at {line}column {error.colno}.") from error
    except (ValueError, RecursionError) as error:
        raise Refused("not_json", str(error)) from error
    if "\\u" in text and not _encodes(json.dumps(found, ensure_ascii=False)):
        raise Refused("not_unicode", "It holds half of a surrogate pair.")
    return found


def _encodes(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _no_constant(name: str) -> JsonValue:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large for a number")
    return value


def _without_doubles(pairs: list[tuple[str, JsonValue]]) -> dict[str, JsonValue]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice")
    return found


def text_of(row: Row, name: str) -> str:
    """A field that must be there and be text.

    Raises:
        Refused: ``missing_field`` or ``wrong_type``.
    """
    value = row.get(name)
    if value is None:
        raise Refused("missing_field", f"It has no {name}.")
    if not isinstance(value, str):
        raise Refused("wrong_type", f"{name} is no text: {shown(value)}")
    return value


def text_or(row: Row, name: str, default: str = "") -> str:
    """A field that may be absent or null, and is text where it is not.

    Raises:
        Refused: ``wrong_type``.
    """
    return default if row.get(name) is None else text_of(row, name)


def optional_text(value: JsonValue) -> str | None:
    """A value that counts only where it is text with something in it."""
    return value if isinstance(value, str) and value else None


def task_id(value: str) -> str:
    """An id that can name a file.

    Raises:
        Refused: ``bad_id``.
    """
    if not _NAME.fullmatch(value):
        raise Refused("bad_id", f"An id is a plain file name of letters, digits and ._+@=-, not {shown(value)}")
    return value


def strings(value: JsonValue, name: str = "the field") -> tuple[str, ...]:
    """A list of texts, given as a list or as the JSON text of one.

    Raises:
        Refused: ``not_a_list``.
    """
    found = value
    if isinstance(value, str):
        try:
            found = parse_json(value)
        except Refused as error:
            raise Refused("not_a_list", f"{name} is {shown(value)}") from error
    if not isinstance(found, list):
        raise Refused("not_a_list", f"{name} is {shown(value)}")
    texts = tuple(item for item in found if isinstance(item, str))
    if len(texts) < len(found):
        raise Refused("not_a_list", f"{name} holds something that is no text.")
    return texts


def strings_of(row: Row, name: str) -> tuple[str, ...]:
    """A field that must be there and be a list of texts (see ``strings``).

    Raises:
        Refused: ``missing_field`` or ``not_a_list``.
    """
    if row.get(name) is None:
        raise Refused("missing_field", f"It has no {name}.")
    return strings(row[name], name)


def moment(value: JsonValue) -> datetime | None:
    """The time that an ISO 8601 text names, in UTC where it names no zone; None for anything else."""
    if not isinstance(value, str):
        return None
    try:
        found = datetime.fromisoformat(value)
        return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def moment_text(value: datetime | None) -> str:
    """``2024-02-29T12:00:00Z``; empty for None."""
    if value is None:
        return ""
    return value.astimezone(UTC).isoformat().removesuffix("+00:00") + "Z"


def shown(value: JsonValue) -> str:
    """A value for a message, short and on one line."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
