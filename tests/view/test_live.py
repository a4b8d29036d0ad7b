"""A run in progress is followed: pages grow with it."""

import time
from pathlib import Path

from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest, make_step
from tests.view.making import graded, looking_at, page, write_run


def test_the_mark_changes_with_each_step_and_each_attempt(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    with looking_at(run.path, index=tmp_path / "index") as (client, site):
        opened = site.runs["run"]
        marks = [opened.progress().mark]
        journal = run.journal("round-1.demo-1.0")
        for step in (make_step(0), make_step(1)):
            journal.append(step)
            marks.append(opened.progress().mark)
        assert "in the making" in page(client, "/run/run/")
        assert "running" in page(client, "/run/run/")
        run.append(graded(0))
        opened.index.catch_up()
        marks.append(opened.progress().mark)
        run.close()
        marks.append(opened.progress().mark)
        assert len(set(marks)) == len(marks)
        assert "done" in page(client, "/run/run/")


def test_a_followed_run_is_read_without_being_asked(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    with looking_at(path, index=tmp_path / "index", whole=False) as (_, site):
        run = site.runs["run"]
        run.follow()
        write_run(path, [graded(1)])
        until = time.monotonic() + 60
        while run.progress().attempts < 2 and time.monotonic() < until:
            time.sleep(0.05)
        assert run.progress().attempts == 2


def test_a_run_that_is_not_read_yet_says_so(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [graded(n) for n in range(3)])
    with looking_at(path, index=tmp_path / "index", whole=False) as (client, _):
        assert "0 attempts are read" in page(client, "/run/run/")
        page(client, "/run/run/attempts")
