"""What is kept of a stream, and an honest record of what is not."""

import hashlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from patchgym.content import ObjectStore, disk_errors
from patchgym.sandbox.protocol import Cut

_CHUNK = 1 << 16


class Capture:
    """A stream: the first half and the last half of ``limit`` bytes of it, its size, and all of it in a file of
    ``folder`` where it is longer. ``flood`` is called once it is longer than ``most`` bytes."""

    def __init__(self, limit: int, most: int, folder: Path, flood: Callable[[], None]) -> None:
        self.size = 0
        self._first, self._last = bytearray(), bytearray()
        self._limit, self._most, self._folder, self._flood = limit, most, folder, flood
        self._first_limit, self._last_limit = limit - limit // 2, limit // 2
        self._whole: BinaryIO | None = None
        self._fault: OSError | None = None

    def add(self, data: bytes) -> None:
        """Take in what came."""
        self.size += len(data)
        room = self._first_limit - len(self._first)
        self._first += data[:room]
        self._last += data[room:]
        if self.size > self._limit and self._fault is None:
            try:
                self._spool(data)
            except OSError as error:
                self._fault = error
        if len(self._last) > self._last_limit + _CHUNK:
            del self._last[: len(self._last) - self._last_limit]
        if self.size > self._most:
            self._flood()

    @property
    def kept(self) -> bytes:
        """What is kept of it."""
        return bytes(self._first + self._last[max(0, len(self._last) - self._last_limit) :])

    @property
    def is_cut(self) -> bool:
        """Whether more came than is kept."""
        return self.size > self._limit

    def cut(self, objects: ObjectStore) -> Cut | None:
        """What is missing, once all of it is in the object store; None where nothing is. Blocking.

        Raises:
            StorageError: the disk is full.
        """
        with disk_errors(self._folder):
            if self._fault is not None:
                raise self._fault
            if self._whole is None:
                return None
            with self._whole as file:
                file.seek(0)
                data = file.read()
        return Cut(self._first_limit, self._last_limit, hashlib.sha256(data).hexdigest(), objects.put(data))

    def _spool(self, data: bytes) -> None:
        if self._whole is not None:
            self._whole.write(data)
        else:
            self._whole = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - open until all of it came
            self._whole.write(self._first + self._last)
