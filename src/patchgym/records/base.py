"""What every record is: frozen, strict about its keys, and dated by a schema version."""

import hashlib
import json
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from patchgym.errors import DataError


class Record(BaseModel):
    """A frozen value without behaviour beyond views of itself. Unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="null", use_attribute_docstrings=True)


class VersionedRecord(Record):
    """A record that is stored on its own, one JSON document or one JSONL line each.

    ``VERSION`` is the schema version written by this release; lines of any other version are refused. ``UNHASHED``
    names the fields that are no part of what the record is, and so of its content hash.
    """

    VERSION: ClassVar[int] = 1
    UNHASHED: ClassVar[frozenset[str]] = frozenset()

    schema_version: int = 1

    def to_line(self) -> str:
        """The record as one JSON line without its newline."""
        return self.model_dump_json()

    @classmethod
    def from_line(cls, line: str | bytes, *, where: str = "") -> Self:
        """Read one JSON line.

        Raises:
            DataError: the line is no JSON object, misses keys, or has another schema version. ``where`` names the
                place in the message.
        """
        name = cls.__name__
        try:
            data = json.loads(line)
        except ValueError as error:
            raise DataError(f"{where or name}: not JSON", why=str(error), mend="Remove or repair that line.") from error
        found = data.get("schema_version") if isinstance(data, dict) else None
        if found != cls.VERSION:
            raise DataError(
                f"{where or name}: {name} of schema version {found!r}",
                why=f"This release reads version {cls.VERSION}.",
                mend="Use the release that wrote it, or make it again.",
            )
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{where or name}: {name}.{place}: {first['msg']}", mend="Make the file again.") from error

    def content_hash(self) -> str:
        """SHA-256 (hex) over the record's canonical JSON: sorted keys, no spaces."""
        data = self.model_dump(mode="json", exclude=set(self.UNHASHED))
        canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()
