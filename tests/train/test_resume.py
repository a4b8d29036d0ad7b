"""Updates that are killed, refused, interrupted or made again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, RowSet, SftSettings, TokenRow, UpdateReport, grpo, sft
from patchgym.train.loading import load_adapted
from patchgym.train.reasons import Reason
from patchgym.train.replay import replay
from patchgym.train.report import Mismatch
from patchgym.train.rowfile import read_rows, rows_bytes, rows_hash
from patchgym.train.state import read_steps
from patchgym.train.trainer import make_optimizer
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.train.tiny import RL, published, rewarded

pytestmark = pytest.mark.train

SETTINGS = RL.model_copy(update={"rows_per_step": 2, "passes": 2, "learning_rate": 1e-3, "tis_cap": 2.0})
STEPS = 8

_SCRIPT = """
import os, signal, sys
from pathlib import Path
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, grpo
place, start, cache, at, number = sys.argv[1:]
seen = 0
def on_report(step, report):
    global seen
    seen = step
def on_step(done, total, figures):
    if seen == int(at):
        os.kill(os.getpid(), int(number))
lines = Path(place, "trajectories.jsonl").read_bytes().splitlines()
settings = PolicyGradientSettings.model_validate_json(Path(place, "settings.json").read_text())
grpo(
    [Trajectory.from_line(line) for line in lines],
    start=start,
    out=Path(place, "checkpoints"),
    settings=settings,
    trained_on={},
    cache=Path(cache),
    on_step=on_step,
    on_report=on_report,
    state=Path(place, "updates", "grpo"),
)
"""


@pytest.fixture
def groups(pair: list[Trajectory]) -> list[Trajectory]:
    """Four groups of two."""
    return [rewarded(one, group_id=f"{group}", id=f"{group}.{at}") for group in "abcd" for at, one in enumerate(pair)]


def made(
    place: Path,
    trajectories: Sequence[Trajectory],
    start: Path,
    cache: Path,
    settings: PolicyGradientSettings = SETTINGS,
) -> UpdateReport:
    """An update with its state in ``place``."""
    return grpo(
        trajectories,
        start=str(start),
        out=place / "checkpoints",
        settings=settings,
        trained_on={},
        cache=cache,
        state=place / "updates" / "grpo",
    )


def weights(place: Path, report: UpdateReport) -> bytes:
    return (published(place / "checkpoints", report) / "adapter" / "adapter_model.safetensors").read_bytes()


def killed(
    place: Path,
    trajectories: Sequence[Trajectory],
    start: Path,
    cache: Path,
    *,
    at: int = 3,
    number: int = signal.SIGKILL,
    settings: PolicyGradientSettings = SETTINGS,
    before: Sequence[str] = (),
) -> "subprocess.CompletedProcess[str]":
    """An update in a process of its own that gets a signal in the middle of the step after ``at``."""
    place.mkdir()
    (place / "trajectories.jsonl").write_text("".join(f"{one.to_line()}\n" for one in trajectories))
    (place / "settings.json").write_text(settings.model_dump_json())
    command = [*before, sys.executable, "-c", _SCRIPT, str(place), str(start), str(cache), str(at), str(int(number))]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120)


def states(place: Path) -> list[str]:
    return sorted(one.name for one in (place / "updates" / "grpo").glob("*step-*"))


@pytest.mark.parametrize("save_every", [1, 2])
def test_an_update_killed_in_the_middle_of_a_step_ends_in_the_same_bytes(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, save_every: int
) -> None:
    whole = made(tmp_path / "whole", groups, model_dir, cache)
    assert len(whole.steps) == STEPS
    settings = SETTINGS.model_copy(update={"save_every": save_every})
    assert killed(tmp_path / "cut", groups, model_dir, cache, settings=settings).returncode == -signal.SIGKILL
    assert states(tmp_path / "cut") == (["step-2", "step-3"] if save_every == 1 else ["step-2"])
    assert not (tmp_path / "cut" / "checkpoints").exists()
    done: list[int] = []
    again = grpo(
        groups,
        start=str(model_dir),
        out=tmp_path / "cut" / "checkpoints",
        settings=settings,
        trained_on={},
        cache=cache,
        on_report=lambda number, report: done.append(number),
        state=tmp_path / "cut" / "updates" / "grpo",
    )
    assert done == list(range(4 if save_every == 1 else 3, STEPS + 1))
    assert again.version == whole.version
    assert weights(tmp_path / "cut", again) == weights(tmp_path / "whole", whole)
    told = [[step.model_dump(exclude={"seconds"}) for step in report.steps] for report in (whole, again)]
    assert told[0] == told[1]
    assert again.sampler_gap == whole.sampler_gap


def test_a_state_that_is_damaged_is_passed_over_for_the_one_before(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    whole = made(tmp_path / "whole", groups, model_dir, cache)
    killed(tmp_path / "cut", groups, model_dir, cache)
    tensors = tmp_path / "cut" / "updates" / "grpo" / "step-3" / "state.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"?")
    assert made(tmp_path / "cut", groups, model_dir, cache).version == whole.version


def test_what_a_kill_left_half_written_is_removed(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    killed(tmp_path / "cut", groups, model_dir, cache)
    folder = tmp_path / "cut" / "updates" / "grpo"
    (folder / ".step-4-abc").mkdir()
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"step": 4, "rep')
    made(tmp_path / "cut", groups, model_dir, cache)
    assert states(tmp_path / "cut") == []
    assert [line.step for line in read_steps(folder)] == list(range(1, STEPS + 1))


def test_once_it_is_published_its_states_go_and_what_replay_needs_stays(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    made(tmp_path / "a", groups, model_dir, cache)
    left = {one.name for one in (tmp_path / "a" / "updates" / "grpo").iterdir()}
    assert left == {"update.json", "rows.safetensors", "steps.jsonl", "report.json", "lock"}
    made(tmp_path / "b", groups, model_dir, cache, SETTINGS.model_copy(update={"keep_states": True}))
    assert len(states(tmp_path / "b")) == STEPS


@pytest.mark.parametrize(
    ("changes", "key"),
    [({"learning_rate": 2e-3}, "settings.learning_rate"), ({"passes": 3}, "settings.passes")],
)
def test_a_state_of_other_settings_is_refused_by_the_key(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, changes: dict[str, object], key: str
) -> None:
    killed(tmp_path / "cut", groups, model_dir, cache)
    with pytest.raises(ConfigError, match=key):
        made(tmp_path / "cut", groups, model_dir, cache, SETTINGS.model_copy(update=changes))
    assert states(tmp_path / "cut") == ["step-2", "step-3"]


def test_a_state_of_other_rows_is_refused(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    killed(tmp_path / "cut", groups, model_dir, cache)
    with pytest.raises(ConfigError, match=r"These differ: rows\."):
        made(tmp_path / "cut", groups[:-2], model_dir, cache)


def test_a_state_of_another_version_of_the_model_is_refused(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    killed(tmp_path / "cut", groups, model_dir, cache)
    other = made(tmp_path / "other", groups, model_dir, cache)
    with pytest.raises(ConfigError, match=r"parent"):
        made(tmp_path / "cut", groups, published(tmp_path / "other" / "checkpoints", other), cache)


def test_a_state_of_other_code_is_refused(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    killed(tmp_path / "cut", groups, model_dir, cache)
    file = tmp_path / "cut" / "updates" / "grpo" / "update.json"
    told = json.loads(file.read_text())
    told["versions"]["code"] = "0" * 16
    file.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=r"versions\.code"):
        made(tmp_path / "cut", groups, model_dir, cache)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_in_the_middle_of_a_step_leaves_the_last_state(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, number: int
) -> None:
    assert killed(tmp_path / "cut", groups, model_dir, cache, number=number).returncode == -number
    assert states(tmp_path / "cut") == ["step-2", "step-3"]


def test_a_disk_that_fills_up_leaves_the_last_good_state(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    place = tmp_path / "cut"
    limit = "import resource, signal; resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))\n"
    big = SETTINGS.model_copy(update={"lora_rank": 4})
    killed(place, groups, model_dir, cache, at=2, settings=big)
    assert states(place) == ["step-1", "step-2"]
    size = (place / "updates" / "grpo" / "step-2" / "state.safetensors").stat().st_size
    script = limit.replace("LIMIT", str(size // 2)) + _SCRIPT
    command = [sys.executable, "-c", script, str(place), str(model_dir), str(cache), "99", "9"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=120)
    assert "StorageError" in done.stderr
    assert "step-3" in done.stderr
    assert states(place) == ["step-1", "step-2"]
    assert made(place, groups, model_dir, cache).version == made(tmp_path / "w", groups, model_dir, cache).version


def test_two_processes_cannot_make_one_update(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    def other(done: int, total: int, figures: dict[str, float]) -> None:
        with pytest.raises(UsageError, match="Another process writes"):
            made(tmp_path / "a", groups, model_dir, cache)

    grpo(
        groups[:2],
        start=str(model_dir),
        out=tmp_path / "a" / "checkpoints",
        settings=RL,
        trained_on={},
        cache=cache,
        on_step=other,
        state=tmp_path / "a" / "updates" / "grpo",
    )


@pytest.mark.parametrize("keep_states", [False, True])
def test_a_step_made_again_is_the_same_bit_by_bit(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path, keep_states: bool
) -> None:
    made(tmp_path, groups, model_dir, cache, SETTINGS.model_copy(update={"keep_states": keep_states}))
    found = replay(tmp_path / "updates" / "grpo", 5, cache=cache)
    assert (found.verdict, found.largest, found.parameter, found.weights) == ("exact", 0.0, None, True)
    assert found.from_step == (4 if keep_states else 0)
    assert found.versions == ()


def test_a_step_made_again_after_an_update_of_imitation_is_the_same(
    model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    shown = [make_trajectory(steps=[make_step(0), make_step(1)], report=make_report())]
    sl = SftSettings(learning_rate=3e-2, lora_rank=4, max_row_tokens=256, passes=3)
    state = tmp_path / "updates" / "sft"
    sft(shown, start=str(model_dir), out=tmp_path, settings=sl, cache=cache, trained_on={}, state=state)
    assert replay(state, 3, cache=cache).verdict == "exact"


def tampered(place: Path, file: str, change: str, to: str) -> Path:
    """The update's folder with one text of one of its files replaced."""
    path = place / "updates" / "grpo" / file
    text = path.read_text()
    assert change in text
    path.write_text(text.replace(change, to))
    return path.parent


