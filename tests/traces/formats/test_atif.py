"""ATIF both ways."""

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from pydantic import JsonValue

from patchgym.content import ObjectStore
from patchgym.records import StepTokens, Trajectory, Verdict
from patchgym.traces.formats import atif as reader
from patchgym.traces.glance import Glance
from patchgym.traces.intake import Intake
from patchgym.traces.writers import Known, Unwritable
from patchgym.traces.writers import atif as writer
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.shared_data import shared_data
from tests.traces.trajectories_for_tests import trajectories

VERSIONS = [f"ATIF-v1.{minor}" for minor in range(9)]


def document(*steps: dict[str, JsonValue], **changes: JsonValue) -> dict[str, JsonValue]:
    """A document as somebody else wrote it."""
    numbered: list[JsonValue] = [{"step_id": number, **step} for number, step in enumerate(steps, start=1)]
    agent: JsonValue = {"name": "terminus-2", "version": "2.0.0", "model_name": "m"}
    return {"schema_version": "ATIF-v1.8", "session_id": "s", "agent": agent, "steps": numbered, **changes}


def asked(*calls: str, **more: JsonValue) -> dict[str, JsonValue]:
    """A step in which the agent calls tools."""
    found: list[JsonValue] = [
        {"tool_call_id": call, "function_name": "bash", "arguments": {"command": call}} for call in calls
    ]
    return {"source": "agent", "message": "I look.", "tool_calls": found, **more}


def told(**results: JsonValue) -> JsonValue:
    """An observation with an outcome for each call."""
    return {"results": [{"source_call_id": call, "content": content} for call, content in results.items()]}


def read(made: dict[str, JsonValue]) -> list[Trajectory]:
    """What a document holds."""
    return list(reader.trajectories_of(made, "name", "f.json", "f.json", Glance()))


def back(trajectory: Trajectory) -> Trajectory:
    """A trajectory written and read again."""
    (row,) = writer.rows(trajectory, Known())
    (found,) = writer.read_back([json.loads(json.dumps(row, allow_nan=False))], Glance())
    return found


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])  # a trajectory has many parts
@given(trajectories())
def test_whatever_a_trajectory_holds_comes_back_the_same(trajectory: Trajectory) -> None:
    assert back(trajectory).to_line() == trajectory.to_line()


def test_states_codes_rewards_sampling_and_tokens_come_back_the_same() -> None:
    tokens = StepTokens(prompt_ids=(1, 2), sampled_ids=(3, 4), logprobs=(-0.5, -0.25), mask=(1, 0))
    steps = [make_step(0, tokens=tokens), make_step(1, readable=False)]
    trajectory = make_trajectory(steps=steps, report=make_report(Verdict.RESOLVED), reward=1.0, patch="diff")
    assert back(trajectory) == trajectory


def test_own_fields_name_only_what_atif_does_not_say() -> None:
    (row,) = writer.rows(make_trajectory(steps=[make_step()], report=make_report(), reward=0.0), Known())
    step = json.loads(json.dumps(row))["steps"][-1]
    assert step["message"] == "tool: list_files"
    assert "content" not in step["extra"]["patchgym"][0].get("message", {})
    assert step["extra"]["patchgym"][0]["state_before"] == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"


def test_prompt_ids_are_whole_for_others_and_new_ones_for_us() -> None:
    first = StepTokens(prompt_ids=(1, 2), sampled_ids=(3,), logprobs=None, mask=(1,))
    second = StepTokens(prompt_ids=(4,), sampled_ids=(5,), logprobs=None, mask=(1,))
    trajectory = make_trajectory(steps=[make_step(0, tokens=first), make_step(1, tokens=second)], report=make_report())
    (row,) = writer.rows(trajectory, Known())
    metrics = [step["metrics"] for step in json.loads(json.dumps(row))["steps"] if step["source"] == "agent"]
    assert [one["prompt_token_ids"] for one in metrics] == [[1, 2], [1, 2, 3, 4]]
    plain = reader.plain_trajectory(json.loads(json.dumps(row)))
    assert [step.tokens and step.tokens.prompt_ids for step in plain.steps] == [(1, 2), (4,)]


def test_ids_that_do_not_continue_are_a_restart() -> None:
    metrics: list[JsonValue] = [
        {"prompt_token_ids": [1], "completion_token_ids": [2]},
        {"prompt_token_ids": [7], "completion_token_ids": [8]},
    ]
    (found,) = read(document(*(asked("a", metrics=one) for one in metrics)))
    assert [step.tokens and (step.tokens.prompt_ids, step.tokens.restart) for step in found.steps] == [
        ((1,), False),
        ((7,), True),
    ]


def test_a_trajectory_without_steps_is_refused() -> None:
    with pytest.raises(Unwritable):
        writer.rows(make_trajectory(), Known())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read(version: str, tmp_path: Path) -> None:
    made = document({"source": "user", "message": "Mend it."}, asked("c1", observation=told(c1="x")))
    (tmp_path / "t.json").write_text(json.dumps({**made, "schema_version": version}))
    head = (tmp_path / "t.json").read_bytes()
    assert reader.recognises(tmp_path / "t.json", head)
    (found,) = reader.read(tmp_path / "t.json", Intake(ObjectStore(tmp_path / "objects")))
    (step,) = found.steps
    assert step.action is not None
    assert step.action.arguments == {"command": "c1"}
    assert step.observation is not None
    assert (step.observation.shown, step.observation.exit_code, step.observation.ok) == ("x", None, None)
    assert (found.reward, found.report, step.sampling, step.state_before) == (None, None, None, None)


