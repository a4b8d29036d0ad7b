"""Rows of Parquet files, in the types that JSON has."""

import glob
import math
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import UUID

from patchgym.errors import DataError, PrerequisiteError

_ROWS_AT_ONCE = 64  # a row can hold megabytes


def parquet_rows(path: Path) -> Iterator[dict[str, object]]:
    """Every row of a Parquet file by column, some at a time, with the values that DuckDB gives.

    Raises:
        PrerequisiteError: DuckDB is not installed.
        DataError: the file is damaged.
    """
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
            while found := result.fetchmany(_ROWS_AT_ONCE):
                for values in found:
                    yield dict(zip(names, values, strict=True))
        except duckdb.Error as error:
            raise DataError(f"{path} cannot be read as Parquet", why=str(error).splitlines()[0]) from error


def json_value(value: object, unfit: Callable[[str], Any]) -> Any:
    """A value of a row as JSON: times as ISO 8601, decimals as numbers, and NaN (how tables say "missing") as null.
    ``unfit`` is told what JSON cannot hold, and gives what takes its place."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if math.isinf(value):
                return unfit("an infinite number")
            return None if math.isnan(value) else value
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime() | date() | time():
            return value.isoformat()
        case UUID() | timedelta():
            return str(value)
        case list() | tuple():
            return [json_value(item, unfit) for item in value]
        case dict():
            return {str(key): json_value(item, unfit) for key, item in value.items()}
    return unfit(f"a {type(value).__name__}")
