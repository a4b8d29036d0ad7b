"""Rows out of JSON lines, one JSON document, or a Parquet file. What a file holds decides, not how its name ends."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from patchgym.content.parquet import json_value, parquet_rows
from patchgym.errors import DataError
from patchgym.traces.intake import Intake

PARQUET = b"PAR1"
_BOM = b"\xef\xbb\xbf"
_FIRST_LINE = 1 << 26
_SMALL = 1 << 28


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
        for index, row in enumerate(parquet_rows(path)):
            yield f"{path.name}[{index}]", {name: json_value(value, lambda what: None) for name, value in row.items()}
    except DataError as error:
        intake.damaged("broken_parquet", path.name, error.why)
