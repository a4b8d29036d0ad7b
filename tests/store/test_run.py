"""A run directory loses nothing, doubles nothing and says what it repaired."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from patchgym.errors import ConfigError, DataError, StorageError, UsageError
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_report, make_step, make_trajectory


def opened(path: Path, **changes: object) -> RunDirectory:
    return RunDirectory.open_for_writing(path, make_manifest(**changes))


def test_what_is_appended_is_there_after_reopening(tmp_path: Path) -> None:
    run = opened(tmp_path / "run")
    made = [make_trajectory(n, report=make_report(), reward=0.0, steps=[make_step()]) for n in range(3)]
    for trajectory in made:
        run.append(trajectory)
    run.close()
    assert list(RunDirectory.read(tmp_path / "run").trajectories) == made


def test_a_torn_last_line_is_cut_and_named(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.append(make_trajectory(0, report=make_report(), reward=0.0))
    run.close()
    file = tmp_path / "trajectories.jsonl"
    whole = file.read_bytes()
    file.write_bytes(whole + whole[: len(whole) // 2])
    again = opened(tmp_path)
    assert len(again.ids) == 1
    assert file.read_bytes() == whole
    assert any("never finished" in problem for problem in again.problems)


def test_a_damaged_line_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    run = opened(tmp_path)
    for n in range(3):
        run.append(make_trajectory(n, report=make_report(), reward=0.0))
    run.close()
    file = tmp_path / "trajectories.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] + b'{"schema_version": 99}\n' + b"\xff\xfe not json\n" + lines[2] + lines[2])
    found = RunDirectory.read(tmp_path)
    assert [trajectory.sample_index for trajectory in found.trajectories] == [0, 2]
    assert [problem.split(":")[0] for problem in found.problems] == [
        "trajectories.jsonl, line 2",
        "trajectories.jsonl, line 3",
        "trajectories.jsonl, line 5",
    ]


def test_a_second_trajectory_with_the_same_id_is_refused(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.append(make_trajectory(0, report=make_report(), reward=0.0))
    with pytest.raises(DataError, match="final already"):
        run.append(make_trajectory(0, report=make_report(), reward=0.0))


def test_another_configuration_is_refused_by_the_names_of_its_keys(tmp_path: Path) -> None:
    opened(tmp_path).close()
    with pytest.raises(ConfigError) as caught:
        opened(tmp_path, config={"samples": 2, "rollout": {"temperature": 0.5}}, seed=2)
    assert "config.rollout.temperature" in caught.value.why
    assert "seed" in caught.value.why


def test_two_writers_at_once_are_refused(tmp_path: Path) -> None:
    run = opened(tmp_path)
    with pytest.raises(UsageError, match="Another process"):
        opened(tmp_path)
    run.close()
    opened(tmp_path).close()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(UsageError, match="holds other files"):
        opened(tmp_path)


def test_an_interrupted_journal_is_kept_apart_and_named(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.journal("round-1.demo-1.0").append(make_step())
    run.close()
    again = opened(tmp_path)
    assert any("round-1.demo-1.0" in problem for problem in again.problems)
    assert not list((tmp_path / "journal").glob("*.jsonl"))
    assert len(list((tmp_path / "journal").glob("*.interrupted"))) == 1


def test_a_final_trajectory_leaves_no_journal(tmp_path: Path) -> None:
    run = opened(tmp_path)
    trajectory = make_trajectory(0, report=make_report(), reward=0.0)
    run.journal(trajectory.id).append(make_step())
    run.append(trajectory)
    assert not list((tmp_path / "journal").iterdir())


WRITER = """
import sys
from pathlib import Path
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_report, make_trajectory, make_step
run = RunDirectory.open_for_writing(Path(sys.argv[1]), make_manifest())
have = len(run.ids)
print(have, flush=True)
for n in range(have, 10000):
    run.append(make_trajectory(n, report=make_report(), reward=0.0, steps=[make_step(i) for i in range(20)]))
    print(n + 1, flush=True)
"""


def test_a_kill_at_any_instant_loses_and_doubles_nothing(tmp_path: Path) -> None:
    said = 0
    for round_number in range(6):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(tmp_path / "run")], stdout=subprocess.PIPE, text=True, env=os.environ
        )
        assert process.stdout is not None
        for _ in range(3 + 7 * round_number):
            said = int(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().split()
        said = int(rest[-1]) if rest else said
        process.wait()
        process.stdout.close()
    run = opened(tmp_path / "run")
    indices = [trajectory.sample_index for trajectory in run.trajectories]
    assert indices == list(range(len(indices)))
    assert said <= len(indices) <= said + 1
    assert all("never finished" in problem for problem in run.problems)


def test_a_full_disk_is_a_typed_error_and_leaves_whole_lines(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.append(make_trajectory(0, report=make_report(), reward=0.0))
    before = (tmp_path / "trajectories.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 100, hard))
    try:
        with pytest.raises(StorageError):
            run.append(make_trajectory(1, report=make_report(), reward=0.0))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "trajectories.jsonl").read_bytes() == before
    assert len(run.ids) == 1


def test_what_became_final_before_the_kill_is_not_said_to_be_made_again(tmp_path: Path) -> None:
    run = opened(tmp_path)
    run.append(make_trajectory(0, report=make_report(), reward=0.0))
    (name,) = run.ids
    for left in (name, "unfinished"):
        run.journal(left).append(make_step())
    run.close()
    again = opened(tmp_path)
    assert again.problems == ["unfinished: was interrupted and is made again"]
    assert [path.name for path in (tmp_path / "journal").iterdir()] == ["unfinished.interrupted"]
