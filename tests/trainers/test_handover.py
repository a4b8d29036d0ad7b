"""Rows of an update as a file: what the update would train on, number for number, and the docs' loader reads it."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import duckdb
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from patchgym.cli.train import command
from patchgym.errors import DataError, UsageError
from patchgym.records import Message
from patchgym.store import RunDirectory
from patchgym.train import Reason, RowSet, TokenRow
from patchgym.trainers.handover import COLUMNS, write_rows
from tests.records_for_tests import make_manifest
from tests.train.tiny import graded, save_tiny_model
from tests.workshop import calc_task

pytestmark = pytest.mark.train
PAGE = Path(__file__).parents[2] / "docs" / "trainers.md"


def read(path: Path) -> list[dict[str, object]]:
    """The rows of a file."""
    found = duckdb.connect().execute("SELECT * FROM read_parquet(?)", [str(path)])
    names = [column[0] for column in found.description]
    return [dict(zip(names, values, strict=True)) for values in found.fetchall()]


places = st.tuples(
    st.integers(0, 2**31 - 1),
    st.sampled_from([-1, 0, 1]),
    st.floats(-50, 0, allow_nan=False),
    st.floats(-5, 5, allow_nan=False),
)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.lists(places, min_size=1, max_size=6), min_size=1, max_size=3))
def test_a_file_holds_the_rows_number_for_number(
    tmp_path: Path, told: list[list[tuple[int, int, float, float]]]
) -> None:
    rows = tuple(
        TokenRow(
            ids=tuple(token for token, _, _, _ in one),
            trainable=tuple(int(turn >= 0) for _, turn, _, _ in one),
            logprobs=tuple(value if turn >= 0 else 0.0 for _, turn, value, _ in one),
            turns=tuple(turn for _, turn, _, _ in one),
            trajectory_id=f"t{at}",
            group_id="g",
            advantages=tuple(advantage if turn >= 0 else 0.0 for _, turn, _, advantage in one),
            reward=0.25,
            versions=((0, "v1"), (1, None)),
        )
        for at, one in enumerate(told)
    )
    out = tmp_path / f"{len(list(tmp_path.iterdir()))}.parquet"
    write_rows(RowSet(rows=rows), {row.trajectory_id: "task" for row in rows}, out, logged=True)
    found = read(out)
    assert set(found[0]) == set(COLUMNS)
    for row, back in zip(rows, found, strict=True):
        assert back["ids"] == [*row.ids]
        assert back["mask"] == [*row.trainable]
        assert back["advantages"] == [*(row.advantages or ())]
        assert back["policy_versions"] == ["v1", None]
        wanted = [value if turn >= 0 else None for value, turn in zip(row.logprobs, row.turns, strict=True)]
        assert back["logprobs"] == wanted


def row() -> TokenRow:
    advantages = (0.0, 0.5, 0.5)
    return TokenRow((1, 2, 3), (0, 1, 1), (0.0, -1.0, -2.0), (-1, 0, 0), "t", "g", advantages=advantages, reward=1.0)


def test_rows_for_imitation_say_nothing_that_was_not_measured(tmp_path: Path) -> None:
    one = TokenRow((1, 2), (0, 1), (0.0, 0.0), (-1, 0), "t", "g")
    write_rows(RowSet(rows=(one,)), {"t": "task"}, tmp_path / "rows.parquet", logged=False)
    (found,) = read(tmp_path / "rows.parquet")
    assert (found["logprobs"], found["advantages"], found["reward"]) == (None, None, None)


def test_nothing_to_write_is_said_with_the_reasons(tmp_path: Path) -> None:
    empty = RowSet(left_out=Counter({Reason.ZERO_VARIANCE: 4}))
    with pytest.raises(DataError, match="4 zero_variance"):
        write_rows(empty, {}, tmp_path / "rows.parquet", logged=True)
    assert not (tmp_path / "rows.parquet").exists()


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    out = tmp_path / "rows.parquet"
    out.write_text("mine")
    with pytest.raises(UsageError, match="already"):
        write_rows(RowSet(rows=(row(),)), {"t": "task"}, out, logged=True)
    assert out.read_text() == "mine"


def test_the_loader_of_the_docs_reads_it(tmp_path: Path) -> None:
    (loader,) = re.findall(r"<<'LOADER'\n(.*?)^LOADER$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(loader.splitlines()) <= 30
    assert "patchgym" not in loader
    write_rows(RowSet(rows=(row(),)), {"t": "task"}, tmp_path / "rows.parquet", logged=True)
    (tmp_path / "load.py").write_text(loader)
    command_line = [sys.executable, "load.py", "rows.parquet"]
    done = subprocess.run(command_line, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout.splitlines()[0]) == {
        "task": "task",
        "group": "g",
        "ids": [1, 2, 3],
        "mask": [0, 1, 1],
        "logprobs": [0.0, -1.0, -2.0],
        "advantages": [0.0, 0.5, 0.5],
    }


def recorded_run(folder: Path, model: Path) -> Path:
    """A run with two samples of one task, whose ids are those that its messages have."""
    import torch

    from patchgym.policy.models import load_model
    from patchgym.policy.tokens import load_tokens
    from tests.train.tiny import sampled_steps

    network, encoder = load_model(str(model), cache=folder / "cache").model, load_tokens(str(model)).encoder
    prompt = (Message(role="user", content="fix"),)
    opening = encoder.encode(prompt)
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    run.keep_tasks([calc_task(run.objects)])
    with torch.no_grad():
        for sample, reward in enumerate((1.0, 0.0)):
            answer = [20 + sample, 21, encoder.end_of_turn]
            (step,) = sampled_steps(network, [(opening, answer)])
            one = graded([step.model_copy(update={"prompt": prompt})], reward, sample)
            run.append(one.model_copy(update={"task_id": "calc-1"}))
    run.close()
    return folder / "run"


def test_the_command_writes_what_the_update_would_train_on(tmp_path: Path) -> None:
    model = save_tiny_model(tmp_path / "tiny")
    recipe = tmp_path / "mine.toml"
    recipe.write_text(f'algorithm = "dr_grpo"\nruns = ["{recorded_run(tmp_path, model)}"]\nstart = "{model}"\n')
    out = tmp_path / "rows.parquet"
    done = CliRunner().invoke(command, [str(recipe), "--rows", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 2
    good, bad = sorted(read(out), key=lambda found: -float(str(found["reward"])))
    assert [value for value in good["advantages"] if value] == [0.5] * 3  # type: ignore[attr-defined]
    assert [value for value in bad["advantages"] if value] == [-0.5] * 3  # type: ignore[attr-defined]
    assert (good["task_id"], good["group_id"]) == ("calc-1", "g")
    assert sum(told is not None for told in good["logprobs"]) == 3  # type: ignore[attr-defined]


def test_advantages_that_a_value_head_would_give_are_refused(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('algorithm = "ppo"\nruns = ["none"]\nstart = "smollm2"\n')
    done = CliRunner().invoke(command, [str(recipe), "--rows", str(tmp_path / "rows.parquet")])
    assert isinstance(done.exception, UsageError)
    assert "value head" in str(done.exception)
