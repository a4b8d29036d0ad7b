"""The stack of layers that a workspace is: one that is written to, over those that a fork left to both twins, over the
checkouts of a tree."""

import os
import stat
import threading
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from patchgym.content import ObjectStore, disk_errors
from patchgym.content.objects import open_file
from patchgym.sandbox.layerfiles import (
    LONGEST,
    OPAQUE,
    is_opaque,
    is_whiteout,
    listed,
    make_whiteout,
    opened,
    readable,
    remove_tree,
)
from patchgym.sandbox.overlay import Overlay

_MOST_LAYERS, _MOST_BYTES = 24, 2800
"""When a stack is made one layer again: each lookup of a name goes down the layers, and the kernel takes a page of
options, their paths among them."""


class Below:
    """What lies below a layer that is written to and does not change any more. Sandboxes share it."""

    paths: tuple[Path, ...]
    """Its folders, topmost first."""

    def tree(self, objects: ObjectStore) -> str:
        """The tree id of what it shows."""
        raise NotImplementedError

    def share(self) -> "Below":
        """Itself, for one holder more."""
        return self

    def release(self) -> None:
        """One holder less. What the last one lets go is removed."""


class Checkouts(Below):
    """The checkout of ``tree`` in the cache, which holds it."""

    def __init__(self, tree: str, paths: Sequence[Path]) -> None:
        self.paths = tuple(paths)
        self._tree = tree

    def tree(self, objects: ObjectStore) -> str:
        """The tree that was checked out."""
        return self._tree


class Layer(Overlay):
    """The layer that a sandbox writes to: ``folder`` holds it and what the kernel needs beside it."""

    def __init__(self, folder: Path, below: Below) -> None:
        """Make the folder. ``below`` is the layer's to release.

        Raises:
            StorageError: the disk is full or not writable.
        """
        super().__init__(folder / "upper", below.paths)
        self.folder, self.work, self.below = folder, folder / "work", below
        with ExitStack() as undo, disk_errors(folder):
            undo.callback(below.release)
            for path in (folder, self.upper, self.work):
                path.mkdir(0o755)
            undo.pop_all()

    def tree(self, objects: ObjectStore) -> str:
        """The tree id of the workspace now; files that did not change since the last call are not read again."""
        return objects.update_tree(self.below.tree(objects), self.changes(objects))

    def remove(self) -> None:
        """Remove the folder and let go of what is below."""
        remove_tree(self.folder)
        self.below.release()


class Frozen(Below):
    """A layer that nothing writes to any more."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self.paths = (layer.upper, *layer.below.paths)
        self._holders, self._lock = 1, threading.Lock()
        self._tree: str | None = None

    def tree(self, objects: ObjectStore) -> str:
        """The tree id of what it shows, found out once."""
        if self._tree is None:
            self._tree = self._layer.tree(objects)
        return self._tree

    def share(self) -> Below:
        """Itself, for one holder more."""
        with self._lock:
            self._holders += 1
        return self

    def release(self) -> None:
        """One holder less; the last one removes the folder."""
        with self._lock:
            self._holders -= 1
            last = self._holders == 0
        if last:
            self._layer.remove()

    @property
    def crowded(self) -> bool:
        """Whether there are so many layers that they had better be one."""
        length = sum(len(os.fsencode(path)) + 1 for path in self.paths)
        return len(self.paths) > _MOST_LAYERS or length > _MOST_BYTES

    def merged(self, folder: Path) -> "Frozen":
        """One layer in ``folder`` that shows the same over the checkouts. Nothing is released.

        Raises:
            StorageError: the disk is full or not writable.
        """
        layers: list[Layer] = []
        below: Below = self
        while isinstance(below, Frozen):
            layers.append(below._layer)
            below = below._layer.below
        merged = Layer(folder, below)
        with ExitStack() as undo, disk_errors(folder):
            undo.callback(merged.remove)
            for layer in reversed(layers):
                merge_upper(layer.upper, merged.upper)
            undo.pop_all()
        return Frozen(merged)


def merge_upper(upper: Path, target: Path) -> None:
    """Lay an upper layer over the one in ``target`` (which may be empty): files, whiteouts and opaque folders.

    Raises:
        OSError: the disk is full.
    """
    with opened(upper) as folder:
        _merge(folder, str(target))


def _merge(folder: int, target: str) -> None:
    """Lay an open folder over the one at ``target``. What goes away or turns into something else is left out."""
    for name, info in listed(folder):
        path = f"{target}/{name}"
        if stat.S_ISDIR(info.st_mode):
            with suppress(FileNotFoundError, NotADirectoryError), opened(name, folder) as inner:
                opaque = is_opaque(inner)
                hides = _make_way(path, keep_folder=not opaque) or opaque
                if not os.path.isdir(path):
                    os.mkdir(path)
                if hides:
                    os.setxattr(path, OPAQUE[0], b"y")
                if len(os.fsencode(path)) < LONGEST:
                    _merge(inner, path)
                os.chmod(path, stat.S_IMODE(info.st_mode) | stat.S_IRWXU)
            continue
        _make_way(path, keep_folder=False)
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(info.st_mode):
                os.symlink(os.readlink(name, dir_fd=folder), path)
            elif is_whiteout(info):
                make_whiteout(path)
            elif stat.S_ISREG(info.st_mode):
                _copy_file(folder, name, path, info)


def _make_way(path: str, *, keep_folder: bool) -> bool:
    """Remove what stands at a place in a layer, folders only where they are not to be kept. Whether something that is
    no folder stood there: what is below it stays hidden."""
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    if not stat.S_ISDIR(info.st_mode):
        os.unlink(path)
        return True
    if not keep_folder:
        remove_tree(Path(path))
    return False


def _copy_file(folder: int, name: str, copy: str, info: os.stat_result) -> None:
    with readable(folder, name, info), open_file(folder, name) as source, open(copy, "xb") as target:
        while os.sendfile(target.fileno(), source.fileno(), None, 1 << 24):
            pass
    os.chmod(copy, stat.S_IMODE(info.st_mode))
    os.utime(copy, ns=(info.st_atime_ns, info.st_mtime_ns))
