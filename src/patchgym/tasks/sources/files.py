"""The files of a tree, as texts."""

from collections.abc import Mapping

from patchgym.content import Entry, ObjectStore

_MOST_BYTES = 1024**2


class Files:
    """The files of a tree, by path, and their texts. ``beside`` holds texts that belong to a release but not to its
    tree: what a build tool wrote into ``*.egg-info``, under that file's name. Reading is bounded: a file over 1 MiB has
    no text."""

    def __init__(
        self, objects: ObjectStore, entries: Mapping[str, Entry], beside: Mapping[str, str] | None = None
    ) -> None:
        self.entries = entries
        self.beside = beside or {}
        self._objects = objects

    def text(self, path: str) -> str:
        """The text of a file; empty where there is none, or where it is no UTF-8."""
        entry = self.entries.get(path)
        if entry is None or entry.mode & 0o170000 != 0o100000:
            return ""
        data = self._objects.get(entry.id)
        try:
            return data.decode() if len(data) <= _MOST_BYTES else ""
        except UnicodeDecodeError:
            return ""
