"""What readers of logs share: where bytes go, what could not be read, lines and documents of JSON, points in time."""

import os
import stat
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Attachment
from patchgym.traces.jsontext import parsed, text_of

__all__ = ["Intake", "count_of", "moment", "open_log", "text_of"]

_DOCUMENT_BYTES = 1 << 28
_LINE_BYTES = 1 << 27
_PIECE = 1 << 20
_LATEST_S = 1e11  # greater numbers count milliseconds
_SHOWN_PROBLEMS = 1000


class Intake:
    """What one import takes in. ``problems`` says of each thing that could not be read where it stands and why (the
    first thousand of them), ``broken`` counts all of them by their kind."""

    def __init__(self, objects: ObjectStore, claimed: set[Path] | None = None) -> None:
        self.objects = objects
        self.problems: list[str] = []
        self.broken: Counter[str] = Counter()
        self._claimed: set[Path] = set() if claimed is None else claimed

    def damaged(self, kind: str, where: str, why: str = "") -> None:
        """Count something that could not be read."""
        self.broken[kind] += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(f"{where}: {kind.replace('_', ' ')}{f' ({why})' if why else ''}")

    def claim(self, path: Path) -> bool:
        """Take a file as part of the log that is read, so that it is not read again as a log of its own. False where it
        was read already."""
        where = path.absolute()
        if where in self._claimed:
            return False
        self._claimed.add(where)
        return True

    def attachment(self, media_type: str, data: bytes | None, size: int | None = None) -> Attachment:
        """An attachment, its bytes kept in the object store where they are at hand."""
        if data is None:
            return Attachment(media_type=media_type, size=size)
        return Attachment(media_type=media_type, size=len(data), blob=self.objects.put(data))

    def files_in(self, folder: Path) -> list[Path]:
        """The files of a folder, by name. Symbolic links are not followed, and are counted."""
        found = []
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_symlink():
                    self.damaged("symbolic_link", f"{folder.name}/{entry.name}")
                elif entry.is_file(follow_symlinks=False):
                    found.append(folder / entry.name)
        return sorted(found)

    def lines(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every JSON object of a file of JSON lines, with its line number, one at a time. Lines that hold none are
        counted. A byte order mark, CRLF, empty lines and a missing last newline change nothing; NaN and infinite
        numbers are None; bytes that are no UTF-8 become U+FFFD, and are counted; a line of more than 128 MiB is
        counted and passed over.

        Raises:
            DataError: it is no file that can be read.
        """
        with open_log(path) as file:
            number = 0
            while line := file.readline(_LINE_BYTES):
                number += 1
                where = f"{path.name}, line {number}"
                if len(line) == _LINE_BYTES and not line.endswith(b"\n"):
                    while line and not line.endswith(b"\n"):
                        line = file.readline(_PIECE)
                    self.damaged("line_too_long", where)
                    continue
                text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                del line
                if not text:
                    continue
                value = self.json(text, where)
                if isinstance(value, dict):
                    yield number, value
                elif value is not _BROKEN:
                    self.damaged("no_object", where)

    def document(self, path: Path) -> Any:
        """The one JSON value of a file, read as ``lines`` reads; None, and counted, where it is none.

        Raises:
            DataError: the file is too large to be read at once, or cannot be read.
        """
        with open_log(path) as file:
            data = file.read(_DOCUMENT_BYTES + 1)
        if len(data) > _DOCUMENT_BYTES:
            raise DataError(
                f"{path} is too large",
                why=f"It is one JSON document of more than {_DOCUMENT_BYTES / 1e6:.0f} MB.",
                mend="Give its trajectories one a line, or in a file each.",
            )
        data = data.removeprefix(b"\xef\xbb\xbf").strip()
        if not data:
            self.damaged("empty", path.name)
            return None
        value = self.json(data, path.name)
        if value is None:
            self.damaged("no_object", path.name)
        return None if value is _BROKEN else value

    def whole(self, value: object, kind: str, where: str) -> list[dict[str, Any]]:
        """The objects of a list; what else it holds is counted, and so is a value that is no list."""
        if not isinstance(value, list):
            self.damaged(f"no_list_of_{kind}", where)
            return []
        found = [one for one in value if isinstance(one, dict)]
        for _ in range(len(value) - len(found)):
            self.damaged(f"{kind}_that_are_no_objects", where)
        return found

    def json(self, data: bytes, where: str) -> Any:
        """The JSON value of some bytes; an object that is equal to no value, and counted, where they hold none."""
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            self.damaged("not_utf8", where)
        try:
            return parsed(text, lambda: self.damaged("half_characters", where))
        except ValueError as error:
            self.damaged("no_json", where, str(error)[:200])
            return _BROKEN


_BROKEN = object()


def open_log(path: Path) -> BinaryIO:
    """A file to be read. A pipe or a device does not make anybody wait.

    Raises:
        DataError: it is no regular file, or may not be read.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise DataError(f"{path} cannot be read", why=str(error), mend="Give a file that you may read.") from error
    file = os.fdopen(opened, "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DataError(f"{path} is no regular file", mend="Copy what it holds to a file, and give that.")
    return file


def moment(value: object) -> datetime | None:
    """A point in time, from ISO 8601 text (with ``Z``, an offset, or neither, which means UTC) or from seconds or
    milliseconds since 1970, as a number or as text; None where it is none of these."""
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            try:
                found = datetime.fromisoformat(str(value))
            except ValueError:
                return None
            return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return datetime.fromtimestamp(value / 1000 if abs(value) > _LATEST_S else value, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def count_of(value: object) -> int | None:
    """A count that is no less than 0 and less than 2^53; None where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None