def test_parallel_calls_are_steps_of_one_message() -> None:
    (found,) = read(document(asked("a", "b", observation=told(b="of b", a="of a")), asked("c")))
    assert [step.continues for step in found.steps] == [False, True, False]
    assert [step.observation and step.observation.shown for step in found.steps] == ["of a", "of b", None]
    assert [message.tool_call_id for message in found.steps[2].prompt] == ["b", "a"]


def test_an_outcome_without_a_call_id_is_that_of_the_only_call() -> None:
    (found,) = read(document(asked("a", observation={"results": [{"content": "out"}]})))
    assert found.steps[0].observation is not None
    assert found.steps[0].observation.shown == "out"


def test_copied_context_is_no_step() -> None:
    (found,) = read(document(asked("a", is_copied_context=True, observation=told(a="x")), asked("b")))
    (step,) = found.steps
    assert [message.role for message in step.prompt] == ["assistant", "tool"]


def test_sub_agents_that_lie_in_a_document_name_the_step_that_called_them() -> None:
    inner = document(asked("x"), trajectory_id="inner", session_id=None)
    results: JsonValue = {"results": [{"subagent_trajectory_ref": [{"trajectory_id": "inner"}]}]}
    outer = document(asked("a", "b"), asked("c", observation=results), subagent_trajectories=[inner])
    parent, child = read(outer)
    assert child.spawned_by is not None
    assert (child.id, child.spawned_by.trajectory, child.spawned_by.step) == ("inner", parent.id, 2)


def test_images_and_sounds_are_attachments() -> None:
    parts: JsonValue = [
        {"type": "text", "text": "look"},
        {"type": "image", "source": {"media_type": "image/png", "path": "/etc/passwd"}},
        {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav", "duration_sec": 1.5}},
    ]
    (found,) = read(document({"source": "user", "message": parts}, asked("a")))
    (message,) = found.steps[0].prompt
    assert message.content == "look"
    assert [(one.media_type, one.blob) for one in message.attachments] == [("image/png", None), ("audio/wav", None)]


def test_what_a_trajectory_has_no_place_for_is_counted() -> None:
    (found,) = read(document(asked("a", reasoning_effort="high", metrics={"cost_usd": 0.1}), notes="n"))
    assert found.origin is not None
    assert found.origin.left_out == {"step_reasoning_effort": 1, "metrics_cost_usd": 1, "notes": 1}


def test_a_document_that_was_changed_since_is_read_as_anybodys() -> None:
    (row,) = writer.rows(make_trajectory(steps=[make_step()], report=make_report()), Known())
    changed = json.loads(json.dumps(row).replace("tool: list_files", "tool: other"))
    intake = Glance()
    (found,) = reader.trajectories_of(changed, "n", "f", "f", intake)
    assert intake.broken == {"own_fields_do_not_fit": 1}
    assert (found.phase, found.steps[0].message.content) == ("imported", "tool: other")


@pytest.mark.parametrize("own", [{}, {"schema_version": 99}, {"schema_version": 2, "trajectory": 7}, [], 1])
def test_own_fields_of_any_kind_break_nothing(own: JsonValue) -> None:
    (found,) = read(document(asked("a"), extra={"patchgym": own}))
    assert found.phase == "imported"


@pytest.mark.parametrize(
    "step",
    [
        {},
        {"source": "robot"},
        {"source": "agent"},
        {"source": "agent", "message": 7, "tool_calls": [1, {}], "observation": [], "metrics": []},
        {"source": "agent", "message": [None, {"type": "video"}], "observation": {"results": [None, {"content": {}}]}},
        {"source": "agent", "metrics": {"prompt_token_ids": [1.5], "completion_token_ids": "x", "logprobs": {}}},
        {"source": "user", "message": None, "observation": {"results": "x"}, "timestamp": "yesterday"},
    ],
)
def test_odd_steps_break_nothing(step: dict[str, JsonValue]) -> None:
    (found,) = read(document(step, asked("a")))
    assert found.to_line()


def test_a_line_each_is_read_too(tmp_path: Path) -> None:
    lines = [json.dumps(document(asked("a"), session_id=name)) for name in ("one", "two")]
    (tmp_path / "all.jsonl").write_text("\r\n".join([*lines, '{"steps": 1}', "nothing", "{"]))
    intake = Intake(ObjectStore(tmp_path / "objects"))
    assert [found.id for found in reader.read(tmp_path / "all.jsonl", intake)] == ["one", "two"]
    assert intake.broken == {"no_steps": 1, "no_json": 2}


def test_real_documents_are_read(tmp_path: Path) -> None:
    intake = Intake(ObjectStore(tmp_path / "objects"))
    files = sorted(shared_data("agent-logs/atif").glob("*.json"))
    found = [one for file in files for one in reader.read(file, intake)]
    assert (len(found), sum(len(one.steps) for one in found), dict(intake.broken)) == (6, 17, {})
    assert sum(one.spawned_by is not None for one in found) == 3
