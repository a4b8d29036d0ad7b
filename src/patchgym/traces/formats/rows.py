"""Rows out of JSON lines, one JSON document, or a Parquet file. What a file holds decides, not how its name ends."""

import glob
import json
import math
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from patchgym.errors import PrerequisiteError
from patchgym.traces.intake import Intake, text_of

PARQUET = b"PAR1"
_BOM = b"\xef\xbb\xbf"
_FIRST_LINE = 1 << 26
_SMALL = 1 << 28
_ROWS_AT_ONCE = 64


def rows(path: Path, intake: Intake) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row with the place where it stands, one at a time; what is none is counted. A document that is one list of
    messages (``[{"role": ...}, ...]``) is one row that has them as ``messages``.

    Raises:
        PrerequisiteError: it is a Parquet file, and DuckDB is not installed.
    """
    with path.open("rb") as file:
        start = file.read(len(PARQUET))
    if start == PARQUET:
        yield from _parquet_rows(path, intake)
    elif is_document(path):
        yield from _document_rows(path, intake)
    else:
        for number, row in intake.lines(path):
            yield f"{path.name}, line {number}", row


def is_document(path: Path) -> bool:
    """Whether a file is one JSON value rather than a line for each."""
    with path.open("rb") as file:
        first = next((line for line in iter(lambda: file.readline(_FIRST_LINE), b"") if line.strip()), b"")
        more = any(line.strip() for line in iter(lambda: file.readline(_FIRST_LINE), b""))
    first = first.removeprefix(_BOM).strip()
    if not more:
        return first.startswith(b"[")
    if not first.startswith((b"{", b"[")) or path.stat().st_size > _SMALL or _is_json(first):
        return False
    return _is_json(path.read_bytes().removeprefix(_BOM))


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return False
    return True


def _document_rows(path: Path, intake: Intake) -> Iterator[tuple[str, dict[str, Any]]]:
    found = intake.document(path)
    if isinstance(found, list) and found and all(isinstance(item, dict) and _is_message(item) for item in found):
        yield path.name, {"messages": found}
        return
    for index, item in enumerate(found if isinstance(found, list) else [found]):
        where = f"{path.name}[{index}]"
        if isinstance(item, dict):
            yield where, item
        elif item is not None:
            intake.damaged("no_object", where)


def _is_message(item: dict[str, Any]) -> bool:
    return ("role" in item or "from" in item) and "messages" not in item


def _parquet_rows(path: Path, intake: Intake) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        duckdb = import_module("duckdb")
    except ImportError as error:
        raise PrerequisiteError(
            f"{path} is a Parquet file, and DuckDB is not installed", mend="Run: pip install 'patchgym[parquet]'"
        ) from error
    with duckdb.connect(":memory:") as connection:
        try:
            # Nothing but this file: a name with a star in it is a name.
            result = connection.execute("SELECT * FROM read_parquet(?)", [glob.escape(str(path))])
            names = [column[0] for column in result.description]
            index = 0
            while found := result.fetchmany(_ROWS_AT_ONCE):
                for values in found:
                    yield (
                        f"{path.name}[{index}]",
                        {name: _json_value(value) for name, value in zip(names, values, strict=True)},
                    )
                    index += 1
        except duckdb.Error as error:
            intake.damaged("broken_parquet", path.name, str(error).splitlines()[0])


def _json_value(value: object) -> Any:
    """A Parquet value as JSON has it: times as ISO 8601, numbers that are none as None."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case UUID() | timedelta():
            return str(value)
        case list() | tuple():
            return [_json_value(item) for item in value]
        case dict():
            return {text_of(key): _json_value(item) for key, item in value.items()}
    return None
