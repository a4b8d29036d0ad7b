"""Records and errors as bytes. Nothing here is evaluated, and nothing is unpickled.

A message is one JSON line that says what it is, and after it the bytes that it speaks of.
"""

import importlib
import json
from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from patchgym import errors
from patchgym.errors import BuildFailure, DataError, EnvironmentBuildError, PatchgymError, WorkLostError
from patchgym.executors.work import WorkSpec
from patchgym.records import Record

MOST_MESSAGE = 512 * 1024**2
"""Bytes of the largest item or result, with its objects, that goes to or comes from a node."""


def encode_spec(spec: WorkSpec[Any, Any]) -> bytes:
    """The class of a spec by its place, and its settings."""
    cls = type(spec)
    return f"{cls.__module__}:{cls.__qualname__}\n".encode() + spec.model_dump_json().encode()


def decode_spec(data: bytes) -> WorkSpec[Any, Any]:
    """The spec again, on the far side, which trusts the near one.

    Raises:
        DataError: this installation has no such work, or other settings for it.
    """
    place, _, settings = data.partition(b"\n")
    module, _, name = place.decode().partition(":")
    try:
        cls = getattr(importlib.import_module(module), name)
        spec = cls.model_validate_json(settings)
    except (ImportError, AttributeError, ValidationError) as error:
        raise DataError(
            f"This node does not know the work {place.decode()}",
            why=str(error),
            mend="Install the same version of patchgym on every node.",
        ) from error
    assert isinstance(spec, WorkSpec)
    return spec


def encode_record(record: Record, what: str) -> bytes:
    """A record as it is sent; ``what`` is its name in messages.

    Raises:
        WorkLostError: it is too large.
    """
    data = record.model_dump_json().encode()
    check_size(len(data), what)
    return data


def check_size(size: int, what: str) -> None:
    """Refuse what is too large to be sent.

    Raises:
        WorkLostError: it is larger than ``MOST_MESSAGE``.
    """
    if size > MOST_MESSAGE:
        raise WorkLostError(
            f"{what} is too large to be sent between nodes",
            why=f"It has {size / 1024**2:,.0f} MB; the limit is {MOST_MESSAGE // 1024**2} MB.",
            mend="Do this one without --executor, or lower the task's limit of output bytes.",
        )


def answer(body: bytes, objects: bytes, **head: Any) -> bytes:
    """A worker's answer: a head, a record's bytes, a pack of objects."""
    line = json.dumps({**head, "body": len(body), "objects": len(objects)})
    return b"".join((line.encode(), b"\n", body, objects))


def answer_of_error(error: PatchgymError) -> bytes:
    """The answer where an error of ours ended the work; of a class that is no part of the error tree, the nearest that
    is."""
    known = next(cls.__name__ for cls in type(error).__mro__ if cls.__module__ == errors.__name__)
    told = {"class": known, "what": error.what, "why": error.why, "mend": error.mend}
    if isinstance(error, EnvironmentBuildError):
        told["kind"] = error.kind.value
    return answer(b"", b"", error=told)


def read_answer(data: bytes, where: str) -> tuple[dict[str, Any], bytes, bytes]:
    """An answer's head, record and pack.

    Raises:
        DataError: it is no answer.
        PatchgymError: the error that it tells, of the class that it had; ``where`` is added to what it says.
    """
    line, newline, rest = data.partition(b"\n")
    try:
        head = json.loads(line)
        body, objects = int(head["body"]), int(head["objects"])
        whole = bool(newline) and min(body, objects) >= 0 and body + objects == len(rest)
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise DataError(f"{where} did not answer as a worker does", why=str(error)) from error
    if not whole:
        raise DataError(f"{where} did not answer as a worker does", why="The answer is cut.")
    if "error" in head:
        raise _told_error(head["error"], where)
    return head, rest[:body], rest[body:]


def _told_error(told: Any, where: str) -> PatchgymError:
    if not isinstance(told, dict):
        raise DataError(f"{where} did not answer as a worker does", why="Its error is no object.")
    what, why, mend = (str(told.get(key, "")) for key in ("what", "why", "mend"))
    known = {cls.__name__: cls for cls in _error_classes(PatchgymError)}
    cls = known.get(str(told.get("class")), errors.InfrastructureError)
    why = f"{why} ({where})" if why else f"On {where}."
    if issubclass(cls, EnvironmentBuildError):
        kinds = set(BuildFailure)
        kind = str(told.get("kind", ""))
        return cls(what, why=why, mend=mend, kind=BuildFailure(kind) if kind in kinds else BuildFailure.OTHER)
    return cls(what, why=why, mend=mend)


def _error_classes(cls: type[PatchgymError]) -> Iterator[type[PatchgymError]]:
    """The classes of the error tree that are made of what, why and mend."""
    for found in (cls, *cls.__subclasses__()):
        if found.__module__ == errors.__name__:
            yield found
        if found is not cls:
            yield from _error_classes(found)
