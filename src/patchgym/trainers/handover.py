"""Rows of an update as a Parquet file, for trainers that read files: ids, masks, log-probabilities, advantages.

The rows are those that ``patchgym train`` would train on by the same recipe, left out and checked in the same way.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import JsonValue

from patchgym.content import disk_errors
from patchgym.errors import DataError
from patchgym.store.whole import beside
from patchgym.traces.parquet import need_parquet, write_parquet
from patchgym.train import RowSet, TokenRow

COLUMNS: Mapping[str, str] = {
    "task_id": "VARCHAR",
    "group_id": "VARCHAR",
    "trajectory_id": "VARCHAR",
    "ids": "INTEGER[]",
    "mask": "TINYINT[]",
    "logprobs": "DOUBLE[]",
    "advantages": "DOUBLE[]",
    "turns": "INTEGER[]",
    "reward": "DOUBLE",
    "temperature": "DOUBLE",
    "policy_versions": "VARCHAR[]",
}
"""The columns with their types in DuckDB's words. Lists are as long as ``ids``, but for ``policy_versions``, which has
a place for each turn. ``mask`` is 1 on what is trained; ``logprobs`` is null where nothing was sampled or nothing told;
``turns`` is -1 where nothing was sampled; ``advantages`` is null as a whole in rows for imitation."""


def write_rows(rows: RowSet, tasks: Mapping[str, str], out: Path, *, logged: bool) -> None:
    """Write rows into a file that appears whole or not at all. ``tasks`` are the ids of the tasks by those of the
    trajectories; with ``logged``, the sampler told the log-probability of every sampled id.

    Raises:
        DataError: there are no rows.
        PrerequisiteError: DuckDB is not installed.
        UsageError: ``out`` is there already or cannot be there.
        StorageError: the disk is full or not writable.
    """
    need_parquet()
    if not rows.rows:
        raise DataError(
            "There are no rows to write", why=_why(rows), mend="patchgym train RECIPE --dry-run counts them."
        )
    with beside(out) as scratch, disk_errors(out):
        with (scratch / "rows.jsonl").open("w", encoding="utf-8", newline="\n") as lines:
            lines.writelines(f"{json.dumps(row, allow_nan=False)}\n" for row in _lines(rows, tasks, logged))
        write_parquet(scratch / "rows.jsonl", COLUMNS, scratch / out.name)
        (scratch / out.name).rename(out)


def _lines(rows: RowSet, tasks: Mapping[str, str], logged: bool) -> Iterator[dict[str, JsonValue]]:
    for row in rows.rows:
        yield {
            "task_id": tasks[row.trajectory_id],
            "group_id": row.group_id,
            "trajectory_id": row.trajectory_id,
            "ids": [*row.ids],
            "mask": [*row.trainable],
            "logprobs": _logprobs(row) if logged else None,
            "advantages": [*row.advantages] if row.advantages is not None else None,
            "turns": [*row.turns],
            "reward": row.reward,
            "temperature": row.temperature,
            "policy_versions": [version for _, version in row.versions],
        }


def _logprobs(row: TokenRow) -> list[JsonValue]:
    return [told if turn >= 0 else None for told, turn in zip(row.logprobs, row.turns, strict=True)]


def _why(rows: RowSet) -> str:
    left_out = ", ".join(f"{count} {reason}" for reason, count in sorted(rows.left_out.items()))
    return f"Left out: {left_out}." if left_out else "The runs hold no trajectories of these phases."
