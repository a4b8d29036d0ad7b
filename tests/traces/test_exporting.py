"""A run goes out whole or not at all, and what was dropped is named."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from patchgym.errors import UsageError
from patchgym.records import (
    Action,
    Message,
    Observation,
    Step,
    StepTokens,
    StopReason,
    ToolCall,
    ToolSpec,
    Trajectory,
    Verdict,
)
from patchgym.store import RunDirectory
from patchgym.traces.exporting import ONLY, chosen, export_run
from patchgym.traces.importing import import_logs
from patchgym.traces.loss import is_held, lost_parts, told_parts
from patchgym.traces.writers import WRITERS, Reason
from tests.records_for_tests import make_manifest, make_report, make_reward, make_step, make_task, make_trajectory

TOKENS = StepTokens(prompt_ids=(1, 2), sampled_ids=(3,), logprobs=(-0.5,), mask=(1,))


def solved(sample: int = 0, **changes: Any) -> Trajectory:
    """A trajectory with tokens, a native call, tools and a reward."""
    call = ToolCall(id="c1", name="bash", arguments='{"command": "ls"}')
    first = Step(
        index=0,
        parent=None,
        prompt=(Message(role="system", content="You mend."), Message(role="user", content="It fails.")),
        message=Message(role="assistant", content="I look.", tool_calls=(call,)),
        action=Action(tool="bash", arguments={"command": "ls"}, call_id="c1"),
        observation=Observation(shown="a.py", exit_code=0, ok=True),
        tokens=TOKENS,
    )
    told = Message(role="tool", content="a.py", tool_call_id="c1")
    last = make_step(1, tokens=TOKENS).model_copy(update={"prompt": (told, Message(role="user", content="Go on."))})
    made = make_trajectory(
        sample, steps=[first, last], report=make_report(Verdict.RESOLVED), reward=1.0, patch="diff --git a/a b/a\n"
    )
    tool = ToolSpec(name="bash", description="Runs.", parameters={"type": "object"})
    return made.model_copy(update={"tools": (tool,), **changes})


def run_of(tmp_path: Path, *found: Trajectory) -> RunDirectory:
    """A finished run."""
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    run.keep_tasks([make_task()])
    for trajectory in found:
        run.append(trajectory)
    run.close()
    return RunDirectory.read(tmp_path / "run")


def lines(path: Path) -> list[dict[str, Any]]:
    """Rows of a file."""
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]


@pytest.mark.parametrize("format_name", [*WRITERS])
def test_every_format_is_written(tmp_path: Path, format_name: str) -> None:
    run = run_of(tmp_path, solved(0), solved(1))
    done = export_run(run, run.ids, format_name, tmp_path / "out.jsonl")
    assert (done.trajectories, done.rows, done.refused) == (2, 2, {})
    assert len(lines(tmp_path / "out.jsonl")) == 2


def test_an_imported_atif_export_is_the_run_again(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved(0), solved(1, stop=StopReason.TIME_LIMIT), solved(2, redacted={"email": 2}))
    done = export_run(run, run.ids, "atif", tmp_path / "out")
    assert done.dropped == {}
    again = RunDirectory.open_for_writing(tmp_path / "again", make_manifest())
    import_logs([tmp_path / "out"], "auto", again)
    again.close()
    whole = [(tmp_path / name / "trajectories.jsonl").read_bytes() for name in ("run", "again")]
    assert whole[0] == whole[1]


def test_chat_names_what_it_drops(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved())
    done = export_run(run, run.ids, "chat", tmp_path / "out.jsonl")
    assert {"steps.tokens", "steps.state_before", "steps.observation.exit_code"} <= done.dropped.keys()
    kept = {"steps.message.content", "steps.prompt", "final_patch", "tools", "id", "stop"}
    assert not kept & done.dropped.keys()


def test_trainers_name_what_they_drop(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved())
    done = export_run(run, run.ids, "trl", tmp_path / "out.jsonl")
    assert {"steps.message.content", "final_patch", "report.verdict"} <= done.dropped.keys()
    assert not {"steps.tokens.sampled_ids", "reward.value", "group_id"} & done.dropped.keys()


def test_what_cannot_be_written_is_counted_by_its_reason(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved(0), make_trajectory(1), solved(2, reward=None))
    done = export_run(run, run.ids, "verl", tmp_path / "out.jsonl")
    assert done.trajectories == 1
    assert done.refused == {Reason.INFRASTRUCTURE: 1, Reason.NOT_SCORED: 1}
    assert done.examples[Reason.NOT_SCORED] == [run.ids[2]]


def test_where_nothing_can_be_written_nothing_is(tmp_path: Path) -> None:
    run = run_of(tmp_path, make_trajectory())
    assert export_run(run, run.ids, "chat", tmp_path / "out.jsonl").rows == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize(
    ("format_name", "name"), [("chat", "o.csv"), ("chat", "o"), ("atif", "o.parquet"), ("trl", "o.json")]
)
def test_an_ending_that_says_nothing_is_refused(tmp_path: Path, format_name: str, name: str) -> None:
    run = run_of(tmp_path, solved())
    with pytest.raises(UsageError) as error:
        export_run(run, run.ids, format_name, tmp_path / name)
    assert ".jsonl" in error.value.mend


def test_a_trainer_is_given_the_rewards_that_attempts_have_in_their_group(tmp_path: Path) -> None:
    rewards = [
        make_reward(1.0, gate="solved", steps=-0.02),
        make_reward(0.0, gate="failed", steps=0.0),
    ]
    group = [solved(place, reward=reward) for place, reward in enumerate(rewards)]
    run = run_of(tmp_path, *group)
    export_run(run, run.ids, "trl", tmp_path / "trl.jsonl")
    assert [row["reward"] for row in lines(tmp_path / "trl.jsonl")] == [0.98, 0.0]
    export_run(run, run.ids, "article", tmp_path / "article.jsonl")
    assert [row["reward"] for row in lines(tmp_path / "article.jsonl")] == [1.0, 0.0]


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved())
    (tmp_path / "out.jsonl").write_text("mine")
    with pytest.raises(UsageError):
        export_run(run, run.ids, "chat", tmp_path / "out.jsonl")
    assert (tmp_path / "out.jsonl").read_text() == "mine"


def test_trajectories_are_chosen_by_what_is_true_of_them(tmp_path: Path) -> None:
    unsolved = solved(1, report=make_report(), reward_trusted=False)
    run = run_of(tmp_path, solved(0), unsolved, make_trajectory(2, phase="other"))
    assert list(chosen(run, ["resolved"], [], [])) == run.ids[:1]
    assert list(chosen(run, ["scored", "unresolved"], [], [])) == run.ids[1:2]
    assert list(chosen(run, [], [], ["other"])) == run.ids[2:]
    assert list(chosen(run, [], [run.ids[1]], [])) == run.ids[1:2]
    assert [name for name, holds in ONLY.items() if holds(unsolved)] == ["unresolved", "scored", "completed"]
    with pytest.raises(UsageError):
        list(chosen(run, [], ["nobody"], []))


def test_a_compacted_conversation_is_a_row_for_each_part(tmp_path: Path) -> None:
    made = solved()
    last = made.steps[1].model_copy(update={"compacted": True})
    run = run_of(tmp_path, made.model_copy(update={"steps": (made.steps[0], last)}))
    done = export_run(run, run.ids, "chat", tmp_path / "out.jsonl")
    assert [[message["role"] for message in row["messages"]] for row in lines(tmp_path / "out.jsonl")] == [
        ["system", "user", "assistant", "tool"],
        ["tool", "user", "assistant", "user"],
    ]
    assert done.dropped["steps"] == 1


def test_a_tree_is_a_row_for_each_path(tmp_path: Path) -> None:
    made = solved()
    other = made.steps[1].model_copy(update={"index": 2, "message": Message(role="assistant", content="other")})
    run = run_of(tmp_path, made.model_copy(update={"steps": (*made.steps, other.model_copy(update={"parent": 0}))}))
    export_run(run, run.ids, "chat", tmp_path / "out.jsonl")
    rows = lines(tmp_path / "out.jsonl")
    assert [row["path"] for row in rows] == [0, 1]
    assert [row["messages"][5]["content"] for row in rows] == ["tool: list_files", "other"]


@pytest.mark.parametrize("format_name", [name for name, writer in WRITERS.items() if writer.COLUMNS])
def test_parquet_holds_the_same_rows(tmp_path: Path, format_name: str) -> None:
    duckdb = pytest.importorskip("duckdb", reason="SKIPPED LOUDLY: DuckDB is not installed, so no Parquet is written")
    run = run_of(tmp_path, solved(0, final_patch="é\x00\u2028"), solved(1))
    for name in ("out.jsonl", "out.parquet"):
        export_run(run, run.ids, format_name, tmp_path / name)
    table = duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/out.parquet')")
    columns = table.columns
    assert columns == list(WRITERS[format_name].COLUMNS)
    for row, values in zip(lines(tmp_path / "out.jsonl"), table.fetchall(), strict=True):
        assert [_plain(value) for value in values] == [_without_objects(row[name]) for name in columns]


def _plain(value: Any) -> Any:
    """A value of Parquet; a struct's missing parts left out, JSON text read."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def _without_objects(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_objects(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_without_objects(item) for item in value]
    return json.loads(value) if isinstance(value, str) and value[:1] in ("{", "[") else value


