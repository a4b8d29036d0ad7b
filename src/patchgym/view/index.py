"""An index over a run's trajectories, so that ten thousand of them can be counted, filtered and opened at once.

One SQLite file a run in the cache. A row holds what lists and charts need, and the offset at which the whole trajectory
lies in the run. The index is made a batch at a time while pages are already shown, and goes on where it was when the
run has grown. It belongs to exactly one file: where the beginning or the last indexed line of that file has changed, it
is made anew.
"""

import hashlib
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from patchgym.content import cache_root, disk_errors
from patchgym.errors import DataError, StorageError
from patchgym.records import Task, Trajectory, Tree
from patchgym.store import RunFiles
from patchgym.store.looking import Kind
from patchgym.view.rows import COLUMNS, Row, row_of

_LAYOUT = "5"
_HEAD = 4096
_BATCH = 100
_KINDS: tuple[Kind, ...] = ("trajectories", "trees")
_SCHEMA = f"""
CREATE TABLE state (kind TEXT PRIMARY KEY, head TEXT, last INTEGER, last_hash TEXT, end INTEGER, line INTEGER);
CREATE TABLE attempts ({", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())}, UNIQUE (id));
CREATE INDEX by_phase ON attempts (phase, task);
CREATE INDEX by_task ON attempts (task, phase, sample);
CREATE INDEX by_group ON attempts (grp);
CREATE TABLE trees (id TEXT PRIMARY KEY, task TEXT, phase TEXT, offset INTEGER, nodes INTEGER, states INTEGER,
                    leaves INTEGER, finished INTEGER);
CREATE TABLE problems (place TEXT, what TEXT);
"""


class _State(NamedTuple):
    """How far a file is indexed: up to ``end``, whose last line begins at ``last``."""

    head: str
    last: int
    last_hash: str
    end: int
    line: int


