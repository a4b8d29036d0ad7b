"""One page that needs nothing else, of bounded size, that says what it leaves out."""

import re
from pathlib import Path

from patchgym.view import static
from patchgym.view.site import Site
from tests.records_for_tests import make_step
from tests.view.making import graded, looking_at, loop_run, states_run, write_run


def made(path: Path, tmp_path: Path, attempts: int = 40, most_bytes: int = static.MOST_BYTES) -> str:
    with looking_at(path, index=tmp_path / "index") as (_, site):
        return static.static_page(Site(site.runs), site.runs[path.name], attempts, most_bytes)


def test_it_loads_nothing_and_has_no_script(tmp_path: Path) -> None:
    text = made(states_run(tmp_path / "run"), tmp_path)
    assert "<script" not in text
    assert not re.search(r"""(src|href)=["'](?!#|data:,")""", text)
    assert "url(" not in text
    assert "@import" not in text
    assert " style=" not in text
    assert "default-src 'none'" in text


def test_it_holds_figures_charts_tasks_checks_and_attempts(tmp_path: Path) -> None:
    path = loop_run(tmp_path / "run")
    (path / "report.json").write_text(
        '{"judgement": {"findings": [{"check": "tasks", "level": "broken", "evidence": "seen", "action": "mend it"}],'
        ' "verdict": "Stop here"}, "funnel": {"candidates": 9, "written": 2}}'
    )
    text = made(path, tmp_path)
    for told in ("Mean reward", "eval-2", "demo-2", "Stop here", "mend it", "candidates", "round-3.demo-1.3", "wrong"):
        assert told in text


def test_it_says_what_it_leaves_out(tmp_path: Path) -> None:
    text = made(loop_run(tmp_path / "run"), tmp_path, attempts=3)
    assert "3 of its 14 attempts" in text
    assert "Left out: 11 attempts" in text


def test_those_with_evidence_come_first(tmp_path: Path) -> None:
    text = made(states_run(tmp_path / "run"), tmp_path, attempts=1)
    assert "round-1.demo-1.0" in text
    assert "round-1.demo-1.1" not in text


def test_its_size_is_bounded(tmp_path: Path) -> None:
    long = tuple(make_step(n) for n in range(2000))
    attempts = [graded(n).model_copy(update={"steps": long}) for n in range(20)]
    text = made(write_run(tmp_path / "run", attempts), tmp_path, attempts=2000, most_bytes=100_000)
    assert len(text.encode()) < 200_000
    assert "of its 20 attempts" in text
    assert "20 of its 20" not in text
    assert "more steps are left out" in text


def test_an_empty_run_has_a_page(tmp_path: Path) -> None:
    assert "holds no attempts" in made(write_run(tmp_path / "run", []), tmp_path)
