"""What readers of logs share: where bytes go, what could not be read, lines and documents of JSON, points in time."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from patchgym.content import ObjectStore
from patchgym.errors import DataError
from patchgym.records import Attachment

_DOCUMENT_BYTES = 1 << 28
_LATEST_S = 1e11  # greater numbers count milliseconds
_SHOWN_PROBLEMS = 1000


class Intake:
    """What one import takes in. ``problems`` says of each thing that could not be read where it stands and why (the
    first thousand of them), ``broken`` counts all of them by their kind."""

    def __init__(self, objects: ObjectStore) -> None:
        self.objects = objects
        self.problems: list[str] = []
        self.broken: Counter[str] = Counter()

    def damaged(self, kind: str, where: str, why: str = "") -> None:
        """Count something that could not be read."""
        self.broken[kind] += 1
        if len(self.problems) < _SHOWN_PROBLEMS:
            self.problems.append(f"{where}: {kind.replace('_', ' ')}{f' ({why})' if why else ''}")

    def attachment(self, media_type: str, data: bytes | None, size: int | None = None) -> Attachment:
        """An attachment, its bytes kept in the object store where they are at hand."""
        if data is None:
            return Attachment(media_type=media_type, size=size)
        return Attachment(media_type=media_type, size=len(data), blob=self.objects.put(data))

    def lines(self, path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every JSON object of a file of JSON lines, with its line number, one at a time. Lines that hold none are
        counted. A byte order mark, CRLF, empty lines and a missing last newline change nothing; NaN and infinite
        numbers are None; bytes that are no UTF-8 become U+FFFD, and are counted."""
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                text = (line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line).strip()
                if not text:
                    continue
                value = self._value(text, f"{path.name}, line {number}")
                if isinstance(value, dict):
                    yield number, value
                elif value is not _BROKEN:
                    self.damaged("no_object", f"{path.name}, line {number}")

    def document(self, path: Path) -> Any:
        """The one JSON value of a file, read as ``lines`` reads; None, and counted, where it is none.

        Raises:
            DataError: the file is too large to be read at once.
        """
        size = path.stat().st_size
        if size > _DOCUMENT_BYTES:
            raise DataError(
                f"{path} is too large",
                why=f"It is one JSON document of {size / 1e6:.0f} MB; at most {_DOCUMENT_BYTES / 1e6:.0f} MB are read.",
                mend="Give its trajectories one a line, or in a file each.",
            )
        data = path.read_bytes().removeprefix(b"\xef\xbb\xbf").strip()
        if not data:
            self.damaged("empty", path.name)
            return None
        value = self._value(data, path.name)
        return None if value is _BROKEN else value

    def _value(self, data: bytes, where: str) -> Any:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("utf-8", "replace")
            self.damaged("not_utf8", where)
        try:
            found = json.loads(text, parse_constant=lambda name: None, parse_float=_finite)
        except (ValueError, RecursionError) as error:
            self.damaged("no_json", where, str(error)[:200])
            return _BROKEN
        if _HALF.search(text):
            whole = _without_halves(found)
            if whole != found:
                self.damaged("half_characters", where)
            return whole
        return found


_BROKEN = object()
_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def _without_halves(value: Any) -> Any:
    """A JSON value whose texts hold no lone surrogates (half a character each, which no UTF-8 can hold): U+FFFD takes
    their place."""
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if isinstance(value, list):
        return [_without_halves(item) for item in value]
    if isinstance(value, dict):
        return {_without_halves(key): _without_halves(item) for key, item in value.items()}
    return value


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


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


def text_of(value: object) -> str:
    """A value as text: itself where it is text, nothing where it is None, else JSON."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def count_of(value: object) -> int | None:
    """A count that is no less than 0; None where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
