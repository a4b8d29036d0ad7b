"""Which files an agent can read: all of the sandbox's file system, save what every machine has."""

from __future__ import annotations

import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

# Kernel file systems, and the parts of /usr that hold no Python package and no home.
_SKIPPED = ("/proc/", "/sys/", "/dev/")
_SYSTEM = ("/usr/", "/bin/", "/sbin/", "/lib/", "/lib32/", "/lib64/", "/libx32/", "/etc/alternatives/")
_SYSTEM_KEPT = ("/usr/local/", "/usr/src/", "/usr/share/python-wheels/")
_STANDARD = ("os.py", "site.py", "abc.py")


class Found(NamedTuple):
    """A file, whether it is read in any case (``deep``) or only where its name speaks for it."""

    path: str
    deep: bool
    is_socket: bool


class Walk:
    """Every readable file, the workspace first. ``folders`` are those seen, ``stopped`` says why it ended early."""

    def __init__(self, workspace: str, skip: list[str], environment: str, deadline: float) -> None:
        self.stopped = ""
        self.files = 0
        self.folders: list[str] = []
        self._skip = {os.path.realpath(path) for path in skip}
        prefixes = {os.path.realpath(path) for path in (environment, sys.prefix, sys.base_prefix)}
        self._shared = (*sorted(path + "/" for path in prefixes if path != "/"), "/usr/")
        self._workspace = workspace
        self._deadline = deadline
        self._seen: set[str] = set()

    def every(self) -> Iterator[Found]:
        """Yield the files."""
        for root in self._roots():
            for found in self._below(root):
                if time.monotonic() > self._deadline:
                    self.stopped = "time ran out at " + found.path
                    return
                self.files += 1
                yield found

    def _roots(self) -> Iterator[str]:
        yield self._workspace
        yield "/"
        yield from _SYSTEM_KEPT
        for parent in ("/usr/lib", "/usr/lib64", "/usr/local/lib"):
            for name in _names(parent):
                if name.startswith(("python", "pypy")):
                    yield os.path.join(parent, name)

    def _below(self, root: str) -> Iterator[Found]:
        pending = [root]
        while pending:
            folder = pending.pop()
            real = os.path.realpath(folder)
            if real in self._seen or real in self._skip or self._is_system(real, root):
                continue
            self._seen.add(real)
            self.folders.append(folder)
            entries = _entries(folder)
            names = {entry.name for entry in entries}
            deep = not self._is_shared(real) and not names.issuperset(_STANDARD)
            for entry in entries:
                try:
                    if entry.is_dir():
                        pending.append(entry.path)
                    elif entry.is_file():
                        yield Found(entry.path, deep, False)
                    elif stat.S_ISSOCK(entry.stat().st_mode):
                        yield Found(entry.path, deep, True)
                except OSError:
                    continue

    def _is_shared(self, real: str) -> bool:
        """Whether a folder belongs to the environment or the system: many files that no task put there."""
        inside = real + "/"
        if inside.startswith(self._workspace + "/"):
            return False
        return inside.startswith(self._shared) or "/site-packages/" in inside or "/lib/python" in inside

    def _is_system(self, real: str, root: str) -> bool:
        inside = real + "/"
        system = inside.startswith(_SYSTEM) and not inside.startswith(_SYSTEM_KEPT)
        return inside.startswith(_SKIPPED) or (root == "/" and system)


def read(path: str, most: int) -> bytes:
    """At most ``most`` bytes of a file; none where it cannot be read."""
    try:
        with open(path, "rb") as stream:
            return stream.read(most)
    except (OSError, ValueError):
        return b""


def is_socket(path: str) -> bool:
    """Whether a path is a socket."""
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def first_line(path: str) -> str:
    """The first line of a small text file, stripped."""
    return read(path, 4096).decode("utf-8", "replace").split("\n", 1)[0].strip()


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name, reverse=True)
    except OSError:
        return []


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


if TYPE_CHECKING:
    Clock = Callable[[], bool]
    """Whether time and bytes are left."""
