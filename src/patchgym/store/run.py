"""The run directory: the only code that knows where things lie in it."""

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

from pydantic import JsonValue

from patchgym.config import differing_keys
from patchgym.content import ObjectStore, disk_errors
from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.records import Gate, RunManifest, Step, Task, Trajectory, Tree
from patchgym.store.jsonl import append_line, cut_torn_line, read_line_at, read_lines
from patchgym.store.lock import is_locked, lock_folder
from patchgym.store.whole import write_whole


class _Place(NamedTuple):
    """Where a final trajectory lies in its file, and what it is asked for by."""

    offset: int
    phase: str
    tree: str | None = None


class Journal:
    """The steps of one trajectory in the making."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def append(self, step: Step) -> None:
        """Write a step and wait until it is on disk.

        Raises:
            StorageError: the disk is full or not writable.
        """
        append_line(self._path, step.model_dump_json())


class RunDirectory:
    """A run directory, open for writing (``open_for_writing``, one process at a time) or for reading (``read``).

    ``problems`` names each line that could not be read and what was repaired on opening.
    """

    def __init__(self, path: Path, manifest: RunManifest, lock: int | None) -> None:
        self.path = path
        self.manifest = manifest
        self.problems: list[str] = []
        self.objects = ObjectStore(path / "objects")
        self._lock = lock
        self._places: dict[str, _Place] = {}
        self._trees: dict[str, int] = {}

    @classmethod
    def open_for_writing(cls, path: Path, manifest: RunManifest) -> Self:
        """Start a run at ``path``, or go on with the one that is there.

        Raises:
            ConfigError: the run there was made with another configuration or other tasks; the message names the keys.
            UsageError: another process writes to it, or ``path`` holds something else.
            DataError: it is damaged beyond the last line.
            StorageError: the disk is full or not writable.
        """
        with disk_errors(path):
            if path.exists() and not path.is_dir():
                raise UsageError(f"{path} is a file, not a run directory", mend="Choose another --out.")
            path.mkdir(parents=True, exist_ok=True)
            foreign = {entry.name for entry in path.iterdir()} - {"lock", "run.json.tmp"}
            if foreign and "run.json" not in foreign:
                raise UsageError(f"{path} holds other files and no run", mend="Choose an empty folder for --out.")
            lock = lock_folder(path)
            with ExitStack() as undo:
                undo.callback(os.close, lock)
                kept = _read_manifest(path) if (path / "run.json").is_file() else None
                if kept is None:
                    write_whole(path / "run.json", manifest.model_dump_json(indent=1).encode() + b"\n")
                else:
                    _must_be_the_same(path, kept, manifest)
                run = cls(path, kept or manifest, lock)
                run._cut_torn_lines()
                run._load()
                run._set_journals_aside()
                undo.pop_all()
        return run

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a run for reading.

        Raises:
            UsageError: there is no run at ``path``.
            DataError: its manifest is damaged or of another version.
        """
        if not (path / "run.json").is_file():
            raise UsageError(f"There is no run at {path}", mend="Name a directory that holds a run.json.")
        run = cls(path, _read_manifest(path), None)
        run._load()
        return run

    @property
    def in_progress(self) -> bool:
        """Whether another process is writing to it now."""
        return self._lock is None and is_locked(self.path)

    @property
    def ids(self) -> list[str]:
        """The ids of all final trajectories, in the order in which they became final."""
        return list(self._places)

    @property
    def trajectories(self) -> Iterator[Trajectory]:
        """Every final trajectory, read one at a time: single ones in the order in which they became final, then the
        paths of the trees."""
        for name, place in self._places.items():
            if place.tree is None:
                yield self.trajectory(name)
        for tree in self.trees:
            yield from tree.trajectories()

    @property
    def tree_ids(self) -> list[str]:
        """The ids of all search trees, in the order in which they became final."""
        return list(self._trees)

    @property
    def trees(self) -> Iterator[Tree]:
        """Every search tree, read one at a time."""
        return map(self.tree, self.tree_ids)

    def tree(self, tree_id: str) -> Tree:
        """One search tree.

        Raises:
            UsageError: there is none of this id.
        """
        if tree_id not in self._trees:
            raise UsageError(f"{self.path} holds no tree {tree_id}", mend=f"List them: patchgym show {self.path}")
        return Tree.from_line(read_line_at(self.path / "trees.jsonl", self._trees[tree_id]))

    def trajectory(self, trajectory_id: str) -> Trajectory:
        """One final trajectory.

        Raises:
            UsageError: there is none of this id.
        """
        place = self._places.get(trajectory_id)
        if place is None:
            raise UsageError(
                f"{self.path} holds no trajectory {trajectory_id}",
                why=f"It has {len(self._places)}, such as {', '.join(self.ids[:3])}."
                if self._places
                else "It has none.",
                mend=f"List them: patchgym show {self.path}",
            )
        if place.tree is not None:
            return next(path for path in self.tree(place.tree).trajectories() if path.id == trajectory_id)
        return Trajectory.from_line(read_line_at(self.path / "trajectories.jsonl", place.offset))

    @property
    def phases(self) -> dict[str, list[str]]:
        """The ids of all final trajectories by phase, in the order in which they became final."""
        found: dict[str, list[str]] = {}
        for key, place in self._places.items():
            found.setdefault(place.phase, []).append(key)
        return found

    def phase(self, name: str) -> list[Trajectory]:
        """The trajectories of one phase, by task and sample index."""
        found = [self.trajectory(key) for key, place in self._places.items() if place.phase == name]
        return sorted(found, key=lambda trajectory: (trajectory.task_id, trajectory.sample_index))

    def keep_tasks(self, tasks: Iterable[Task]) -> None:
        """Write the tasks that the run works on, so that it can be looked at and checked without their task set.

        Raises:
            StorageError: the disk is full or not writable.
        """
        path = self.path / "tasks.jsonl"
        if not path.is_file():
            write_whole(path, "".join(f"{task.to_line()}\n" for task in tasks).encode())

    def tasks(self) -> dict[str, Task]:
        """The tasks that the run works on, by id; none where it was imported.

        Raises:
            DataError: their file is damaged or of another version.
        """
        found = {}
        for number, (_, line) in enumerate(read_lines(self.path / "tasks.jsonl"), start=1):
            task = Task.from_line(line, where=f"tasks.jsonl, line {number}")
            found[task.id] = task
        return found

    def journal(self, trajectory_id: str) -> Journal:
        """A fresh journal for a trajectory that is about to be made."""
        path = self.path / "journal" / f"{trajectory_id}.jsonl"
        with disk_errors(path):
            path.parent.mkdir(exist_ok=True)
            path.unlink(missing_ok=True)
        return Journal(path)

    def append(self, trajectory: Trajectory) -> None:
        """Make a trajectory final. A second one with the same id is refused.

        Raises:
            DataError: the id is there already.
            StorageError: the disk is full or not writable.
        """
        if trajectory.id in self._places:
            raise DataError(f"Trajectory {trajectory.id} is final already")
        offset = append_line(self.path / "trajectories.jsonl", trajectory.to_line())
        self._places[trajectory.id] = _Place(offset, trajectory.phase)
        (self.path / "journal" / f"{trajectory.id}.jsonl").unlink(missing_ok=True)

    def set_aside(self, trajectory_id: str) -> None:
        """Keep the journal of a trajectory that will never be final, as one that was interrupted."""
        path = self.path / "journal" / f"{trajectory_id}.jsonl"
        with suppress(FileNotFoundError), disk_errors(path):
            path.rename(path.with_suffix(".interrupted"))

    def append_tree(self, tree: Tree) -> None:
        """Make a search tree final, and with it its paths. A second one with the same id is refused.

        Raises:
            DataError: the id is there already.
            StorageError: the disk is full or not writable.
        """
        if tree.id in self._trees:
            raise DataError(f"Tree {tree.id} is final already")
        self._add_tree(tree, append_line(self.path / "trees.jsonl", tree.to_line()))
        (self.path / "journal" / f"{tree.id}.jsonl").unlink(missing_ok=True)

    def log_metrics(self, values: dict[str, JsonValue]) -> None:
        """Append one object to ``metrics.jsonl``.

        Raises:
            StorageError: the disk is full or not writable.
        """
        append_line(self.path / "metrics.jsonl", json.dumps(values, allow_nan=False))

    def metrics(self) -> list[dict[str, JsonValue]]:
        """Every object of ``metrics.jsonl``."""
        return [json.loads(line) for _, line in read_lines(self.path / "metrics.jsonl")]

    def keep_gate(self, gate: Gate) -> None:
        """Append a gate to ``gates.jsonl``, unless the last one of its place found the same.

        Raises:
            StorageError: the disk is full or not writable.
        """
        known = [kept for kept in self.gates() if kept.place == gate.place]
        if not known or known[-1].model_copy(update={"made_at": gate.made_at}) != gate:
            append_line(self.path / "gates.jsonl", gate.to_line())

    def gates(self) -> list[Gate]:
        """The gates that the run came to, in order.

        Raises:
            DataError: one is damaged or of another version.
        """
        lines = enumerate(read_lines(self.path / "gates.jsonl"), start=1)
        return [Gate.from_line(line, where=f"gates.jsonl, line {number}") for number, (_, line) in lines]

    def write_report(self, name: str, content: str) -> Path:
        """Write a whole file (``report.json``, say) all at once.

        Raises:
            StorageError: the disk is full or not writable.
        """
        write_whole(self.path / name, content.encode() + b"\n")
        return self.path / name

    def keep_evaluation(self, name: str, content: str) -> Path:
        """Write the evaluation of a phase to ``eval/``, in place of the one that is there.

        Raises:
            StorageError: the disk is full or not writable.
        """
        with disk_errors(self.path):
            (self.path / "eval").mkdir(exist_ok=True)
        return self.write_report(f"eval/{name}.json", content)

    def evaluations(self) -> dict[str, Path]:
        """The evaluations that it keeps, by phase."""
        return {path.stem: path for path in sorted((self.path / "eval").glob("*.json")) if path.is_file()}

    def close(self) -> None:
        """Give up the right to write. May be called twice."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _cut_torn_lines(self) -> None:
        for name in ("trajectories.jsonl", "trees.jsonl", "metrics.jsonl", "gates.jsonl"):
            torn = cut_torn_line(self.path / name)
            if torn:
                self.problems.append(f"{name}: removed {len(torn)} bytes of a line that was never finished")

    def _set_journals_aside(self) -> None:
        for path in sorted((self.path / "journal").glob("*.jsonl")):
            if path.stem in self._places or path.stem in self._trees:
                path.unlink()  # killed after the line was written, and before this was gone
                continue
            path.rename(path.with_suffix(".interrupted"))
            self.problems.append(f"{path.stem}: was interrupted and is made again")

    def _load(self) -> None:
        path = self.path / "trajectories.jsonl"
        for number, (offset, line) in enumerate(read_lines(path), start=1):
            where = f"{path.name}, line {number}"
            try:
                trajectory = Trajectory.from_line(line, where=where)
            except DataError as error:
                self.problems.append(f"{error.what}; the line is left out")
                continue
            if trajectory.id in self._places:
                self.problems.append(f"{where}: trajectory {trajectory.id} again; the first one counts")
                continue
            self._places[trajectory.id] = _Place(offset, trajectory.phase)
        for number, (offset, line) in enumerate(read_lines(self.path / "trees.jsonl"), start=1):
            where = f"trees.jsonl, line {number}"
            try:
                tree = Tree.from_line(line, where=where)
            except DataError as error:
                self.problems.append(f"{error.what}; the line is left out")
                continue
            if tree.id in self._trees:
                self.problems.append(f"{where}: tree {tree.id} again; the first one counts")
                continue
            self._add_tree(tree, offset)

    def _add_tree(self, tree: Tree, offset: int) -> None:
        self._trees[tree.id] = offset
        for path in tree.trajectories():
            self._places[path.id] = _Place(offset, path.phase, tree.id)


def _read_manifest(path: Path) -> RunManifest:
    return RunManifest.from_line((path / "run.json").read_bytes(), where=f"{path}/run.json")


def _must_be_the_same(path: Path, kept: RunManifest, wanted: RunManifest) -> None:
    parts = ("command", "config", "task_hashes", "seed")
    old, new = ({part: getattr(manifest, part) for part in parts} for manifest in (kept, wanted))
    keys = differing_keys(old, new)
    if keys:
        shown = ", ".join(keys[:5]) + (f" and {len(keys) - 5} more" if len(keys) > 5 else "")
        raise ConfigError(
            f"The run at {path} was started with other settings",
            why=f"These differ: {shown}.",
            mend="Repeat the old settings to resume it, or choose another --out.",
        )
