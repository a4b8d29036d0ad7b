"""The grader's own tests: drawn anew, of every kind, and true."""

import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.grading.canaries import draw_canaries
from patchgym.records import Outcome

IDS = ["tests/test_calc.py::test_far_above", "tests/test_calc.py::TestX::test_y[1]", "tests/other_test.py::test_z"]


@settings(deadline=None)
@given(st.integers(0, 2**32))
def test_each_draw_has_every_kind_and_nothing_that_can_be_told_by_name(seed: int) -> None:
    found = draw_canaries(IDS, random.Random(seed))
    assert sum(one.outcome is Outcome.FAILED for one in found) >= 4
    assert sum(one.outcome is Outcome.PASSED for one in found) >= 2
    assert sum("raise " in one.source for one in found) >= 1
    failing = sorted(one.at for one in found if one.outcome is Outcome.FAILED)
    assert (failing[0], failing[-1]) == (0.0, 1.0)
    assert any(0.3 <= at <= 0.7 for at in failing)
    assert len({one.name for one in found}) == len(found)
    assert {one.name.startswith("test_") for one in found} == {True}
    assert any(one.own for one in found)
    assert any(not one.own for one in found)
    for one in found:
        compile(one.source, "x", "exec")


def test_two_draws_have_nothing_in_common() -> None:
    first, second = draw_canaries(IDS), draw_canaries(IDS)
    assert not {one.path for one in first} & {one.path for one in second}
    bodies = [{one.source.split("\n", 1)[1] for one in found} for found in (first, second)]
    assert not bodies[0] & bodies[1]


def test_without_a_python_test_file_there_are_none() -> None:
    assert draw_canaries(["README.rst::README.rst"]) == ()


@pytest.mark.parametrize("seed", range(3))
def test_each_comes_out_as_it_must(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    found = {one.name: one for _ in range(12) for one in draw_canaries(IDS, draw)}
    (tmp_path / "test_all.py").write_text("\n\n".join(one.source for one in found.values()))
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "-p", "no:cacheprovider", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    for name, one in found.items():
        word = "PASSED" if one.outcome is Outcome.PASSED else "FAILED"
        assert f"{word} test_all.py::{name}" in said.replace(" - ", "\n"), one.source
