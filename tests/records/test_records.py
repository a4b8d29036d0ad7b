"""Records: frozen, strict, versioned; and a view that has no field for what an agent may not know."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from patchgym.errors import DataError
from patchgym.records import Step, StepTokens, Task, TaskView, Trajectory, Validation
from tests.records_for_tests import THEN, make_report, make_step, make_task, make_trajectory


def test_a_view_says_nothing_of_the_solution_or_the_hidden_tests() -> None:
    task = make_task().model_copy(update={"gold_patch": "+the answer", "key_files": ("secret.py",)})
    shown = task.view().model_dump_json()
    for secret in ("the answer", "secret.py", "t.py::b", "swap < and <="):
        assert secret in task.to_line()
        assert secret not in shown
    assert not {"gold_patch", "key_files", "validation", "source", "tests"} & TaskView.model_fields.keys()


def test_a_record_cannot_be_changed() -> None:
    for name, value in make_task():
        with pytest.raises(ValidationError):
            setattr(make_task(), name, value)


def test_an_unknown_key_is_refused() -> None:
    data = {**json.loads(make_task().to_line()), "answer": 42}
    with pytest.raises(DataError, match="answer"):
        Task.from_line(json.dumps(data))


@pytest.mark.parametrize("version", [0, 1, 3, "2", None])
def test_another_schema_version_is_refused(version: object) -> None:
    data = {**json.loads(make_task().to_line()), "schema_version": version}
    with pytest.raises(DataError, match="schema version"):
        Task.from_line(json.dumps(data))


@pytest.mark.parametrize("line", ["", "null", "[]", "{", '"text"', "\x00", '{"schema_version": 1}'])
def test_what_is_no_record_is_a_data_error_that_names_its_place(line: str) -> None:
    with pytest.raises(DataError, match=r"here\.jsonl, line 3"):
        Task.from_line(line, where="here.jsonl, line 3")


@given(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.lists(st.tuples(st.integers(0, 50_000), st.floats(-60, 0)), max_size=6),
)
def test_a_trajectory_reads_back_as_it_was_written(text: str, sampled: list[tuple[int, float]]) -> None:
    tokens = StepTokens(
        prompt_ids=(1, 2),
        sampled_ids=tuple(token for token, _ in sampled),
        logprobs=tuple(logprob for _, logprob in sampled),
        mask=(1,) * len(sampled),
    )
    message = make_step().message.model_copy(update={"content": text})
    step = make_step(tokens=tokens).model_copy(update={"message": message})
    trajectory = make_trajectory(report=make_report(), reward=0.1, steps=[step])
    line = trajectory.to_line()
    assert "\n" not in line
    assert Trajectory.from_line(line) == trajectory


def test_the_content_hash_depends_on_what_the_task_is_and_not_on_its_proof() -> None:
    task = make_task()
    proof = Validation(
        runs=1, base_failed=1, noop_failed=1, gold_passed=1, test_seconds=0.1, grader_version="test", validated_at=THEN
    )
    assert task.model_copy(update={"validation": proof}).content_hash() == task.content_hash()
    assert task.content_hash() == Task.from_line(task.to_line()).content_hash()
    for field, value in (("instruction", "other"), ("split", "heldout"), ("gold_patch", "x")):
        assert task.model_copy(update={field: value}).content_hash() != task.content_hash()


def test_a_step_names_its_parent() -> None:
    assert [Step.model_validate(make_step(index).model_dump()).parent for index in range(3)] == [None, 0, 1]