class Index:
    """The index of one run. Connections are made for each use: any thread may read while one follows the run."""

    def __init__(self, run: RunFiles, tasks: Mapping[str, Task], folder: Path | None = None) -> None:
        """Open the index of a run, in ``folder`` (the cache).

        Raises:
            StorageError: it cannot be written there.
        """
        self._run, self._tasks = run, tasks
        name = hashlib.sha256(str(run.path.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
        folder = folder if folder is not None else cache_root() / "view"
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}-{_LAYOUT}.sqlite"
        try:
            self._prepare()
        except sqlite3.OperationalError as error:
            raise StorageError(
                f"Cannot write the index of {run.path}",
                why=f"{self.path}: {error}.",
                mend="Name a folder that can be written: PATCHGYM_CACHE=DIR patchgym view ...",
            ) from error
        except sqlite3.DatabaseError:  # half a file: it can be made again
            self.path.unlink(missing_ok=True)
            self._prepare()

    @contextmanager
    def open(self) -> Iterator[sqlite3.Connection]:
        """A connection to read with."""
        connection = sqlite3.connect(self.path, timeout=30.0, isolation_level=None)
        connection.row_factory = sqlite3.Row
        try:
            yield connection
        finally:
            connection.close()

    def behind(self) -> int:
        """Bytes of the run that are not indexed yet; a line that is still being written counts."""
        with self.open() as connection:
            return sum(max(0, self._run.size(kind) - self._state(connection, kind).end) for kind in _KINDS)

    def step(self) -> bool:
        """Index one more batch; whether there was anything to do."""
        done = [self._batch(kind) for kind in _KINDS]
        return any(done)

    def catch_up(self) -> None:
        """Index all that is there."""
        while self.step():
            pass

    def _prepare(self) -> None:
        with self.open() as connection:
            connection.execute("BEGIN IMMEDIATE")
            known = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'problems'").fetchone()[0]
            if not known:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
            stale = [kind for kind in _KINDS if known and not self._fits(connection, kind)]
            if stale:
                for table in ("state", "attempts", "trees", "problems"):
                    connection.execute(f"DELETE FROM {table}")
            connection.execute("COMMIT")

    def _fits(self, connection: sqlite3.Connection, kind: Kind) -> bool:
        """Whether what is indexed is the beginning of the file that is there."""
        state = self._state(connection, kind)
        if not state.end:
            return True
        return (
            state.end <= self._run.size(kind)
            and self._head(kind, state.end) == state.head
            and _hash(self._run.line(kind, state.last)) == state.last_hash
        )

    def _head(self, kind: Kind, end: int) -> str:
        with (self._run.path / f"{kind}.jsonl").open("rb") as file:
            return _hash(file.read(min(_HEAD, end)))

    def _state(self, connection: sqlite3.Connection, kind: Kind) -> _State:
        found = connection.execute(
            "SELECT head, last, last_hash, end, line FROM state WHERE kind = ?", (kind,)
        ).fetchone()
        return _State(*found) if found else _State("", 0, "", 0, 0)

    def _batch(self, kind: Kind) -> bool:
        with self.open() as connection:
            connection.execute("PRAGMA synchronous = OFF")  # it can be made again
            connection.execute("BEGIN IMMEDIATE")  # a second process that looks at the run takes turns with this one
            state = self._state(connection, kind)
            if self._run.size(kind) < state.end:  # the file was replaced while it was looked at
                connection.execute("ROLLBACK")
                self._prepare()
                return True
            last, end, number, line = state.last, state.end, state.line, b""
            for last, line in self._run.lines(kind, state.end):
                number += 1
                end = last + len(line) + 1
                self._take(connection, kind, number, last, line)
                if number - state.line >= _BATCH:
                    break
            if end > state.end:
                values = (kind, self._head(kind, end), last, _hash(line), end, number)
                connection.execute("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?, ?, ?)", values)
            connection.execute("COMMIT")
            return end > state.end

    def _take(self, connection: sqlite3.Connection, kind: Kind, number: int, offset: int, line: bytes) -> None:
        place = f"{kind}.jsonl, line {number}"
        try:
            if kind == "trajectories":
                trajectory = read_trajectory(line, place)
                self._insert(connection, row_of(trajectory, self._tasks, offset, len(line)), place)
            else:
                self._insert_tree(connection, Tree.from_line(line, where=place), offset, place)
        except DataError as error:
            connection.execute("INSERT INTO problems VALUES (?, ?)", (place, str(error)))

    def _insert(self, connection: sqlite3.Connection, row: Row, place: str) -> None:
        marks = ", ".join("?" * len(row))
        done = connection.execute(f"INSERT OR IGNORE INTO attempts VALUES ({marks})", tuple(map(_storable, row)))
        if not done.rowcount:
            what = f"{place}: trajectory {row.id} again; the first one counts"
            connection.execute("INSERT INTO problems VALUES (?, ?)", tuple(map(_storable, (place, what))))

    def _insert_tree(self, connection: sqlite3.Connection, tree: Tree, offset: int, place: str) -> None:
        finished = sum(leaf.stop is not None for leaf in tree.leaves)
        figures = (len(tree.nodes), len(tree.states), len(tree.leaves), finished)
        values = (tree.id, tree.task_id, tree.phase, offset, *figures)
        done = connection.execute("INSERT OR IGNORE INTO trees VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        if not done.rowcount:
            what = f"{place}: tree {tree.id} again; the first one counts"
            connection.execute("INSERT INTO problems VALUES (?, ?)", (place, what))
            return
        for path in tree.trajectories():
            self._insert(connection, row_of(path, self._tasks, offset, 0), place)


def read_trajectory(line: bytes, place: str) -> Trajectory:
    """A trajectory from its line.

    Raises:
        DataError: it is none, or of another version.
    """
    try:
        found = Trajectory.model_validate_json(line)
    except ValidationError:
        return Trajectory.from_line(line, where=place)  # slower, and says what is wrong
    return found if found.schema_version == Trajectory.VERSION else Trajectory.from_line(line, where=place)


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def _storable(value: object) -> object:
    """SQLite takes no lone surrogates."""
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value
