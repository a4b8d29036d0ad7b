"""The data sets that trainers start from: a row for each task, with what the agent reads first.

A row names its task and holds nothing of it that an agent may not see. Episodes are made of the task itself, so that
the prompt in a row is for the trainer's own counting and for whoever looks at the file.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import JsonValue

from patchgym.agent import tools_named
from patchgym.agent.prompt import opening
from patchgym.content import disk_errors
from patchgym.errors import UsageError
from patchgym.records import Task
from patchgym.rollout import RolloutSettings
from patchgym.store.whole import beside
from patchgym.traces.parquet import need_parquet, write_parquet

AGENT = "patchgym"
"""What the agent loop, or the environment, is called in rows and recipes."""
_MESSAGES = "STRUCT(role VARCHAR, content VARCHAR)[]"
COLUMNS: Mapping[str, Mapping[str, str]] = {
    "trl": {"prompt": "VARCHAR", "task_id": "VARCHAR"},
    "verl": {
        "data_source": "VARCHAR",
        "prompt": _MESSAGES,
        "ability": "VARCHAR",
        "reward_model": "STRUCT(style VARCHAR, ground_truth VARCHAR)",
        "extra_info": "STRUCT(index BIGINT, split VARCHAR)",
        "agent_name": "VARCHAR",
        "task_id": "VARCHAR",
    },
    "skyrl": {"data_source": "VARCHAR", "prompt": _MESSAGES, "env_class": "VARCHAR", "task_id": "VARCHAR"},
}
"""The columns of each trainer's file with their types in DuckDB's words."""


def task_prompts(
    tasks: Sequence[Task], trainer: str, settings: RolloutSettings | None = None
) -> list[dict[str, JsonValue]]:
    """A row for each task, in the columns that ``trainer`` (a key of ``COLUMNS``) asks for. ``settings`` are those that
    the episodes will be made with; a briefing is found out later and stands in no row.

    Raises:
        UsageError: there is no such trainer.
    """
    if trainer not in COLUMNS:
        raise UsageError(f"There are no prompts for {trainer!r}", mend=f"Trainers: {', '.join(COLUMNS)}.")
    return [_row(at, task, trainer, settings or RolloutSettings()) for at, task in enumerate(tasks)]


def write_prompts(rows: Sequence[Mapping[str, JsonValue]], trainer: str, out: Path) -> None:
    """Write rows as a Parquet file, which appears whole or not at all.

    Raises:
        PrerequisiteError: DuckDB is not installed.
        UsageError: ``out`` is there already or cannot be there.
        StorageError: the disk is full or not writable.
    """
    need_parquet()
    with beside(out) as scratch, disk_errors(out):
        lines = scratch / "rows.jsonl"
        lines.write_text("".join(f"{json.dumps(row, ensure_ascii=True)}\n" for row in rows), encoding="utf-8")
        write_parquet(lines, COLUMNS[trainer], scratch / out.name)
        (scratch / out.name).rename(out)


def _row(at: int, task: Task, trainer: str, settings: RolloutSettings) -> dict[str, JsonValue]:
    if trainer == "trl":
        return {"prompt": task.id, "task_id": task.id}
    told = opening(settings.view(task), native=False, tools=tools_named(settings.tools))
    prompt: list[JsonValue] = [{"role": one.role, "content": one.content} for one in told]
    row: dict[str, JsonValue] = {"data_source": AGENT, "prompt": prompt, "task_id": task.id}
    if trainer == "skyrl":
        return {**row, "env_class": AGENT}
    return {
        **row,
        "ability": "code",
        "reward_model": {"style": "rule", "ground_truth": ""},
        "extra_info": {"index": at, "split": task.split},
        "agent_name": AGENT,
    }
