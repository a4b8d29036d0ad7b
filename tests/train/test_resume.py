"""Updates that are killed, refused, interrupted or made again."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, RowSet, SftSettings, StepReport, TokenRow, UpdateReport, grpo, sft
from patchgym.train.loading import load_adapted
from patchgym.train.reasons import Reason
from patchgym.train.replay import replay
from patchgym.train.report import Mismatch, OnReport
from patchgym.train.rowfile import read_rows, rows_bytes, rows_hash
from patchgym.train.state import read_steps, restore, write_state
from patchgym.train.trainer import make_optimizer
from tests.records_for_tests import make_report, make_step, make_trajectory
from tests.train.tiny import BAD, GOOD, PROMPT, RL, SEEN, graded, load, published, sampled_steps

pytestmark = pytest.mark.train

SETTINGS = RL.model_copy(update={"rows_per_step": 2, "passes": 2, "learning_rate": 1e-3, "tis_cap": 2.0})
STEPS = 8

_SCRIPT = """
import os, signal, sys
from pathlib import Path
from patchgym.records import Trajectory
from patchgym.train import PolicyGradientSettings, grpo
place, start, cache, at = sys.argv[1:]
seen = 0
def on_report(step, report):
    global seen
    seen = step
def on_step(done, total, figures):
    if seen == int(at):
        os.kill(os.getpid(), signal.SIGKILL)
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


@pytest.fixture(scope="module")
def groups(model_dir: Path, cache: Path) -> list[Trajectory]:
    """Four groups of two."""
    model = load(model_dir, cache)
    return [
        graded(sampled_steps(model, [(PROMPT, answer), (SEEN, answer)]), reward, at, group)
        for group in "abcd"
        for at, (answer, reward) in enumerate(((GOOD, 1.0), (BAD, 0.0)))
    ]


