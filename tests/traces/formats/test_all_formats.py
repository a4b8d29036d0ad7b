"""What holds for every format that is read."""

import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.traces.formats import READERS
from tests.traces.formats.logs_for_tests import KINDS, Kind
from tests.traces.imports_for_tests import (
    Call,
    Turn,
    conversations,
    flat,
    imported,
    one_of,
    read_only,
    recognised,
    told,
)

each = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
TURNS = [
    Turn("It fails.", "I look.", "Where?", (Call("bash", {"command": "ls"}, "a.py"), Call("bash", {}, "b"))),
    Turn("Go on.", "Done.", "So.", ()),
]


@each
@given(turns=conversations())
@settings(max_examples=25, deadline=None)
def test_everything_that_a_log_tells_comes_back(kind: Kind, turns: list[Turn]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{kind.ending}"
        path.write_bytes(kind.write(turns))
        (trajectory,), broken = read_only(path, kind.format)
        assert broken == {}
        assert told(trajectory) == flat(turns, thoughts=kind.thoughts)


@each
def test_a_format_is_told_by_what_a_file_holds_whatever_its_ending_says(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(kind.write(TURNS))
    (trajectory,), (done,) = imported(path)
    assert (done.format, done.broken) == (kind.format, {})
    assert len(trajectory.steps) == 3


@each
def test_token_counts_are_those_of_the_answer_and_count_once(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"log{kind.ending}"
    path.write_bytes(kind.write(TURNS))
    steps = one_of(path).steps
    assert [step.usage.sampled_tokens if step.usage else None for step in steps] == (
        [7, None, 7] if kind.counts else [7 if kind is KINDS["openhands_v0"] else None, None, None]
    )


@each
def test_the_model_of_each_answer_is_kept(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"log{kind.ending}"
    path.write_bytes(kind.write(TURNS))
    assert one_of(path).steps[0].policy_version == (None if kind is KINDS["openhands_v1"] else "m")


@each
def test_what_no_log_says_stays_none(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"log{kind.ending}"
    path.write_bytes(kind.write(TURNS))
    trajectory = one_of(path)
    assert (trajectory.final_state, trajectory.report, trajectory.reward, trajectory.redacted) == (None,) * 4
    assert all(step.state_before is None and step.sampling is None and step.tokens is None for step in trajectory.steps)
    assert trajectory.reward_trusted is trajectory.in_baseline is False


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a JSON value that can be changed."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield value, key
        yield from _places(inner)


def _other(chance: random.Random) -> Any:
    return chance.choice([None, True, -1, 1e308, "", "x", [], {}, [None], {"a": []}, [[[]]], "\ud800", "9" * 50])


def _damaged(data: bytes, chance: random.Random) -> bytes:
    """A log with keys dropped, types swapped, bytes flipped, or an end cut off."""
    if data.startswith(b"PK") or chance.random() < 0.3:
        raw = bytearray(data)
        for _ in range(chance.randint(1, 8)):
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        return bytes(raw[: chance.randint(0, len(raw))] if chance.random() < 0.5 else raw)
    whole = data.startswith(b"[") or b"\n{" not in data
    values = [json.loads(data)] if whole else [json.loads(line) for line in data.splitlines()]
    for _ in range(chance.randint(1, 6)):
        places = list(_places(values))
        if places:
            holder, key = chance.choice(places)
            if chance.random() < 0.4:
                del holder[key]
            else:
                holder[key] = _other(chance)
    return b"\n".join(json.dumps(value).encode() for value in values)


@each
@given(seed=st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_a_damaged_log_never_raises(kind: Kind, seed: int) -> None:
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"log{kind.ending}"
        data = _damaged(kind.write(TURNS), chance)
        path.write_bytes(data)
        trajectories, broken = read_only(path, kind.format)
        assert trajectories or broken or len(data) < 3  # an empty object or list holds nothing to count
        recognised(path)


@each
def test_a_log_of_another_format_never_raises(kind: Kind, tmp_path: Path) -> None:
    path = tmp_path / f"log{kind.ending}"
    path.write_bytes(kind.write(TURNS))
    for name in READERS:
        read_only(path, name)
