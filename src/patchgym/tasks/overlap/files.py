"""Reading what a benchmark comes as: a task set, or rows in JSON lines, JSON or Parquet, also packed by gzip."""

import gzip
import tempfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import JsonValue

from patchgym.content import disk_errors
from patchgym.errors import DataError, UsageError
from patchgym.tasks.formats.reading import read_rows
from patchgym.tasks.formats.refused import Refused
from patchgym.tasks.overlap.material import Material, task_material
from patchgym.tasks.overlap.rows import row_material
from patchgym.tasks.taskset import TaskSet

_GZIP = b"\x1f\x8b"
_ROW_LISTS = ("rows", "data", "instances", "tasks", "records")


@dataclass
class Reading:
    """What was read of one file: ``materials``, and how many rows were ``refused``, by the reason; ``examples`` holds
    the first place of each."""

    materials: list[Material] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def refuse(self, reason: str, where: str) -> None:
        """Count a row that cannot be used."""
        self.refused[reason] += 1
        self.examples.setdefault(reason, where)


def read_materials(path: Path) -> Reading:
    """Every record of a task set (a folder) or of a file of rows, in order. Rows that cannot be used are counted.

    Raises:
        UsageError: there is no file at ``path``, or a folder that is no task set.
        DataError: the gzip data are damaged, or the task set is.
        PrerequisiteError: it is Parquet, and what reads that is not installed.
        StorageError: there is no room to unpack it.
    """
    reading = Reading()
    if path.is_dir():
        tasks = TaskSet.load(path)
        reading.materials += [task_material(task, tasks.objects, origin=path.name) for task in tasks.tasks]
        return reading
    if not path.is_file():
        raise UsageError(f"There is no file {path}", mend="Give a task set, or a .jsonl, .json or .parquet file.")
    for number, (where, row) in enumerate(_rows(path), start=1):
        if isinstance(row, Refused):
            reading.refuse(row.reason, where)
            continue
        material = row_material(row, origin=path.name, number=number)
        if material is None:
            reading.refuse("no_field_to_compare", where)
        else:
            reading.materials.append(material)
    return reading


def unpacked(path: Path) -> bytes:
    """A file's bytes, unpacked where gzip packed them, whatever its name says.

    Raises:
        DataError: the gzip data are damaged.
    """
    data = path.read_bytes()
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged", why=str(error), mend="Fetch the file again.") from error


def _rows(path: Path) -> Iterator[tuple[str, dict[str, JsonValue] | Refused]]:
    """Every row with its place, or why it is none."""
    with path.open("rb") as stream:
        packed = stream.read(2) == _GZIP
    if not packed:
        yield from _plain_rows(path, path)
        return
    with disk_errors(Path(tempfile.gettempdir())), tempfile.TemporaryDirectory(prefix="patchgym-") as scratch:
        plain = Path(scratch, "rows")
        plain.write_bytes(unpacked(path))
        yield from _plain_rows(plain, path)


def _plain_rows(file: Path, shown: Path) -> Iterator[tuple[str, dict[str, JsonValue] | Refused]]:
    for found in read_rows(file):
        where = f"{shown}{found.where.removeprefix(str(file))}"
        if isinstance(found.row, Refused):
            yield where, found.row
        else:
            yield from ((where, row) for row in _within(dict(found.row)))


def _within(row: dict[str, JsonValue]) -> list[dict[str, JsonValue]]:
    """The rows in an object that holds a list of them or maps ids to them; else itself."""
    for name in _ROW_LISTS:
        rows = row.get(name)
        if isinstance(rows, list) and rows and all(isinstance(each, dict) for each in rows):
            return [each for each in rows if isinstance(each, dict)]
    inner = {key: each for key, each in row.items() if isinstance(each, dict)}
    return [{"id": key, **each} for key, each in inner.items()] if inner and len(inner) == len(row) else [row]
