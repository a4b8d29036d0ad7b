"""Data sets for trainers: a row for each task, and nothing of it that an agent may not see."""

import json
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner

from patchgym.cli.tasks.prompts import command
from patchgym.content import ObjectStore
from patchgym.errors import UsageError
from patchgym.tasks import TaskSet
from patchgym.trainers.prompts import COLUMNS, task_prompts, write_prompts
from tests.records_for_tests import make_task
from tests.trainers.gyms import task_set
from tests.workshop import calc_task


@pytest.mark.parametrize("trainer", list(COLUMNS))
def test_a_row_has_its_trainer_s_columns_and_names_its_task(trainer: str) -> None:
    (row,) = task_prompts([make_task()], trainer)
    assert set(row) == set(COLUMNS[trainer])
    assert row["task_id"] == "demo-1"


@pytest.mark.parametrize("trainer", ["verl", "skyrl"])
def test_a_prompt_is_what_the_agent_reads_first(trainer: str, tmp_path: Path) -> None:
    task = calc_task(ObjectStore(tmp_path / "objects"))
    told = json.dumps(task_prompts([task], trainer))
    assert "clamp(10, 0, 9) should be 9" in told
    assert "tool: edit_file" in told


@pytest.mark.parametrize("trainer", list(COLUMNS))
def test_rows_hold_neither_the_fix_nor_hidden_tests(trainer: str, tmp_path: Path) -> None:
    told = json.dumps(task_prompts([calc_task(ObjectStore(tmp_path / "objects"))], trainer))
    assert "far_above" not in told
    assert "return high" not in told


def test_a_trainer_that_is_not_known_is_refused() -> None:
    with pytest.raises(UsageError, match="'slime'"):
        task_prompts([make_task()], "slime")


@pytest.mark.parametrize("trainer", list(COLUMNS))
def test_files_give_the_rows_back(trainer: str, tmp_path: Path) -> None:
    rows = task_prompts([make_task(), make_task("demo-2")], trainer)
    out = tmp_path / "prompts.parquet"
    write_prompts(rows, trainer, out)
    found = duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(out)])
    names = [column[0] for column in found.description]
    assert [dict(zip(names, values, strict=True)) for values in found.fetchall()] == rows


def test_the_command_leaves_held_out_tasks_out(tmp_path: Path) -> None:
    path = task_set(tmp_path)
    for split, wanted in (("train", ["calc-1"]), ("heldout", ["calc-2"])):
        arguments = [str(path), "--for", "verl", "--out", str(tmp_path / f"{split}.parquet"), "--json"]
        done = CliRunner().invoke(command, [*arguments, *(["--split", split] if split != "train" else [])])
        assert json.loads(done.stdout)["tasks"] == wanted


def test_what_trl_is_given_names_tasks_of_the_set(tmp_path: Path) -> None:
    tasks = TaskSet.load(task_set(tmp_path))
    assert [row["prompt"] for row in task_prompts(tasks.split("train"), "trl")] == ["calc-1"]