def test_an_exported_parquet_file_is_imported(tmp_path: Path) -> None:
    pytest.importorskip("duckdb", reason="SKIPPED LOUDLY: DuckDB is not installed, so no Parquet is read")
    run = run_of(tmp_path, solved())
    export_run(run, run.ids, "chat", tmp_path / "out.parquet")
    again = RunDirectory.open_for_writing(tmp_path / "again", make_manifest())
    import_logs([tmp_path / "out.parquet"], "auto", again)
    again.close()
    (found,) = RunDirectory.read(tmp_path / "again").trajectories
    assert found.steps[0].action == solved().steps[0].action
    assert (found.tools, found.final_patch) == (solved().tools, solved().final_patch)


def test_datasets_reads_the_parquet_file(tmp_path: Path) -> None:
    if find_spec("datasets") is None:
        pytest.skip("SKIPPED LOUDLY: datasets is not installed here, so it did not read the Parquet file")
    datasets = pytest.importorskip("datasets")
    run = run_of(tmp_path, solved())
    export_run(run, run.ids, "chat", tmp_path / "out.parquet")
    found = datasets.Dataset.from_parquet(str(tmp_path / "out.parquet"), cache_dir=str(tmp_path / "cache"))
    assert found[0]["messages"][2]["tool_calls"][0]["function"]["name"] == "bash"


