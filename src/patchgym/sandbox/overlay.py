"""An overlay's layers read and written from outside, without mounting them.

The upper layer holds what changed: files, folders that merge with those below, *whiteouts* (character device 0:0: the
name is gone) and *opaque* folders (an extended attribute: nothing below shows through). Nothing may run in the sandbox
while these functions work; even so no symbolic link is ever followed by the kernel.
"""

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from patchgym.content import Entry, ObjectStore, disk_errors
from patchgym.sandbox.layerfiles import LONGEST, OPAQUE, OPEN_FOLDER, is_opaque, is_whiteout, listed, opened, readable
from patchgym.sandbox.protocol import WORKSPACE

SKIPPED = frozenset((".git", "__pycache__"))
_DEEPEST, _LINKS = 100, 40
_SETTLED_NS = 50_000_000


@dataclass(frozen=True)
class _Folder:
    """A folder of the merged view: its name, mode, and a descriptor in each layer that has it, topmost first."""

    name: str
    mode: int
    layers: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class _File:
    """Anything else of the merged view: the descriptor of the folder that holds it, its name and what lstat says."""

    folder: int
    name: str
    info: os.stat_result


@dataclass(frozen=True)
class _Place:
    """Where a path leads: the folders on the way, then a file, or the names that do not exist (none for a folder)."""

    folders: list[_Folder]
    file: _File | None
    missing: list[str]


