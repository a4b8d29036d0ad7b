"""Answers and errors as bytes: what goes in comes out, and anything else is an error of ours."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.errors import (
    BuildFailure,
    DataError,
    EndpointError,
    EndpointRetryable,
    EnvironmentBuildError,
    PatchgymError,
    PrerequisiteError,
    SandboxError,
    StorageError,
    WorkLostError,
)
from patchgym.executors.wire import (
    answer,
    answer_of_error,
    check_size,
    decode_spec,
    encode_record,
    encode_spec,
    read_answer,
)
from patchgym.policy.endpoint import EndpointRefusal
from tests.executors.toys import Ask, ToySpec

ERRORS = (SandboxError, PrerequisiteError, StorageError, DataError, EndpointRetryable)


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_an_answer_comes_apart_as_it_was_put_together(body: bytes, objects: bytes) -> None:
    assert read_answer(answer(body, objects), "a")[1:] == (body, objects)


@given(st.sampled_from(ERRORS), st.text(max_size=20), st.text(min_size=1, max_size=20))
def test_an_error_keeps_its_class_and_what_it_says(kind: type[PatchgymError], what: str, why: str) -> None:
    with pytest.raises(kind) as raised:
        read_answer(answer_of_error(kind(what, why=why, mend="Do it.")), "node-1")
    assert (type(raised.value), raised.value.what, raised.value.mend) == (kind, what, "Do it.")
    assert raised.value.why == f"{why} (node-1)"


def test_the_kind_of_a_failed_build_survives() -> None:
    error = EnvironmentBuildError("x", kind=BuildFailure.RESOLVER)
    with pytest.raises(EnvironmentBuildError) as raised:
        read_answer(answer_of_error(error), "a")
    assert raised.value.kind is BuildFailure.RESOLVER


@given(st.binary(max_size=60))
def test_any_other_bytes_are_no_answer(data: bytes) -> None:
    with pytest.raises(DataError):
        read_answer(data, "a")


def test_an_error_of_a_module_s_own_class_is_told_as_the_nearest_of_the_tree() -> None:
    with pytest.raises(EndpointError) as raised:
        read_answer(answer_of_error(EndpointRefusal("It refuses", why="HTTP 401", status=401)), "a")
    assert type(raised.value) is EndpointError


def test_an_unknown_class_of_error_is_infrastructure() -> None:
    data = answer(b"", b"", error={"class": "SystemExit", "what": "x"})
    with pytest.raises(PatchgymError) as raised:
        read_answer(data, "a")
    assert type(raised.value).__name__ == "InfrastructureError"


def test_a_spec_is_opened_again_as_it_was() -> None:
    spec = ToySpec(slots=3)
    assert decode_spec(encode_spec(spec)) == spec


@pytest.mark.parametrize(
    "data", [b"patchgym.absent:X\n{}", b"patchgym.errors:Nothing\n{}", b"tests.executors.toys:ToySpec\n{"]
)
def test_work_that_is_not_known_is_told(data: bytes) -> None:
    with pytest.raises(DataError, match="does not know the work"):
        decode_spec(data)


def test_what_is_too_large_is_refused_with_its_size() -> None:
    with pytest.raises(WorkLostError, match="too large") as raised:
        check_size(600 * 1024**2, "The result of x")
    assert "600 MB" in raised.value.why


def test_a_record_is_its_json() -> None:
    assert json.loads(encode_record(Ask(name="a"), "a"))["name"] == "a"
