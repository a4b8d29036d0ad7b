"""A bare git object store: blobs and whole file trees by their git ids, readable by git itself.

Trees are the state of a workspace: regular files, executables and symbolic links. Devices, sockets and empty
directories are not part of it, as in git.
"""

import errno
import os
import stat
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import BinaryIO, NamedTuple

from dulwich.object_store import DiskObjectStore
from dulwich.objects import Blob, ObjectID, Tree

from patchgym.content.cache import disk_errors
from patchgym.errors import DataError

FILE, EXECUTABLE, SYMLINK, _FOLDER = 0o100644, 0o100755, 0o120000, 0o040000


def written_out(text: str) -> str:
    """A path, or a text that holds one, as records can hold it: bytes that are no UTF-8 stand as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


class Entry(NamedTuple):
    """A file of a tree: git mode (0o100644, 0o100755 or 0o120000) and blob id."""

    mode: int
    id: str


class ObjectStore:
    """Blobs and trees under one directory (the ``objects`` of a bare git repository).

    Ids are 40 hex digits. Paths inside trees are POSIX and relative; undecodable bytes are surrogate-escaped. Writing
    an object that is there already costs a look-up. One process writes at a time, from any number of threads.
    """

    def __init__(self, path: Path, beneath: "ObjectStore | None" = None) -> None:
        """Open the store at ``path``; an absent one is created. What lies in ``beneath`` can be read through it, and is
        never written to.

        Raises:
            StorageError: it cannot be created.
        """
        self.path = path
        with disk_errors(path):
            path.mkdir(parents=True, exist_ok=True)
            (path / "info").mkdir(exist_ok=True)
            (path / "pack").mkdir(exist_ok=True)
        self._store = DiskObjectStore(str(path))
        if beneath is not None:
            self._store.add_alternate_path(str(beneath.path.absolute()))
        self._known: set[str] = set()
        self._writing = threading.Lock()

    def put(self, data: bytes) -> str:
        """Store ``data`` as a blob and return its id."""
        return self._add(Blob.from_string(data))

    def get(self, blob_id: str) -> bytes:
        """The bytes of a blob.

        Raises:
            DataError: no such blob.
        """
        found = self._read(blob_id)
        if not isinstance(found, Blob):
            raise DataError(f"Object {blob_id} in {self.path} is no blob")
        return found.data

    def __contains__(self, object_id: str) -> bool:
        return object_id in self._known or ObjectID(object_id.encode()) in self._store

    def entries(self, tree_id: str) -> dict[str, Entry]:
        """Every file of a tree, by path.

        Raises:
            DataError: no such tree, or part of it is missing.
        """
        return dict(self._walk(tree_id, ""))

    def write_tree(self, entries: Mapping[str, Entry]) -> str:
        """Store the tree that holds ``entries`` and return its id."""
        return self._write_level(entries.items())

    def update_tree(self, tree_id: str, changes: Mapping[str, Entry | None]) -> str:
        """The tree with some paths replaced (or, for None, removed); only folders that change are written."""
        if not changes:
            return tree_id
        changed = self._update_level(tree_id, {tuple(path.split("/")): entry for path, entry in changes.items()})
        return changed if changed is not None else self._add(Tree())

    def ingest(self, folder: Path, *, skip: Iterable[str] = (".git", "__pycache__")) -> str:
        """Store a directory's files and return the tree id. Names in ``skip`` are left out at any depth."""
        left_out = frozenset(skip)
        found: dict[str, Entry] = {}
        for root, folders, files in os.walk(folder):
            links = [name for name in folders if os.path.islink(os.path.join(root, name))]
            folders[:] = [name for name in folders if name not in left_out and name not in links]
            for name in files + links:
                entry = self.entry_of(Path(root, name)) if name not in left_out else None
                if entry is not None:
                    found[os.path.relpath(os.path.join(root, name), folder)] = entry
        return self.write_tree(found)

    def entry_of(self, path: Path) -> Entry | None:
        """Store one file or symbolic link as it lies on disk; None for what a tree cannot hold."""
        info = path.lstat()
        if stat.S_ISLNK(info.st_mode):
            return Entry(SYMLINK, self.put(os.fsencode(os.readlink(path))))
        if stat.S_ISREG(info.st_mode):
            return Entry(EXECUTABLE if info.st_mode & 0o100 else FILE, self.put(path.read_bytes()))
        return None

    def entry_at(self, folder: int, name: str) -> Entry | None:
        """Store one file or symbolic link, by its name in an open folder. Nothing is followed, whatever takes its place
        meanwhile; None for what a tree cannot hold.

        Raises:
            FileNotFoundError, PermissionError: as for a local file.
        """
        try:
            return Entry(SYMLINK, self.put(os.fsencode(os.readlink(name, dir_fd=folder))))
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        try:
            with open_file(folder, name) as file:
                mode = os.fstat(file.fileno()).st_mode
                if not stat.S_ISREG(mode):
                    return None
                return Entry(EXECUTABLE if mode & 0o100 else FILE, self.put(file.read()))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # by now it is something else
                return None
            raise

    def checkout(self, tree_id: str, folder: Path) -> None:
        """Write a tree's files into an existing, empty directory.

        Raises:
            DataError: the tree is damaged or holds a path that leaves ``folder``.
            StorageError: the disk is full.
        """
        with disk_errors(folder):
            for path, entry in self._walk(tree_id, ""):
                parts = PurePosixPath(path).parts
                if path.startswith("/") or ".." in parts:
                    raise DataError(f"Tree {tree_id} holds the path {path!r}, which leaves its root")
                target = folder.joinpath(*parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                data = self.get(entry.id)
                if entry.mode == SYMLINK:
                    target.symlink_to(os.fsdecode(data))
                else:
                    target.write_bytes(data)
                    target.chmod(0o755 if entry.mode == EXECUTABLE else 0o644)

    def changed_paths(self, before: str, after: str) -> tuple[str, ...]:
        """Paths whose content or mode differs between two trees, sorted."""
        return tuple(sorted(self.changes(before, after)))

    def changes(self, before: str, after: str) -> dict[str, tuple[Entry | None, Entry | None]]:
        """By path, each entry that differs between two trees as it was and as it is: None where there is none.

        Raises:
            DataError: there is no such tree, or part of it is missing.
        """
        found: dict[str, tuple[Entry | None, Entry | None]] = {}
        if before == after:
            return found
        try:
            changes = list(self._store.tree_changes(ObjectID(before.encode()), ObjectID(after.encode())))
        except KeyError as error:
            raise DataError(
                f"Tree {before} or {after} in {self.path} is not whole", why=f"{error} is missing."
            ) from None
        for paths, modes, ids in changes:
            for side, (path, mode, blob) in enumerate(zip(paths, modes, ids, strict=True)):
                if path is not None and mode is not None and blob is not None:
                    name, entry = os.fsdecode(path), Entry(mode, blob.decode())
                    old, new = found.get(name, (None, None))
                    found[name] = (old, entry) if side else (entry, new)
        return found

    def copy_tree(self, tree_id: str, target: "ObjectStore") -> None:
        """Copy a tree with all that it reaches into another store."""
        if tree_id in target:
            return
        tree = self._read_tree(tree_id)
        for _, mode, child in tree.items():
            if stat.S_ISDIR(mode):
                self.copy_tree(child.decode(), target)
            elif child.decode() not in target:
                target.put(self.get(child.decode()))
        target._add(tree)

    def load(self, object_id: str) -> Blob | Tree:
        """A blob or a tree as it is stored, for ``patchgym.content.packs``.

        Raises:
            DataError: there is no such object.
        """
        found = self._read(object_id)
        if not isinstance(found, Blob | Tree):
            raise DataError(f"Object {object_id} in {self.path} is neither a blob nor a tree")
        return found

    def add(self, found: Blob | Tree) -> str:
        """Store what ``load`` gave elsewhere, and return its id."""
        return self._add(found)

    def _walk(self, tree_id: str, prefix: str) -> Iterator[tuple[str, Entry]]:
        for raw_name, mode, child in self._read_tree(tree_id).items():
            path = prefix + os.fsdecode(raw_name)
            if stat.S_ISDIR(mode):
                yield from self._walk(child.decode(), path + "/")
            else:
                yield path, Entry(mode, child.decode())

    def _write_level(self, entries: Iterable[tuple[str, Entry]]) -> str:
        tree, below = Tree(), dict[str, list[tuple[str, Entry]]]()
        for path, entry in entries:
            head, slash, rest = path.partition("/")
            if slash:
                below.setdefault(head, []).append((rest, entry))
            else:
                tree.add(os.fsencode(head), entry.mode, ObjectID(entry.id.encode()))
        for head, inner in below.items():
            tree.add(os.fsencode(head), _FOLDER, ObjectID(self._write_level(inner).encode()))
        return self._add(tree)

    def _update_level(self, tree_id: str | None, changes: Mapping[tuple[str, ...], Entry | None]) -> str | None:
        tree = self._read_tree(tree_id).copy() if tree_id else Tree()
        assert isinstance(tree, Tree)
        below: dict[str, dict[tuple[str, ...], Entry | None]] = {}
        for parts, entry in changes.items():
            name = os.fsencode(parts[0])
            if len(parts) > 1:
                below.setdefault(parts[0], {})[parts[1:]] = entry
            elif entry is not None:
                tree[name] = (entry.mode, ObjectID(entry.id.encode()))
            elif name in tree and not stat.S_ISDIR(tree[name][0]):
                del tree[name]
        for head, inner in below.items():
            name = os.fsencode(head)
            old = tree[name][1].decode() if name in tree and stat.S_ISDIR(tree[name][0]) else None
            new = self._update_level(old, inner)
            if new is not None:
                tree[name] = (_FOLDER, ObjectID(new.encode()))
            elif old is not None:
                del tree[name]
        return self._add(tree) if len(tree) else None

    def _add(self, found: Blob | Tree) -> str:
        object_id = found.id.decode()
        with self._writing:  # snapshots come from threads, and two of them often hold the same file
            if object_id not in self._known:
                with disk_errors(self.path):
                    self._store.add_object(found)
                self._known.add(object_id)
        return object_id

    def _read(self, object_id: str) -> object:
        try:
            return self._store[ObjectID(object_id.encode())]
        except KeyError:
            raise DataError(
                f"Object {object_id} is missing from {self.path}",
                why="The store was copied in part, or belongs to another run.",
                mend="Make the run or the task set again.",
            ) from None

    def _read_tree(self, tree_id: str) -> Tree:
        found = self._read(tree_id)
        if not isinstance(found, Tree):
            raise DataError(f"Object {tree_id} in {self.path} is no tree")
        return found


def open_file(folder: int, name: str) -> BinaryIO:
    """A file to be read, by its name in an open folder: a symbolic link is not followed, and a pipe does not wait.

    Raises:
        OSError: as for a local file; ELOOP for a symbolic link.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return open(os.open(name, flags, dir_fd=folder), "rb")
