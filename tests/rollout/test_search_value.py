"""Searches led by a value function of the steps: nothing is run to value a place, and the model is the named one."""

import json
from pathlib import Path

import pytest

from patchgym.errors import DataError, UsageError
from patchgym.records import Limits
from patchgym.reward.value.opened import credit_value, opened_value
from patchgym.rollout.strategies import SearchSettings
from tests.reward.value.made import ran_tests, step
from tests.reward.value.test_model import by_hand
from tests.rollout.test_search import searched


def test_a_search_values_every_place_by_the_model(tmp_path: Path) -> None:
    model = by_hand()
    model.save(tmp_path / "value.json")
    settings = SearchSettings(nodes=12, value=f"model:{tmp_path / 'value.json'}", value_hash=model.hash)
    tree = searched(tmp_path, settings)
    for index, node in enumerate(tree.nodes):
        depth = len(tree.path(tree.leaves[0].model_copy(update={"node": index})))
        expected = None if node.pruned == "duplicate_state" else pytest.approx(0.119 if depth == 1 else 0.881, abs=1e-3)
        assert node.value == expected
    assert tree.search["value_hash"] == model.hash


def test_a_search_with_another_model_than_the_named_one_is_refused(tmp_path: Path) -> None:
    by_hand().save(tmp_path / "value.json")
    settings = SearchSettings(nodes=2, value=f"model:{tmp_path / 'value.json'}", value_hash="0" * 64)
    with pytest.raises(DataError, match="not the value model that was named"):
        searched(tmp_path, settings)


def test_a_search_led_by_credits_values_every_place_by_the_steps_to_it(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=16, value="credit"), policy="noisy:0.3")
    valued = [(index, node.value) for index, node in enumerate(tree.nodes) if node.pruned != "duplicate_state"]
    for index, value in valued:
        steps = tree.path(tree.leaves[0].model_copy(update={"node": index}))
        assert value == pytest.approx(credit_value(steps, Limits()))
    assert len({value for _, value in valued}) > 1


def test_credits_are_a_value_between_0_and_1() -> None:
    fixed = [ran_tests(0, passing=0, failing=1), ran_tests(1, passing=1, failing=0, state="s1")]
    wasted = [step(at, ok=False) for at in range(9)]
    assert 0 < credit_value(wasted, Limits()) < 0.5 < credit_value(fixed, Limits()) < 1
    assert credit_value([step(0)], Limits()) == 0.5


@pytest.mark.parametrize("name", ["model:", "visible", ""])
def test_an_unknown_value_function_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="no value function"):
        opened_value(name)


def test_what_is_searched_by_is_checked_as_it_is_set() -> None:
    with pytest.raises(ValueError, match="value"):
        SearchSettings.model_validate(json.loads('{"value": "visible"}'))
