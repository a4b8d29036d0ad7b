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
from patchgym.traces.intake import Intake

_HEAD = 1 << 16
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+")
_LONGEST_ID = 150


@dataclass
class FileImport:
    """What became of one file or folder. ``format`` is None where none was recognised; ``broken`` counts what could not
    be read, ``left_out`` what a trajectory does not hold, ``empty`` the trajectories that cleaning dropped."""

    path: Path
    format: str | None
    trajectories: int = 0
    steps: int = 0
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
    """Read logs of a format (``auto``: told by what they hold) into a run. Of a folder, every file below it is one.

    Trajectories are named as their logs name them; of a name that is there already the next one gets a number. A
    ``cleaner`` cleans them on the way in: what the logs hold beside text goes to its source, and to the run only what
    is clean.

    Raises:
        UsageError: there is no such file.
        StorageError: the disk is full.
    """
    done = []
    taken: dict[str, int] = {}
    for path, reader in _found(paths, format_name):
        one = FileImport(path, reader.NAME if reader else None)
        intake = Intake(cleaner.source if cleaner is not None else run.objects)
        if reader is None:
            intake.damaged("unknown_format", path.name)
        else:
            try:
                for trajectory in reader.read(path, intake):
                    _take(trajectory, run, taken, intake, one, cleaner)
            except DataError as error:
                intake.damaged("unreadable", path.name, "; ".join(part for part in (error.what, error.why) if part))
        one.broken, one.problems = dict(intake.broken), intake.problems
        done.append(one)
        on_file(one)
    return done


def _take(
    trajectory: Trajectory,
    run: RunDirectory,
    taken: dict[str, int],
    intake: Intake,
    one: FileImport,
    cleaner: Cleaner | None,
) -> None:
    wanted = name = _UNSAFE.sub("_", trajectory.id)[:_LONGEST_ID] or "unnamed"
    if wanted in taken:
        intake.damaged("duplicate_id", one.path.name, wanted)
    while name in taken:
        taken[wanted] += 1
        name = f"{wanted}~{taken[wanted]}"
    taken[name] = 1
    own_task = trajectory.task_id != trajectory.id
    update: dict[str, object] = {"id": name} if own_task else {"id": name, "task_id": name}
    if trajectory.spawned_by is not None:
        parent = _UNSAFE.sub("_", trajectory.spawned_by.trajectory)[:_LONGEST_ID]
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


def _found(paths: Sequence[Path], format_name: str) -> Iterator[tuple[Path, Reader | None]]:
    """Every log with what reads it."""
    for path in paths:
        if not path.exists():
            raise UsageError(f"There is no log {path}", mend="Give files or folders of logs.")
        yield from _below(path, format_name)


def _below(path: Path, format_name: str) -> Iterator[tuple[Path, Reader | None]]:
    reader = READERS[format_name] if format_name != "auto" else _reader_of(path)
    if path.is_file() or (reader is not None and reader.recognises(path, b"")):
        yield path, reader
    else:
        for inner in sorted(path.iterdir()):
            if not inner.name.startswith(".") and not inner.is_symlink() and (inner.is_file() or inner.is_dir()):
                yield from _below(inner, format_name)


def _reader_of(path: Path) -> Reader | None:
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(_HEAD)
    return next((reader for reader in READERS.values() if reader.recognises(path, head)), None)
