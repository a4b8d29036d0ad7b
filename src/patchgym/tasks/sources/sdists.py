"""Source distributions as trees of an object store. The archive is read, never unpacked onto the disk."""

import tarfile
import zlib
from pathlib import Path

from patchgym.content import Entry, ObjectStore
from patchgym.errors import DataError

_MAX_FILES = 5000
_MAX_BYTES = 100 * 1024**2
_DROPPED = frozenset({"__pycache__", ".git", ".hg"})


def read_sdist(path: Path, objects: ObjectStore) -> tuple[str, str]:
    """Store an sdist's files and return the tree id and the text of its ``entry_points.txt`` (empty where none is).

    The archive's top folder is stripped. Build metadata (``*.egg-info``), caches and compiled files are left out, and
    so is everything that is no regular file: links and devices have no place in a workspace made of foreign files.

    Raises:
        DataError: the archive is damaged, has a path that leaves its root, or is too large (5,000 files, 100 MiB).
    """
    entries: dict[str, Entry] = {}
    entry_points, size = "", 0
    try:
        with tarfile.open(path, "r:*") as archive:
            for member in archive:
                parts = member.name.split("/")
                if member.name.startswith("/") or ".." in parts:
                    raise DataError(f"{path.name} holds the path {member.name!r}, which leaves its root")
                inside = "/".join(part for part in parts[1:] if part not in ("", "."))
                if not member.isreg() or not inside:
                    continue
                size += member.size
                if size > _MAX_BYTES or len(entries) >= _MAX_FILES:
                    raise DataError(f"{path.name} is too large", why=f"Over {_MAX_FILES} files or {_MAX_BYTES} bytes.")
                stream = archive.extractfile(member)
                data = stream.read() if stream is not None else b""
                if inside.endswith(".egg-info/entry_points.txt"):
                    entry_points = data.decode("utf-8", "replace")
                if not _is_junk(inside):
                    mode = 0o100755 if member.mode & 0o100 else 0o100644
                    entries[inside] = Entry(mode, objects.put(data))
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise DataError(f"{path.name} is no readable sdist", why=str(error), mend="Remove it and run again.") from error
    return objects.write_tree(entries), entry_points


def _is_junk(path: str) -> bool:
    parts = path.split("/")
    return path.endswith((".pyc", ".pyo")) or any(part in _DROPPED or part.endswith(".egg-info") for part in parts)