def test_a_figure_that_is_off_by_rounding_is_told_as_such(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    report = made(tmp_path, groups, model_dir, cache)
    norm = report.steps[1].gradient_norm
    found = replay(tampered(tmp_path, "steps.jsonl", repr(norm), repr(norm * (1 + 1e-5))), 2, cache=cache)
    assert found.verdict == "rounding"
    assert [one.figure for one in found.differences] == ["gradient_norm"]
    assert found.largest == pytest.approx(1e-5, rel=0.5)


def test_a_step_under_other_settings_is_different_and_names_the_first_parameter(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    made(tmp_path, groups, model_dir, cache)
    found = replay(tampered(tmp_path, "update.json", '"learning_rate": 0.001', '"learning_rate": 0.01'), 2, cache=cache)
    assert found.verdict == "different"
    assert found.parameter is not None
    assert "lora_" in found.parameter


def test_a_replay_from_another_model_is_refused(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    report = made(tmp_path, groups, model_dir, cache)
    folder = tampered(tmp_path, "update.json", report.parent, "grpo-7-00000000")
    with pytest.raises(DataError, match="started from grpo-7-00000000"):
        replay(folder, 1, cache=cache)
    with pytest.raises(UsageError, match="no step 9"):
        replay(folder, 9, cache=cache)


def test_a_run_that_was_moved_is_replayed_from_its_own_checkpoints(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    first = made(tmp_path / "run", groups, model_dir, cache)
    start = published(tmp_path / "run" / "checkpoints", first)
    gentle = SETTINGS.model_copy(update={"tis_cap": 2.0})
    grpo(
        groups,
        start=str(start),
        out=tmp_path / "run" / "checkpoints",
        settings=gentle,
        trained_on={},
        cache=cache,
        state=tmp_path / "run" / "updates" / "second",
    )
    (tmp_path / "run").rename(tmp_path / "moved")
    assert replay(tmp_path / "moved" / "updates" / "second", 1, cache=cache).verdict == "exact"


def test_random_states_come_back_with_the_weights(model_dir: Path, cache: Path, tmp_path: Path) -> None:
    import random

    from patchgym.train.state import _load_state, _write_state

    model = load_adapted(str(model_dir), RL, cache)
    optimizer = make_optimizer(model, RL)
    _write_state(tmp_path, 1, model, optimizer)
    wanted = random.random(), torch.rand(3).tolist()
    _load_state(tmp_path / "step-1", model, optimizer)
    assert (random.random(), torch.rand(3).tolist()) == wanted


_FLOATS = st.floats(-1e30, 1e30, allow_nan=False)


@st.composite
def _rows(draw: st.DrawFn) -> TokenRow:
    ids = tuple(draw(st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=6)))
    size = len(ids)

    def numbers(values: "st.SearchStrategy[float]") -> tuple[float, ...]:
        return tuple(draw(st.lists(values, min_size=size, max_size=size)))

    return TokenRow(
        ids=ids,
        trainable=tuple(draw(st.lists(st.integers(0, 1), min_size=size, max_size=size))),
        logprobs=numbers(_FLOATS),
        turns=tuple(draw(st.lists(st.integers(-1, 99), min_size=size, max_size=size))),
        trajectory_id=draw(st.text()),
        group_id=draw(st.text()),
        temperature=draw(st.floats(0.1, 2)),
        advantages=draw(st.none() | st.just(numbers(_FLOATS))),
        reward=draw(st.none() | _FLOATS),
        versions=tuple(draw(st.lists(st.tuples(st.integers(0, 9), st.none() | st.text()), max_size=3))),
    )


@settings(deadline=None, max_examples=60)
@given(rows=st.lists(_rows(), max_size=4), counts=st.dictionaries(st.sampled_from(Reason), st.integers(1, 9)))
def test_rows_come_back_from_disk_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, rows: list[TokenRow], counts: dict[Reason, int]
) -> None:
    from collections import Counter

    wrong = Mismatch(trajectory="t", turn=None, reason=Reason.BAD_MASK, why="because")
    whole = RowSet(tuple(rows), Counter(counts), 3, 1, (wrong,), ("g",))
    path = tmp_path_factory.mktemp("rows") / "rows.safetensors"
    path.write_bytes(rows_bytes(whole))
    assert read_rows(path) == whole
    assert rows_hash(read_rows(path)) == rows_hash(whole)


def test_damaged_rows_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.safetensors").write_bytes(b"\x00" * 20)
    with pytest.raises(DataError, match="Cannot read the rows"):
        read_rows(tmp_path / "rows.safetensors")