@pytest.fixture(scope="module")
def killed_once(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Where an update was killed in the middle of its fourth step."""
    place = tmp_path_factory.mktemp("killed") / "cut"
    assert killed(place, groups, model_dir, cache).returncode == -signal.SIGKILL
    return place


@pytest.fixture
def cut(killed_once: Path, tmp_path: Path) -> Path:
    """A copy of that for one test."""
    return shutil.copytree(killed_once, tmp_path / "cut")


def made(
    place: Path,
    trajectories: Sequence[Trajectory],
    start: Path,
    cache: Path,
    settings: PolicyGradientSettings = SETTINGS,
    on_report: OnReport | None = None,
) -> UpdateReport:
    """An update with its state in ``place``."""
    return grpo(
        trajectories,
        start=str(start),
        out=place / "checkpoints",
        settings=settings,
        trained_on={},
        cache=cache,
        on_report=on_report,
        state=place / "updates" / "grpo",
    )


def weights(place: Path, report: UpdateReport) -> bytes:
    return (published(place / "checkpoints", report) / "adapter" / "adapter_model.safetensors").read_bytes()


def killed(
    place: Path, trajectories: Sequence[Trajectory], start: Path, cache: Path
) -> "subprocess.CompletedProcess[str]":
    """An update in a process of its own that is killed in the middle of its fourth step."""
    place.mkdir()
    (place / "trajectories.jsonl").write_text("".join(f"{one.to_line()}\n" for one in trajectories))
    (place / "settings.json").write_text(SETTINGS.model_dump_json())
    return script(place, start, cache)


def script(place: Path, start: Path, cache: Path, before: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", before + _SCRIPT, str(place), str(start), str(cache), "3"]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ, timeout=240)


def states(place: Path) -> list[str]:
    return sorted(one.name for one in (place / "updates" / "grpo").glob("*step-*"))


def test_an_update_killed_in_the_middle_of_a_step_ends_in_the_same_bytes(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    whole = made(tmp_path / "whole", groups, model_dir, cache)
    assert len(whole.steps) == STEPS
    assert states(cut) == ["step-2", "step-3"]
    assert not (cut / "checkpoints").exists()
    done: list[int] = []
    again = made(cut, groups, model_dir, cache, on_report=lambda number, report: done.append(number))
    assert done == list(range(4, STEPS + 1))
    assert again.version == whole.version
    assert weights(cut, again) == weights(tmp_path / "whole", whole)
    told = [[step.model_dump(exclude={"seconds"}) for step in report.steps] for report in (whole, again)]
    assert told[0] == told[1]
    assert again.sampler_gap == whole.sampler_gap


def test_an_update_interrupted_between_two_states_goes_on_from_the_earlier_one(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    rare = SETTINGS.model_copy(update={"save_every": 2})

    def interrupt(number: int, report: StepReport) -> None:
        if number == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path / "cut", groups, model_dir, cache, rare, interrupt)
    assert states(tmp_path / "cut") == ["step-2", "step-4"]
    again = made(tmp_path / "cut", groups, model_dir, cache, rare)
    assert again.version == made(tmp_path / "whole", groups, model_dir, cache).version


def test_an_update_goes_on_with_as_many_threads_as_it_was_begun_with(
    groups: list[Trajectory], model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    seen: list[int] = []

    def look(number: int, report: StepReport) -> None:
        seen.append(torch.get_num_threads())
        if len(seen) == 3:
            raise KeyboardInterrupt

    here = torch.get_num_threads()
    torch.set_num_threads(here + 1)
    try:
        with pytest.raises(KeyboardInterrupt):
            made(tmp_path / "cut", groups, model_dir, cache, on_report=look)
        whole = made(tmp_path / "whole", groups, model_dir, cache)
    finally:
        torch.set_num_threads(here)
    again = made(tmp_path / "cut", groups, model_dir, cache, on_report=look)
    found = replay(tmp_path / "cut" / "updates" / "grpo", 2, cache=cache, on_report=look)
    assert seen == [here + 1] * (STEPS + 2)
    assert (again.version, found.verdict, torch.get_num_threads()) == (whole.version, "exact", here)


def test_a_state_that_is_damaged_is_passed_over_for_the_one_before(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    tensors = cut / "updates" / "grpo" / "step-3" / "state.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:-1] + b"?")
    whole = made(tmp_path / "whole", groups, model_dir, cache)
    assert made(cut, groups, model_dir, cache).version == whole.version


def test_what_a_kill_left_half_written_is_removed(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path
) -> None:
    folder = cut / "updates" / "grpo"
    (folder / ".step-4-abc").mkdir()
    with (folder / "steps.jsonl").open("a") as file:
        file.write('{"step": 4, "rep')
    made(cut, groups, model_dir, cache)
    assert states(cut) == []
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
    groups: list[Trajectory],
    cut: Path,
    model_dir: Path,
    cache: Path,
    tmp_path: Path,
    changes: dict[str, object],
    key: str,
) -> None:
    with pytest.raises(ConfigError, match=key):
        made(cut, groups, model_dir, cache, SETTINGS.model_copy(update=changes))
    assert states(cut) == ["step-2", "step-3"]


def test_a_state_of_other_rows_is_refused(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=r"These differ: rows\."):
        made(cut, groups[:-2], model_dir, cache)


def test_a_state_of_another_version_of_the_model_is_refused(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    other = made(tmp_path / "other", groups, model_dir, cache)
    with pytest.raises(ConfigError, match=r"parent"):
        made(cut, groups, published(tmp_path / "other" / "checkpoints", other), cache)


def test_a_state_of_other_code_is_refused(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    file = cut / "updates" / "grpo" / "update.json"
    told = json.loads(file.read_text())
    told["versions"]["code"] = "0" * 16
    file.write_text(json.dumps(told))
    with pytest.raises(ConfigError, match=r"versions\.code"):
        made(cut, groups, model_dir, cache)


def test_a_disk_that_fills_up_leaves_the_last_good_state(
    groups: list[Trajectory], cut: Path, model_dir: Path, cache: Path, tmp_path: Path
) -> None:
    half = (cut / "updates" / "grpo" / "step-2" / "state.safetensors").stat().st_size // 2
    limit = f"import resource\nresource.setrlimit(resource.RLIMIT_FSIZE, ({half}, {half}))\n"
    done = script(cut, model_dir, cache, limit)
    assert "StorageError" in done.stderr
    assert "step-4" in done.stderr
    assert states(cut) == ["step-2", "step-3"]
    assert made(cut, groups, model_dir, cache).version == made(tmp_path / "w", groups, model_dir, cache).version


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
    found = replay(tampered(tmp_path, "steps.jsonl", repr(norm), repr(norm * (1 + 1e-4))), 2, cache=cache)
    assert found.verdict == "rounding"
    assert [one.figure for one in found.differences] == ["gradient_norm"]
    assert found.largest == pytest.approx(1e-4, rel=0.01)


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
    model = load_adapted(str(model_dir), RL, cache)
    optimizer = make_optimizer(model, RL)
    write_state(tmp_path, 1, model, optimizer)
    wanted = random.random(), torch.rand(3).tolist()
    assert restore(tmp_path, 1, model, optimizer) == 1
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
