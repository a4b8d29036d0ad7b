"""The index says of every trajectory what the run says, and follows it."""

import sqlite3
from pathlib import Path

import pytest

from patchgym.errors import StorageError
from patchgym.records import Trajectory
from patchgym.store import RunDirectory
from patchgym.view.opened import OpenedRun
from tests.records_for_tests import make_manifest, make_trajectory
from tests.view.making import graded, loop_run, small_tree, states_run, write_run


@pytest.fixture
def index(tmp_path: Path) -> Path:
    return tmp_path / "index"


def opened(path: Path, index: Path) -> OpenedRun:
    run = OpenedRun(path, "run", index)
    run.index.catch_up()
    return run


def column(run: OpenedRun, name: str) -> list[object]:
    with run.index.open() as connection:
        return [row[0] for row in connection.execute(f"SELECT {name} FROM attempts ORDER BY rowid")]


def test_every_trajectory_can_be_opened_as_it_was_written(tmp_path: Path, index: Path) -> None:
    path = loop_run(tmp_path / "run")
    run = opened(path, index)
    assert [run.trajectory(str(name)) for name in column(run, "id")] == list(RunDirectory.read(path).trajectories)


def test_rows_say_what_trajectories_say(tmp_path: Path, index: Path) -> None:
    run = opened(states_run(tmp_path / "run"), index)
    assert column(run, "solved") == [0, 0]  # the first has proof of a hack: it passes its tests, and solves nothing
    assert column(run, "reward") == [1.0, 0.0]
    assert column(run, "proofs") == [1, 0]
    assert column(run, "tokens") == [4, 4]
    assert column(run, "lines") == [2, 2]
    assert column(run, "split") == ["train", "train"]
    assert column(run, "failure")[0] == "hacked"


def test_what_infrastructure_lost_is_neither_solved_nor_failed(tmp_path: Path, index: Path) -> None:
    run = opened(write_run(tmp_path / "run", [make_trajectory(0)]), index)
    assert column(run, "solved") == [None]
    assert column(run, "reward") == [None]


def test_a_run_that_grows_is_followed(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    run = opened(path, index)
    write_run(path, [graded(1)])
    assert run.index.behind() > 0
    run.index.catch_up()
    assert column(run, "sample") == [0, 1]
    assert run.index.behind() == 0


def test_an_index_goes_on_where_it_was(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(3)])
    opened(path, index)
    again = OpenedRun(path, "run", index)
    assert not again.index.step()
    assert column(again, "sample") == [0, 1, 2]


def test_a_run_that_was_made_anew_is_indexed_anew(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(3)])
    opened(path, index)
    (path / "trajectories.jsonl").write_text(graded(7).to_line() + "\n")
    assert column(opened(path, index), "sample") == [7]


@pytest.mark.parametrize("place", [0, 3])
def test_a_run_with_another_first_or_last_line_is_indexed_anew(tmp_path: Path, index: Path, place: int) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(4)])
    opened(path, index)
    lines = (path / "trajectories.jsonl").read_text().splitlines()
    assert sum(map(len, lines[:3])) > 4096
    lines[place] = lines[place].replace("noop", "else")
    (path / "trajectories.jsonl").write_text("".join(f"{line}\n" for line in lines))
    assert column(opened(path, index), "policy")[place] == "else"


def test_a_run_that_is_replaced_while_it_is_looked_at_is_indexed_anew(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(3)])
    run = opened(path, index)
    (path / "trajectories.jsonl").write_text(graded(7).to_line() + "\n")
    run.index.catch_up()
    assert column(run, "sample") == [7]


def test_half_an_index_is_made_again(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    file = opened(path, index).index.path
    file.write_bytes(b"SQLite format 3\0" + b"\xff" * 500)
    assert column(opened(path, index), "sample") == [0]


def test_an_index_that_cannot_be_written_is_told(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    file = opened(path, index).index.path
    file.unlink()
    file.mkdir()
    with pytest.raises(StorageError, match="Cannot write the index"):
        OpenedRun(path, "run", index)


def test_two_that_index_one_run_do_not_double_it(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(250)])
    first, second = OpenedRun(path, "run", index), OpenedRun(path, "run", index)
    while first.index.step() or second.index.step():
        pass
    assert column(first, "sample") == list(range(250))


def test_damaged_lines_are_counted_named_and_left_out(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    older = graded(1).model_dump_json().replace('"schema_version":2', '"schema_version":1')
    lines = ["{ no json", older, graded(0).to_line(), graded(2).to_line()]
    with (path / "trajectories.jsonl").open("a") as file:
        file.write("".join(f"{line}\n" for line in lines) + graded(3).to_line()[:50])
    run = opened(path, index)
    assert column(run, "sample") == [0, 2]
    assert run.progress().problems == 3
    told = " ".join(run.problems())
    assert "line 2: not JSON" in told
    assert "of schema version 1" in told
    assert "again; the first one counts" in told


def test_a_line_that_is_being_written_is_waited_for(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    line = graded(1).to_line() + "\n"
    with (path / "trajectories.jsonl").open("a") as file:
        file.write(line[:200])
        file.flush()
        run = opened(path, index)
        assert column(run, "sample") == [0]
        file.write(line[200:])
    run.index.catch_up()
    assert column(run, "sample") == [0, 1]
    assert run.progress().problems == 0


def test_lone_surrogates_of_a_foreign_log_are_kept_as_escapes(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [])
    line = graded(0).to_line().replace('"noop"', '"no\\ud800op"')
    (path / "trajectories.jsonl").write_text(line + "\n")
    run = opened(path, index)
    assert column(run, "policy") == ["no\\ud800op"]


def test_paths_of_a_search_tree_are_attempts(tmp_path: Path, index: Path) -> None:
    tree = small_tree()
    run = opened(write_run(tmp_path / "run", [graded(0)], trees=[tree]), index)
    paths: list[Trajectory] = list(tree.trajectories())
    assert len(paths) == 1
    assert run.trajectory(paths[0].id) == paths[0]
    assert column(run, "tree") == [None, "tree-1"]


def test_states_of_a_run_are_told(tmp_path: Path, index: Path) -> None:
    empty = opened(write_run(tmp_path / "empty", []), index)
    assert empty.progress().state == "empty"
    done = opened(write_run(tmp_path / "done", [graded(0)]), index)
    assert done.progress().state == "done"
    writer = RunDirectory.open_for_writing(tmp_path / "running", make_manifest())
    writer.journal("one").append(graded(0).steps[0])
    running = opened(tmp_path / "running", index)
    assert running.progress().state == "running"
    assert running.progress().in_the_making == 1
    writer.close()
    assert running.progress().state == "interrupted"
    (tmp_path / "done" / "run.json").write_text('{"schema_version": 99}')
    other = opened(tmp_path / "done", index)
    assert other.progress().state == "unreadable"
    assert "schema version 99" in other.files.trouble


def test_an_index_is_a_cache_and_the_run_stays_as_it_is(tmp_path: Path, index: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    before = {file: file.stat().st_mtime_ns for file in path.rglob("*")}
    run = opened(path, index)
    run.progress()
    assert {file: file.stat().st_mtime_ns for file in path.rglob("*")} == before
    with sqlite3.connect(run.index.path) as connection:
        assert connection.execute("SELECT count(*) FROM attempts").fetchone() == (1,)
