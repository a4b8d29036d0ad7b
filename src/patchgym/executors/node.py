"""What one node keeps for all workers on it: objects, so that nothing is sent twice, and environments, so that each is
built once. It lies in patchgym's cache of that machine; everything in it can be made again.

::

    CACHE/executor/objects/         what was sent here, by content
    CACHE/executor/objects.lock     held by the one worker that writes there
    CACHE/executor/built/KEY.lock   held while an environment is built
    CACHE/executor/workers/NAME/    what one worker writes; its lock is free once the worker is gone
    CACHE/executor/workers.lock     held while one is made and old ones are swept away
"""

import fcntl
import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dulwich.file import FileLocked

from patchgym.content import ObjectStore, cache_root, disk_errors
from patchgym.content.packs import unpack
from patchgym.errors import UsageError
from patchgym.records import Environment
from patchgym.sandbox.environments import build_environment
from patchgym.store.lock import lock_folder

MOST_PACK = 1024**3


class NodeCache:
    """This machine's part of an executor's work."""

    def __init__(self, root: Path | None = None) -> None:
        """``root`` is the cache to keep it in (default: patchgym's).

        Raises:
            StorageError: the disk is full or not writable.
        """
        self._root = (root or cache_root()) / "executor"
        with disk_errors(self._root):
            for name in ("built", "workers"):
                (self._root / name).mkdir(parents=True, exist_ok=True)
        self._path = self._root / "objects"

    def receive(self, pack: bytes) -> None:
        """Store what a pack holds.

        Raises:
            DataError: the pack is not what it says.
            StorageError: the disk is full or not writable.
        """
        with _locked(self._root / "objects.lock"):
            while True:
                try:
                    unpack(pack, ObjectStore(self._path), MOST_PACK)  # a new one: it knows nothing that is gone since
                    return
                except FileLocked as left:  # nobody else writes now: a worker was killed while it wrote
                    Path(os.fsdecode(left.lockfilename)).unlink(missing_ok=True)

    def missing(self, ids: list[str]) -> list[str]:
        """Those of ``ids`` that are not here."""
        objects = ObjectStore(self._path)
        return [one for one in ids if one not in objects]

    def build(self, environment: Environment, build: Callable[[Environment], Path] = build_environment) -> Path:
        """The directory of a built environment. Of all workers on this machine one builds it, and the others wait.

        Raises:
            PatchgymError: as ``build_environment``.
        """
        key = environment.model_dump_json(include={"python", "lock", "distribution"})
        with _locked(self._root / "built" / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}.lock"):
            return build(environment)

    def room(self) -> "Room":
        """A folder for one worker; what dead ones left is swept away first.

        Raises:
            StorageError: the disk is full or not writable.
        """
        with _locked(self._root / "workers.lock"):
            for old in (self._root / "workers").iterdir():
                with suppress(UsageError, FileNotFoundError, NotADirectoryError):
                    lock = lock_folder(old)  # free: its worker is gone
                    shutil.rmtree(old, ignore_errors=True)
                    os.close(lock)
            return Room(self._root / "workers", ObjectStore(self._path))


class Room:
    """What one worker writes: its states and outputs, over the node's objects."""

    def __init__(self, parent: Path, beneath: ObjectStore) -> None:
        with disk_errors(parent):
            self._path = Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=parent))
            self._lock: int | None = lock_folder(self._path)
        self.objects = ObjectStore(self._path / "objects", beneath)

    def close(self) -> None:
        """Remove it. May be called twice."""
        shutil.rmtree(self._path, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock among all processes of this machine; a process that dies gives it up."""
    with disk_errors(path):
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
