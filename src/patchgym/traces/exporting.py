"""A run out, in another format, and what the format does not hold.

What is dropped is found by reading back what was written, where a reader exists: every part of a trajectory that does
not come back the same is named. Formats of trainers, which nothing reads back, say what they hold.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO
from urllib.parse import quote

from patchgym.content import disk_errors
from patchgym.errors import UsageError
from patchgym.records import Trajectory
from patchgym.reward import settled_rewards
from patchgym.store import RunDirectory
from patchgym.store.whole import beside
from patchgym.traces.glance import Glance
from patchgym.traces.loss import is_held, lost_parts, told_parts
from patchgym.traces.parquet import need_parquet, write_parquet
from patchgym.traces.writers import WRITERS, Known, Reason, Row, Unwritable, Writer

_LINES = (".jsonl", ".ndjson")
_EXAMPLES = 5


@dataclass
class Export:
    """What was written and what was not. ``rows`` counts lines, rows or documents; ``dropped`` counts trajectories by
    the part of them that the format does not hold; ``refused`` counts those that it cannot hold at all by the reason,
    and ``examples`` names the first of each."""

    format: str
    path: Path
    trajectories: int = 0
    rows: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    refused: Counter[Reason] = field(default_factory=Counter)
    examples: dict[Reason, list[str]] = field(default_factory=dict)


def export_run(
    run: RunDirectory,
    trajectory_ids: Sequence[str],
    format_name: str,
    out: Path,
    on_trajectory: Callable[[Export], None] = lambda done: None,
) -> Export:
    """Write trajectories of a run, one at a time. ``out`` is a file of JSON lines, a Parquet file where it ends so, or
    (ATIF) a folder with a document for each. It appears whole or not at all, and not where nothing can be written.

    Raises:
        UsageError: the format has no such file, or ``out`` is there already or cannot be there.
        PrerequisiteError: a Parquet file is asked for, and DuckDB is not installed.
        StorageError: the disk is full or not writable.
    """
    writer = WRITERS[format_name]
    kind = _kind(writer, out)
    if kind == "parquet":
        need_parquet()
    done = Export(format_name, out)
    known = Known(run.tasks())
    # What a trainer is given is what our own trainer would train on; formats that are read back get what is recorded.
    settled = settled_rewards(run.trajectories) if writer.HOLDS is not None else {}
    with beside(out) as scratch, disk_errors(out):
        made = scratch / out.name
        with ExitStack() as stack:
            sink = _Folder(made) if kind == "folder" else _Lines(stack.enter_context(_open(scratch / "rows.jsonl")))
            for trajectory_id in trajectory_ids:
                trajectory = run.trajectory(trajectory_id)
                if trajectory_id in settled:
                    trajectory = trajectory.model_copy(update={"reward": settled[trajectory_id]})
                _write(trajectory, writer, known, sink, done)
                on_trajectory(done)
        if kind == "lines":
            (scratch / "rows.jsonl").rename(made)
        elif kind == "parquet" and done.rows:
            write_parquet(scratch / "rows.jsonl", writer.COLUMNS, made)
        if done.rows:
            made.rename(out)
    return done


def _kind(writer: Writer, out: Path) -> str:
    ending = out.suffix.lower()
    if ending == ".parquet" and writer.COLUMNS:
        return "parquet"
    if ending in _LINES:
        return "lines"
    if writer.FOLDER and ending not in (".parquet", ".json"):
        return "folder"
    others = " or .parquet" if writer.COLUMNS else "; or name a folder" if writer.FOLDER else ""
    raise UsageError(
        f"{writer.NAME} cannot be written to {out.name}",
        why=f"The ending of a file says how it is written; {writer.NAME} is not written as {ending or 'such'} files.",
        mend=f"Let --out end in .jsonl{others}.",
    )


def _write(trajectory: Trajectory, writer: Writer, known: Known, sink: "_Folder | _Lines", done: Export) -> None:
    try:
        rows = writer.rows(trajectory, known)
    except Unwritable as unwritable:
        done.refused[unwritable.reason] += 1
        named = done.examples.setdefault(unwritable.reason, [])
        if len(named) < _EXAMPLES:
            named.append(trajectory.id)
        return
    sink.take(trajectory, rows)
    done.trajectories += 1
    done.rows += len(rows)
    done.dropped.update(_dropped(trajectory, writer, rows))


def _dropped(trajectory: Trajectory, writer: Writer, rows: Sequence[Row]) -> set[str]:
    held = writer.HOLDS
    if held is not None:
        return {part for part in told_parts(trajectory) if not is_held(part, held)}
    return lost_parts(trajectory, list(writer.read_back(json.loads(json.dumps(rows)), Glance())))


class _Lines:
    """JSON lines."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def take(self, trajectory: Trajectory, rows: Sequence[Row]) -> None:
        self._file.writelines(f"{json.dumps(row, ensure_ascii=False, allow_nan=False)}\n" for row in rows)


class _Folder:
    """A document for each trajectory, named by its id."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir()

    def take(self, trajectory: Trajectory, rows: Sequence[Row]) -> None:
        for row in rows:
            (self._path / f"{quote(trajectory.id, safe='')}.json").write_text(
                json.dumps(row, ensure_ascii=False, allow_nan=False, indent=1), encoding="utf-8", newline="\n"
            )


def _open(path: Path) -> IO[str]:
    return path.open("w", encoding="utf-8", newline="\n")


def chosen(run: RunDirectory, only: Sequence[str], ids: Sequence[str], phases: Sequence[str]) -> Iterator[str]:
    """The ids of the trajectories of a run that are asked for, in its order: those of ``ids`` (all where there are
    none), of which all of ``only`` (``ONLY``) is true, and that are of one of ``phases``.

    Raises:
        UsageError: the run holds none of such an id.
    """
    for wanted in ids:
        run.trajectory(wanted)
    for trajectory_id in run.ids:
        if ids and trajectory_id not in ids:
            continue
        if not only and not phases:
            yield trajectory_id
            continue
        trajectory = run.trajectory(trajectory_id)
        if (not phases or trajectory.phase in phases) and all(ONLY[name](trajectory) for name in only):
            yield trajectory_id


ONLY: dict[str, Callable[[Trajectory], bool]] = {
    "resolved": lambda found: found.report is not None and found.report.verdict == "resolved",
    "unresolved": lambda found: found.report is not None and found.report.verdict == "unresolved",
    "scored": lambda found: found.reward is not None and found.reward.value is not None,
    "trusted": lambda found: found.reward_trusted,
    "completed": lambda found: found.status == "completed",
}
"""What the trajectories of an export can be chosen by."""
