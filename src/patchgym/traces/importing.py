"""Logs in, a run directory out."""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.errors import DataError, UsageError
from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from patchgym.traces.cleaning import Cleaner
from patchgym.traces.formats import READERS, Reader
from patchgym.traces.intake import Intake, open_log

_HEAD = 1 << 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+")
_LONGEST_ID = 150


@dataclass
class FileImport:
    """What became of one file or folder. ``format`` is None where none was recognised; ``broken`` counts what could not
    be read, ``left_out`` what a trajectory does not hold, ``renamed`` the trajectories whose name another one had,
    ``empty`` those that cleaning dropped."""

    path: Path
    format: str | None
    trajectories: int = 0
    steps: int = 0
    renamed: int = 0
    empty: int = 0
    broken: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def import_logs(
    paths: Sequence[Path],
    format_name: str,
    run: RunDirectory,
    on_file: Callable[[FileImport], None] = lambda done: None,
    cleaner: Cleaner | None = None,
) -> list[FileImport]:
    """Read logs of a format (``auto``: told by what they hold) into a run. Of a folder, every file below it is one;
    symbolic links in it are not followed. A file that is part of another log is read with that.

    Trajectories are named as their logs name them; of a name that is there already the next one gets a number. A
    ``cleaner`` cleans them on the way in: what the logs hold beside text goes to its source, and to the run only what
    is clean.

    Raises:
        UsageError: there is no such file.
        StorageError: the disk is full.
    """
    done = []
    names = _Names()
    claimed: set[Path] = set()
    for path in _found(paths, format_name):
        if path.absolute() in claimed:
            continue
        intake = Intake(cleaner.source if cleaner is not None else run.objects, claimed)
        one = FileImport(path, None)
        for trajectory in _read(path, format_name, intake, one):
            _take(trajectory, run, names, one, cleaner)
        if not one.trajectories and not one.empty:
            _explain(path, intake, one)
        one.broken, one.problems = dict(intake.broken), intake.problems
        done.append(one)
        on_file(one)
    return done


def _explain(path: Path, intake: Intake, one: FileImport) -> None:
    """Say of a file that holds no trajectory what it may be instead."""
    if not intake.broken:
        intake.damaged("nothing_in_it", path.name)
    if one.format is None or "unreadable" in intake.broken:
        return
    other = _reader_of(path)
    if other is not None and one.format != other.NAME:
        intake.problems.insert(0, f"{path.name}: looks like {other.NAME}, not like {one.format}; try that, or auto")


def _read(path: Path, format_name: str, intake: Intake, one: FileImport) -> Iterator[Trajectory]:
    """The trajectories of a file. That it cannot be read is counted."""
    try:
        reader = _reader_of(path) if format_name == "auto" else READERS[format_name]
        if reader is None:
            if path.is_file() and not path.stat().st_size:
                intake.damaged("empty", path.name)
            else:
                intake.damaged("unknown_format", path.name, "patchgym traces import --help lists those that are known")
            return
        one.format = reader.NAME
        yield from reader.read(path, intake)
    except DataError as error:
        intake.damaged("unreadable", path.name, "; ".join(part for part in (error.what, error.why) if part))
    except OSError as error:
        intake.damaged("unreadable", path.name, str(error))


class _Names:
    """The names under which trajectories are kept."""

    def __init__(self) -> None:
        self._taken: dict[str, int] = {}
        self._latest: dict[str, str] = {}

    def new(self, wanted: str) -> tuple[str, bool]:
        """A name that nothing has yet, and whether it is the wanted one."""
        name = first = self._safe(wanted)
        while name in self._taken:
            self._taken[first] += 1
            name = f"{first}~{self._taken[first]}"
        self._taken[name] = 1
        self._latest[wanted] = name
        return name, name == first

    def of(self, wanted: str) -> str:
        """The name that a trajectory was given at last."""
        return self._latest.get(wanted, self._safe(wanted))

    @staticmethod
    def _safe(wanted: str) -> str:
        name = _UNSAFE.sub("_", wanted)[:_LONGEST_ID]
        return name if name.strip("._") else f"unnamed{name}"


def _take(trajectory: Trajectory, run: RunDirectory, names: _Names, one: FileImport, cleaner: Cleaner | None) -> None:
    name, own = names.new(trajectory.id)
    one.renamed += not own
    own_task = trajectory.task_id != trajectory.id
    update: dict[str, object] = {"id": name} if own_task else {"id": name, "task_id": name}
    if trajectory.spawned_by is not None:
        parent = names.of(trajectory.spawned_by.trajectory)
        update["spawned_by"] = trajectory.spawned_by.model_copy(update={"trajectory": parent})
    named = trajectory.model_copy(update=update)
    kept = cleaner.clean(named) if cleaner is not None else named
    if kept is None:
        one.empty += 1
        return
    run.append(kept)
    one.trajectories += 1
    one.steps += len(trajectory.steps)
    for kind, count in (trajectory.origin.left_out if trajectory.origin else {}).items():
        one.left_out[kind] = one.left_out.get(kind, 0) + count


def _found(paths: Sequence[Path], format_name: str) -> Iterator[Path]:
    """Every log."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"There is no log {path}", mend="Give files or folders of logs.")
        yield from _below(path, format_name)


def _below(path: Path, format_name: str) -> Iterator[Path]:
    """A log, or those of a folder: its files before the folders that belong to them, and those of sub-agents after
    those of their sessions."""
    if not path.is_dir() or any(one.recognises(path, b"") for one in _readers(format_name)):
        yield path
        return
    inner = [one for one in path.iterdir() if not one.name.startswith(".") and not one.is_symlink()]
    for one in sorted(inner, key=lambda one: (one.is_dir(), one.name.startswith("agent-"), one.name)):
        if one.is_file() or one.is_dir():
            yield from _below(one, format_name)


def _readers(format_name: str) -> list[Reader]:
    return list(READERS.values()) if format_name == "auto" else [READERS[format_name]]


def _reader_of(path: Path) -> Reader | None:
    head = b""
    if not path.is_dir():
        with open_log(path) as file:
            head = file.read(_HEAD)
    return next((reader for reader in READERS.values() if reader.recognises(path, head)), None)
