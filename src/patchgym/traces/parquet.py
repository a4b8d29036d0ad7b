"""JSON lines into a Parquet file, a piece at a time."""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from patchgym.errors import PrerequisiteError, StorageError

_LONGEST_LINE = 1 << 28
_ROWS_IN_A_GROUP = 2048
_MEMORY = "1GB"


def need_parquet() -> None:
    """See that Parquet files can be written.

    Raises:
        PrerequisiteError: DuckDB is not installed.
    """
    try:
        import_module("duckdb")
    except ImportError as error:
        raise PrerequisiteError(
            "Parquet files need DuckDB, which is not installed", mend="Run: pip install 'patchgym[parquet]'"
        ) from error


def write_parquet(lines: Path, columns: Mapping[str, str], out: Path) -> None:
    """Write rows as a Parquet file. ``columns`` are their keys with DuckDB's types; a VARCHAR holds objects and
    lists as JSON text.

    Raises:
        PrerequisiteError: DuckDB is not installed.
        StorageError: it could not be written.
    """
    need_parquet()
    duckdb = import_module("duckdb")
    types = ", ".join(f"{_quoted(name)}: {_quoted(kind)}" for name, kind in columns.items())
    source = (
        f"read_json({_quoted(str(lines))}, format='newline_delimited', columns={{{types}}}, "
        f"maximum_object_size={_LONGEST_LINE})"
    )
    with duckdb.connect(":memory:") as connection:
        connection.execute(f"SET memory_limit='{_MEMORY}'; SET threads=1; SET preserve_insertion_order=true")
        try:
            connection.execute(
                f"COPY (SELECT * FROM {source}) TO {_quoted(str(out))} "
                f"(FORMAT PARQUET, COMPRESSION ZSTD, ROW_GROUP_SIZE {_ROWS_IN_A_GROUP})"
            )
        except duckdb.Error as error:
            raise StorageError(f"{out.name} could not be written", why=str(error).splitlines()[0]) from error


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