def test_harbors_own_model_takes_the_document(tmp_path: Path) -> None:
    if find_spec("harbor") is None:
        pytest.skip("SKIPPED LOUDLY: harbor (Python 3.12 or later) is not installed here, so its model was not asked")
    harbor = pytest.importorskip("harbor.models.trajectories")
    run = run_of(tmp_path, solved())
    export_run(run, run.ids, "atif", tmp_path / "out.jsonl")
    for row in lines(tmp_path / "out.jsonl"):
        assert harbor.Trajectory.model_validate(row).schema_version == "ATIF-v1.8"


def test_a_part_that_says_nothing_is_not_lost() -> None:
    old = make_trajectory(steps=[make_step()], report=make_report())
    assert lost_parts(old, [old]) == set()
    blank = old.model_copy(update={"stop": None, "timing": old.timing.model_copy(update={"total_seconds": None})})
    assert lost_parts(old, [blank]) == {"stop", "timing.total_seconds"}
    assert lost_parts(blank, [old]) == set()


def test_of_what_does_not_come_back_at_all_every_part_is_lost() -> None:
    old = make_trajectory(steps=[make_step()], report=make_report())
    assert lost_parts(old, []) == {"steps"} | told_parts(old)


def test_a_part_of_what_is_held_is_held() -> None:
    assert is_held("steps.tokens.mask", frozenset({"steps.tokens"}))
    assert not is_held("steps.tokens", frozenset({"steps.tokens.mask"}))


def test_an_id_is_a_name_and_never_a_path(tmp_path: Path) -> None:
    run = run_of(tmp_path, solved(0, id="../../x"), solved(1, id=".._.._x"))
    export_run(run, run.ids, "atif", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["..%2F..%2Fx.json", ".._.._x.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "run"]
