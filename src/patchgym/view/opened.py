"""A run as pages look at it: its files, its tasks, its index, and whoever keeps the index up to date."""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.records import Trajectory, Tree
from patchgym.store import RunFiles
from patchgym.view.index import Index, read_trajectory

_LOOK_AGAIN_S = 1.0
_KEPT = 6
_KEPT_BYTES = 64 << 20


class Progress(NamedTuple):
    """How a run stands. ``state``: ``running``, ``done``, ``interrupted`` (beginnings were left), ``empty``,
    ``unreadable`` (its manifest is damaged or of another version)."""

    state: str
    attempts: int
    in_the_making: int
    unread: int
    """Bytes that are not indexed yet."""
    problems: int
    mark: str
    """Changes whenever a page about the run may look different."""


class OpenedRun:
    """A run under a name that is its own among the opened ones."""

    def __init__(self, path: Path, name: str, index_folder: Path | None = None) -> None:
        """Open it.

        Raises:
            UsageError: there is no run.
            StorageError: its index cannot be written.
        """
        self.files = RunFiles(path)
        self.name = name
        self.tasks, self.task_problems = self.files.tasks()
        self.index = Index(self.files, self.tasks, index_folder)
        self._recent: OrderedDict[str, tuple[Trajectory, int]] = OrderedDict()
        self._last_tree: Tree | None = None
        self._keeping = threading.Lock()
        self._stop = threading.Event()
        self._follower: threading.Thread | None = None
        self._objects: ObjectStore | None = None

    @property
    def path(self) -> Path:
        """Its directory."""
        return self.files.path

    @property
    def objects(self) -> ObjectStore:
        """Its object store.

        Raises:
            DataError: it has none.
        """
        if self._objects is None:
            self._objects = self.files.objects
        if self._objects is None:
            raise DataError(f"{self.name} has no object store", why="The run was copied without its objects folder.")
        return self._objects

    def follow(self) -> None:
        """Keep the index up to date in the background until ``close``."""
        self._follower = threading.Thread(target=self._keep_up, name=f"index {self.name}", daemon=True)
        self._follower.start()

    def close(self) -> None:
        """Stop following."""
        self._stop.set()
        if self._follower is not None:
            self._follower.join(timeout=5.0)

    def _keep_up(self) -> None:
        while not self._stop.is_set():
            if not self.index.step():
                self._stop.wait(_LOOK_AGAIN_S)

    def progress(self) -> Progress:
        """How it stands now."""
        beginnings = self.files.beginnings()
        running = self.files.in_progress
        unread = self.index.behind()
        with self.index.open() as connection:
            attempts = connection.execute("SELECT count(*) FROM attempts").fetchone()[0]
            problems = connection.execute("SELECT count(*) FROM problems").fetchone()[0] + len(self.task_problems)
        metrics = self.path / "metrics.jsonl"
        measured = metrics.stat().st_size if metrics.is_file() else 0
        made = sum(one.steps for one in beginnings)
        return Progress(
            state=self._state(running, attempts, len(beginnings), unread),
            attempts=attempts,
            in_the_making=len(beginnings),
            unread=unread,
            problems=problems,
            mark=f"{attempts}.{len(beginnings)}.{made}.{problems}.{measured}.{int(running)}.{int(unread > 0)}",
        )

    def _state(self, running: bool, attempts: int, beginnings: int, unread: int) -> str:
        if self.files.manifest is None:
            return "unreadable"
        if running:
            return "running"
        if beginnings:
            return "interrupted"
        holds = attempts or unread or (self.path / "metrics.jsonl").is_file() or (self.path / "report.json").is_file()
        return "done" if holds else "empty"

    def problems(self, most: int = 50) -> list[str]:
        """What could not be read, the first ones."""
        with self.index.open() as connection:
            rows = connection.execute("SELECT what FROM problems ORDER BY rowid LIMIT ?", (most,)).fetchall()
        return [*self.task_problems, *(row[0] for row in rows)][:most]

    def trajectory(self, name: str) -> Trajectory:
        """One trajectory, whole.

        Raises:
            UsageError: the run holds none of this id.
            DataError: it can no longer be read.
        """
        with self._keeping:
            if name in self._recent:
                self._recent.move_to_end(name)
                return self._recent[name][0]
        with self.index.open() as connection:
            row = connection.execute(
                "SELECT offset, tree, bytes FROM attempts WHERE id = ?", (_plain(name),)
            ).fetchone()
        if row is None:
            raise UsageError(f"{self.name} holds no trajectory {name}", why="It may not be final yet.")
        if row["tree"] is not None:
            paths = self.tree(row["tree"]).trajectories()
            found = next((path for path in paths if path.id == name), None)
        else:
            found = read_trajectory(self.files.line("trajectories", row["offset"]), name)
        if found is None or _plain(found.id) != _plain(name):
            raise DataError(f"{name} is no longer where it was", mend="Load the page again.")
        with self._keeping:
            self._recent[name] = (found, row["bytes"])
            while len(self._recent) > _KEPT or (
                len(self._recent) > 1 and sum(size for _, size in self._recent.values()) > _KEPT_BYTES
            ):
                self._recent.popitem(last=False)
        return found

    def tree(self, name: str) -> Tree:
        """One search tree.

        Raises:
            UsageError: the run holds none of this id.
            DataError: it can no longer be read.
        """
        kept = self._last_tree
        if kept is not None and kept.id == name:
            return kept
        with self.index.open() as connection:
            row = connection.execute("SELECT offset FROM trees WHERE id = ?", (_plain(name),)).fetchone()
        if row is None:
            raise UsageError(f"{self.name} holds no tree {name}")
        self._last_tree = found = Tree.from_line(self.files.line("trees", row["offset"]), where=name)
        return found

    def updates(self) -> list[tuple[str, dict[str, JsonValue]]]:
        """Every update of a policy by its name, as it reported itself."""
        found = []
        for row in self.files.metrics()[0]:
            report = row.get("report")
            if row.get("kind") == "update" and isinstance(report, dict):
                found.append((str(row.get("name", "")), report))
        return found


def open_runs(paths: Sequence[Path], index_folder: Path | None = None) -> list[OpenedRun]:
    """Open each run under the name of its folder, numbered where two have one name; characters that cannot be seen are
    written out.

    Raises:
        UsageError: there is no run at one of the paths.
        StorageError: an index cannot be written.
    """
    names: dict[str, OpenedRun] = {}
    for path in paths:
        base = "".join(map(_seen, path.resolve().name)) or "run"
        name, number = base, 1
        while name in names:
            number += 1
            name = f"{base}-{number}"
        names[name] = OpenedRun(path, name, index_folder)
    return list(names.values())


def _seen(sign: str) -> str:
    return sign if sign.isprintable() else f"\\u{ord(sign):04x}"


def _plain(name: str) -> str:
    return name.encode("utf-8", "backslashreplace").decode()
