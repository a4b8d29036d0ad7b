"""The estimate of difficulty: in bounds, with reasons, and moved the right way by what it rests on."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.content import ObjectStore, diff_trees
from patchgym.tasks.bugs.difficulty import Facts, estimate, facts_of_patch
from tests.workshop import tree_of

PLAIN = Facts(complexity=4, lines=20, subtlety=0.5, depth=2, changed=4, failing=3, traced=True)
counts = st.integers(0, 10_000)
facts = st.builds(
    Facts,
    complexity=counts,
    lines=counts,
    functions=st.integers(1, 50),
    files=st.integers(1, 50),
    subtlety=st.none() | st.floats(0, 1),
    depth=st.none() | counts,
    changed=st.none() | counts,
    failing=st.none() | st.integers(1, 10_000),
    traced=st.none() | st.booleans(),
)


@given(facts)
def test_an_estimate_lies_between_0_and_1_and_gives_its_reasons(given_facts: Facts) -> None:
    found = estimate(given_facts)
    assert 0.0 <= found.score <= 1.0
    assert len(found.why) >= 3
    assert found == estimate(given_facts)


@pytest.mark.parametrize(
    "harder",
    [
        replace(PLAIN, complexity=20),
        replace(PLAIN, lines=200),
        replace(PLAIN, functions=3),
        replace(PLAIN, functions=2, files=2),
        replace(PLAIN, subtlety=0.9),
        replace(PLAIN, depth=6),
        replace(PLAIN, changed=80),
        replace(PLAIN, failing=30),
        replace(PLAIN, traced=False),
    ],
)
def test_each_fact_makes_it_harder(harder: Facts) -> None:
    assert estimate(harder).score > estimate(PLAIN).score


def test_what_is_not_known_is_no_reason() -> None:
    why = " ".join(estimate(Facts(complexity=1, lines=3)).why)
    assert "traceback" not in why
    assert "failing" not in why
    assert "below the tests" not in why


def test_reasons_are_told_in_words() -> None:
    why = " ".join(estimate(Facts(complexity=2, lines=1, failing=3, traced=False)).why)
    for told in ("1 branch in", "1 line of", "1 function in 1 file", "3 failing tests", "does not lead there"):
        assert told in why


def test_a_patch_is_measured_by_the_functions_that_it_touches(objects: ObjectStore) -> None:
    before = {
        "a.py": "def f(x):\n    if x:\n        return 1\n    return 2\n\n\ndef g(x):\n    return x\n",
        "b.py": "A = 1\n",
    }
    after = {
        "a.py": before["a.py"].replace("return 2", "return 3"),
        "b.py": "A = 1\n\n\ndef new(x):\n    return x or 1\n",
    }
    patch = diff_trees(objects, tree_of(objects, before), tree_of(objects, after))
    found = facts_of_patch(patch, before, after)
    assert found == Facts(complexity=2, lines=6, functions=2, files=2, changed=6)
    assert found.subtlety is None


def test_a_patch_of_no_function_has_facts_too(objects: ObjectStore) -> None:
    patch = diff_trees(objects, tree_of(objects, {"a.py": "A = 1\n"}), tree_of(objects, {"a.py": "A = 2\n"}))
    assert facts_of_patch(patch, {"a.py": "A = 1\n"}, {"a.py": "A = 2\n"}).functions == 1
