"""Rows out of JSONL, JSON and Parquet files. What a file holds decides how it is read, not what its name ends in."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from patchgym.content.parquet import json_value, parquet_rows
from patchgym.errors import DataError, UsageError
from patchgym.tasks.formats.refused import Refused, Row, parse_json

ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet")
_BOM = b"\xef\xbb\xbf"
_PARQUET = b"PAR1"


@dataclass(frozen=True)
class Found:
    """One row, or why there is none. ``where`` is ``file:line``, or ``file[index]`` where lines say nothing."""

    where: str
    row: Row | Refused


def row_files(path: Path) -> list[Path]:
    """The files that rows are read from: ``path`` itself, or every data file in that folder and below it, by name.

    Raises:
        UsageError: there is nothing at ``path``, or no data file in it.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"There is nothing at {path}")
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in ENDINGS
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not found:
        raise UsageError(
            f"{path} holds no data file", mend=f"Rows are read from files that end in {', '.join(ENDINGS)}."
        )
    return found


def read_rows(path: Path) -> Iterator[Found]:
    """The rows of a file or of a folder's files, in order; what cannot be read comes as a ``Refused`` in its place.

    Raises:
        UsageError: there is nothing to read.
        PrerequisiteError: a Parquet file, and DuckDB is not installed.
    """
    for file in row_files(path):
        yield from _read_file(file)


def _read_file(path: Path) -> Iterator[Found]:
    try:
        with path.open("rb") as stream:
            head = stream.read(4096).removeprefix(_BOM)
    except OSError as error:
        yield Found(str(path), Refused("unreadable", error.strerror or str(error)))
        return
    start = head.lstrip()
    if head.startswith(_PARQUET):
        yield from _parquet_rows(path)
    elif not start and path.stat().st_size <= 4096:
        yield Found(str(path), Refused("empty_file", "It holds nothing."))
    elif start.startswith(b"["):
        yield from _array_rows(path)
    else:
        yield from _line_rows(path)


def _line_rows(path: Path) -> Iterator[Found]:
    """One object a line; a file that is one object over many lines is one row."""
    with path.open("rb") as stream:
        for number, raw in enumerate(stream, start=1):
            line = raw.removeprefix(_BOM) if number == 1 else raw
            if not line.strip():
                continue
            row = _parsed(line.rstrip(b"\r\n"))
            if number == 1 and isinstance(row, Refused) and line.strip() == b"{":
                whole = _parsed(path.read_bytes().removeprefix(_BOM))
                if not isinstance(whole, Refused):
                    yield Found(str(path), whole)
                    return
            yield Found(f"{path}:{number}", row)


def _array_rows(path: Path) -> Iterator[Found]:
    try:
        found = parse_json(path.read_bytes().removeprefix(_BOM).decode())
    except UnicodeDecodeError as error:
        yield Found(str(path), Refused("not_utf8", str(error)))
        return
    except Refused as error:
        yield Found(str(path), error)
        return
    items = found if isinstance(found, list) else [found]
    if not items:
        yield Found(str(path), Refused("empty_file", "Its list is empty."))
    for index, item in enumerate(items):
        yield Found(f"{path}[{index}]", item if isinstance(item, dict) else Refused("not_an_object"))


def _parsed(line: bytes) -> Row | Refused:
    try:
        found = parse_json(line.decode())
    except UnicodeDecodeError as error:
        return Refused("not_utf8", str(error))
    except Refused as error:
        return error
    return found if isinstance(found, dict) else Refused("not_an_object", "A row is a JSON object.")


def _parquet_rows(path: Path) -> Iterator[Found]:
    index = 0
    try:
        for row in parquet_rows(path):
            yield Found(f"{path}[{index}]", _json_row(row))
            index += 1
        if not index:
            yield Found(str(path), Refused("empty_file", "It has no rows."))
    except DataError as error:
        yield Found(str(path), Refused("broken_parquet", error.why))


def _json_row(row: dict[str, object]) -> Row | Refused:
    try:
        return {name: json_value(value, _unfit) for name, value in row.items()}
    except Refused as error:
        return error


def _unfit(what: str) -> JsonValue:
    raise Refused("wrong_type", f"It holds {what}, which JSON cannot hold.")
