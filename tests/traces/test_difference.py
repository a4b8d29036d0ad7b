"""Differences between JSON values."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from patchgym.traces.difference import difference, same, with_difference
from tests.traces.trajectories_for_tests import JSON

NESTED = st.dictionaries(st.sampled_from(["a", "b", "$is", "0"]), JSON, max_size=3)


@given(NESTED | JSON, NESTED | JSON)
def test_a_value_and_its_difference_make_the_other(have: JsonValue, want: JsonValue) -> None:
    change = json.loads(json.dumps(difference(have, want)))
    assert same(with_difference(have, change), want)


@given(NESTED)
def test_equal_objects_differ_in_nothing(value: dict[str, JsonValue]) -> None:
    assert difference(value, value) == ({"$is": value} if "$is" in value else {})


def test_only_what_differs_is_said() -> None:
    have: JsonValue = {"a": 1, "b": {"c": [1, {"d": 2}], "e": "long text"}}
    want: JsonValue = {"a": 1, "b": {"c": [1, {"d": 3}], "e": "long text"}}
    assert difference(have, want) == {"b": {"c": {"1": {"d": 3}}}}


def test_a_number_is_no_flag() -> None:
    assert difference({"a": 1}, {"a": True}) == {"a": True}


@pytest.mark.parametrize(("have", "change"), [(1, {"a": 1}), ([1], {"1": 2}), ([1], {"²": 2}), ([1], {"-1": 2})])
def test_a_difference_of_something_else_is_refused(have: JsonValue, change: JsonValue) -> None:
    with pytest.raises(ValueError, match=r"index|object"):
        with_difference(have, change)
