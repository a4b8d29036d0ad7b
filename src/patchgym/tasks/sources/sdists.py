"""Source distributions as trees of an object store. The archive is read, never unpacked onto the disk."""

import lzma
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from patchgym.content import Entry, ObjectStore
from patchgym.errors import DataError

_MAX_FILES = 5000
_MAX_BYTES = 100 * 1024**2
_PLAUSIBLE = datetime(1990, 1, 1, tzinfo=UTC).timestamp()
_BESIDE = frozenset({"PKG-INFO", "requires.txt", "entry_points.txt"})
_DROPPED = frozenset({"__pycache__", ".git", ".hg"})


@dataclass(frozen=True)
class Sdist:
    """A source distribution: the ``tree`` of its files; ``beside``, the texts of what a build tool wrote into
    ``*.egg-info`` (``PKG-INFO``, ``requires.txt``, ``entry_points.txt``), by name; ``newest``, the latest time that a
    file of it carries, or None where such times are made up (before 1990, or all the same)."""

    tree: str
    beside: Mapping[str, str]
    newest: datetime | None


def read_sdist(path: Path, objects: ObjectStore) -> Sdist:
    """Store an sdist's files.

    The archive's top folder is stripped. Build metadata (``*.egg-info``), caches and compiled files are left out, and
    so is everything that is no regular file: links and devices have no place in a workspace made of foreign files.

    Raises:
        DataError: the archive is damaged, has a path that leaves its root, or is too large (5,000 files, 100 MiB).
    """
    entries: dict[str, Entry] = {}
    beside: dict[str, str] = {}
    times: set[float] = set()
    size = 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                inside = _inside(path, member.name)
                if not member.isreg() or not inside:
                    continue
                size += member.size
                if size > _MAX_BYTES or len(entries) >= _MAX_FILES:
                    raise DataError(f"{path.name} is too large", why=f"Over {_MAX_FILES} files or {_MAX_BYTES} bytes.")
                stream = archive.extractfile(member)
                data = stream.read() if stream is not None else b""
                folder, _, name = inside.rpartition("/")
                if folder.endswith(".egg-info") and name in _BESIDE:
                    beside[name] = data.decode("utf-8", "replace")
                if not _is_junk(inside):
                    mode = 0o100755 if member.mode & 0o100 else 0o100644
                    entries[inside] = Entry(mode, objects.put(data))
                    times.add(member.mtime)
    except (tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, ValueError) as error:
        raise DataError(f"{path.name} is no readable sdist", why=str(error), mend="Remove it and run again.") from error
    return Sdist(objects.write_tree(entries), beside, _newest(times))


def _inside(path: Path, name: str) -> str:
    """A member's path below the archive's top folder."""
    parts = name.split("/")
    if name.startswith("/") or ".." in parts:
        raise DataError(f"{path.name} holds the path {name!r}, which leaves its root")
    return "/".join(part for part in parts[1:] if part not in ("", "."))


def _newest(times: set[float]) -> datetime | None:
    latest = max(times, default=0.0)
    return datetime.fromtimestamp(latest, UTC) if len(times) > 1 and _PLAUSIBLE <= latest < 2**33 else None


def _is_junk(path: str) -> bool:
    parts = path.split("/")
    return path.endswith((".pyc", ".pyo")) or any(part in _DROPPED or part.endswith(".egg-info") for part in parts)