class Overlay:
    """One upper layer over read-only ones (``lowers``, topmost first). While the overlay is mounted somewhere, the
    kernel keeps what it knows of names: files are then read and written by way of ``mounted``, a descriptor of it."""

    def __init__(self, upper: Path, lowers: Sequence[Path]) -> None:
        self.upper = upper
        self.lowers = list(lowers)
        self.mounted = -1
        self._hashed: dict[str, tuple[tuple[int, ...], Entry]] = {}

    def read(self, path: str) -> bytes:
        """The bytes of a file. Raises as ``Sandbox.read``."""
        with ExitStack() as stack:
            place = self._resolve(path, stack)
            if place.file is None:
                raise _error(FileNotFoundError if place.missing else IsADirectoryError, path)
            if not stat.S_ISREG(place.file.info.st_mode):
                raise PermissionError(errno.EPERM, "not a regular file", path)
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(place.file.name, flags, dir_fd=place.file.folder), "rb") as file:
                return file.read()

    def write(self, path: str, data: bytes) -> None:
        """Create or replace a file in the upper layer. Raises as ``Sandbox.write``; StorageError on a full disk."""
        refused: PermissionError | None = None
        with ExitStack() as stack, disk_errors(self.upper):
            try:
                self._write(path, data, stack)
            except PermissionError as error:
                refused = error  # the workspace's own permissions, not this machine's disk
        if refused is not None:
            raise refused

    def changes(self, store: ObjectStore) -> dict[str, Entry | None]:
        """What the upper layer changes, by path: the new file (stored), or None for one that is gone.

        ``.git``, ``__pycache__``, devices, sockets and pipes are left out, as are folders deeper than 100 levels or
        with paths beyond 3,500 bytes. Files that did not change since the last call are not read again.
        """
        found: dict[str, Entry | None] = {}
        hashed: dict[str, tuple[tuple[int, ...], Entry]] = {}
        with opened(self.upper) as folder:
            self._collect(folder, "", [str(lower) for lower in self.lowers], store, found, hashed)
        self._hashed = hashed
        return found

    def _collect(
        self,
        folder: int,
        prefix: str,
        lowers: list[str],
        store: ObjectStore,
        found: dict[str, Entry | None],
        hashed: dict[str, tuple[tuple[int, ...], Entry]],
    ) -> None:
        """Add what an open folder of the upper layer changes. What goes away or turns into something else meanwhile is
        left out."""
        for name, info in listed(folder):
            if name in SKIPPED:
                continue
            path = prefix + name
            below, covered = _shown(lowers, name)
            if stat.S_ISDIR(info.st_mode):
                if covered is not None:
                    found[path] = None
                with suppress(FileNotFoundError, NotADirectoryError), opened(name, folder) as inner:
                    if is_opaque(inner):
                        found.update(dict.fromkeys(_files(below, path)))
                        below = []
                    if path.count("/") < _DEEPEST and len(os.fsencode(path)) < LONGEST:
                        self._collect(inner, path + "/", below, store, found, hashed)
            elif stat.S_ISREG(info.st_mode) or stat.S_ISLNK(info.st_mode):
                entry = self._entry(store, path, folder, name, info, hashed)
                if entry is not None:
                    found[path] = entry
            else:
                found.update(dict.fromkeys(_files(below, path)))
                if covered is not None:
                    found[path] = None

    def size(self) -> int:
        """Bytes on disk that the upper layer takes, at least: what cannot be read is not counted."""
        total, pending = 0, [str(self.upper)]
        while pending:
            with suppress(OSError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(entry.path)
        return total

    def _entry(
        self,
        store: ObjectStore,
        path: str,
        folder: int,
        name: str,
        info: os.stat_result,
        hashed: dict[str, tuple[tuple[int, ...], Entry]],
    ) -> Entry | None:
        key = (info.st_ino, info.st_mode, info.st_size, info.st_mtime_ns, info.st_ctime_ns)
        known = self._hashed.get(path)
        if known is None or known[0] != key:
            now = time.time_ns()
            with suppress(FileNotFoundError), readable(folder, name, info):
                entry = store.entry_at(folder, name)
                if entry is None or now - info.st_ctime_ns < _SETTLED_NS:
                    return entry  # one so fresh that another change could leave the same times is not relied on
                hashed[path] = (key, entry)
                return entry
            return None
        hashed[path] = known
        return known[1]

    def _resolve(self, path: str, stack: ExitStack) -> _Place:
        """Walk a path through the merged view. Links are resolved here, by name, and never leave the workspace."""
        roots = [(0, self.mounted)] if self.mounted >= 0 else []
        for index, layer in enumerate(() if roots else (self.upper, *self.lowers)):
            roots.append((index, os.open(layer, OPEN_FOLDER)))
            stack.callback(os.close, roots[-1][1])
        folders = [_Folder("", 0o755, tuple(roots))]
        pending, links = _parts(path, path, folders), 0
        while pending:
            name = pending.pop(0)
            if name == "..":
                if len(folders) == 1:
                    raise _error(PermissionError, path)
                folders.pop()
                continue
            found = _step(folders[-1], name, stack)
            if isinstance(found, _Folder):
                folders.append(found)
            elif found is None:
                if ".." in pending:
                    raise _error(FileNotFoundError, path)
                return _Place(folders, None, [name, *pending])
            elif stat.S_ISLNK(found.info.st_mode):
                links += 1
                if links > _LINKS:
                    raise PermissionError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                pending[:0] = _parts(os.readlink(name, dir_fd=found.folder), path, folders)
            elif pending:
                raise _error(NotADirectoryError, path)
            else:
                return _Place(folders, found, [name])
        return _Place(folders, None, [])

    def _write(self, path: str, data: bytes, stack: ExitStack) -> None:
        place = self._resolve(path, stack)
        if not place.missing:
            raise _error(IsADirectoryError, path)
        folder = place.folders[0].layers[0][1]
        for step in place.folders[1:]:
            index, descriptor = step.layers[0]
            folder = descriptor if index == 0 else _make_folder(folder, step.name, step.mode, stack)
        for name in place.missing[:-1]:
            folder = _make_folder(folder, name, 0o755, stack)
        mode = stat.S_IMODE(place.file.info.st_mode) & 0o777 if place.file else 0o644
        _replace_file(folder, place.missing[-1], data, mode)


def _error(kind: type[OSError], path: str) -> OSError:
    codes = {
        FileNotFoundError: errno.ENOENT,
        IsADirectoryError: errno.EISDIR,
        NotADirectoryError: errno.ENOTDIR,
        PermissionError: errno.EACCES,
    }
    return kind(codes[kind], os.strerror(codes[kind]), path)


def _parts(target: str, path: str, folders: list[_Folder]) -> list[str]:
    """The names that a path or a link's target goes through; an absolute one starts again at the workspace."""
    try:
        nameable = b"\0" not in os.fsencode(target)
    except UnicodeEncodeError:
        nameable = False
    if not nameable:
        raise _error(FileNotFoundError, path)
    if target.startswith("/"):
        if not f"{target}/".startswith(f"{WORKSPACE}/"):
            raise _error(PermissionError, path)
        del folders[1:]
        target = target[len(WORKSPACE) :]
    return [part for part in target.split("/") if part not in ("", ".")]


def _step(folder: _Folder, name: str, stack: ExitStack) -> _Folder | _File | None:
    layers: list[tuple[int, int]] = []
    mode = 0
    for index, descriptor in folder.layers:
        try:
            info = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
        except FileNotFoundError:
            continue
        if is_whiteout(info):
            break
        if not stat.S_ISDIR(info.st_mode):
            if not layers:
                return _File(descriptor, name, info)
            break
        mode = mode if layers else stat.S_IMODE(info.st_mode)
        layers.append((index, os.open(name, OPEN_FOLDER, dir_fd=descriptor)))
        stack.callback(os.close, layers[-1][1])
        if is_opaque(layers[-1][1]):
            break
    return _Folder(name, mode, tuple(layers)) if layers else None


def _make_folder(parent: int, name: str, mode: int, stack: ExitStack) -> int:
    """Make a folder in the upper layer; where a whiteout stands, what it hides stays hidden."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
        hidden = False
    except FileExistsError:
        os.unlink(name, dir_fd=parent)
        os.mkdir(name, mode, dir_fd=parent)
        hidden = True
    folder = os.open(name, OPEN_FOLDER, dir_fd=parent)
    stack.callback(os.close, folder)
    os.fchmod(folder, mode)
    if hidden:
        os.setxattr(folder, OPAQUE[0], b"y")
    return folder


def _replace_file(folder: int, name: str, data: bytes, mode: int) -> None:
    partial = f".patchgym-{secrets.token_hex(8)}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            os.fchmod(descriptor, mode)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with suppress(FileNotFoundError):
            os.unlink(partial, dir_fd=folder)
        raise


def _shown(folders: list[str], name: str) -> tuple[list[str], str | None]:
    """What lower layers show under a name: the folders that merge there, or else the one file."""
    found: list[str] = []
    for folder in folders:
        path = f"{folder}/{name}"
        try:
            info = os.lstat(path)
        except FileNotFoundError:
            continue
        if is_whiteout(info):
            break
        if not stat.S_ISDIR(info.st_mode):
            return found, None if found else path
        found.append(path)
        if is_opaque(path):
            break
    return found, None


def _files(folders: list[str], path: str) -> Iterator[str]:
    """The path of every file in merged lower folders that stand for ``path``."""
    pending = [(folders, path)]
    while pending:
        merged, prefix = pending.pop()
        for name in {name for folder in merged for name in os.listdir(folder)} - SKIPPED:
            below, file = _shown(merged, name)
            if file is not None:
                yield f"{prefix}/{name}"
            if below:
                pending.append((below, f"{prefix}/{name}"))
