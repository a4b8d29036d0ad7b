"""The cache on this machine: everything in it is addressed by content and can be made again."""

import errno
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from patchgym.errors import StorageError

_FULL = {
    errno.ENOSPC: "The disk is full.",
    errno.EDQUOT: "The disk quota is used up.",
    errno.EFBIG: "The limit for the size of a file is reached.",
    errno.EROFS: "It is read-only.",
}


def cache_root() -> Path:
    """``$PATCHGYM_CACHE``, else ``$XDG_CACHE_HOME/patchgym``, else ``~/.cache/patchgym``. Not created here."""
    named = os.environ.get("PATCHGYM_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "patchgym"


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn "disk full", "quota" and "read-only" into a ``StorageError`` that names ``path``.

    Raises:
        StorageError: the block raised an OSError of that kind, or was refused permission.
    """
    try:
        yield
    except OSError as error:
        why = _FULL.get(error.errno or 0)
        if why is None and isinstance(error, PermissionError):
            why = f"Not allowed to write {error.filename or path}."
        if why is None:
            raise
        raise StorageError(
            f"Cannot write under {path}", why=why, mend="Free space there, or choose another place, and run again."
        ) from error


def publish_directory(target: Path, build: Callable[[Path], None]) -> Path:
    """Make a directory all at once: ``build`` fills a temporary sibling, which is then renamed to ``target``.

    A ``target`` that exists already is kept and ``build`` is not called; of two writers the first to finish wins.
    A build that fails leaves nothing.

    Raises:
        StorageError: the disk is full or not writable.
    """
    if target.is_dir():
        return target
    with disk_errors(target.parent):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{target.name[:24]}-", dir=target.parent))
        scratch.chmod(0o755)
        try:
            build(scratch)
            try:
                scratch.rename(target)
            except OSError as error:
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return target
