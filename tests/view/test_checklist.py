"""What commands concluded is shown, whatever names their records use."""

from pathlib import Path

from patchgym.store import RunFiles
from patchgym.view.checklist import kept_checklists, read_checklist
from tests.view.making import graded, looking_at, page, write_run

_DIAGNOSIS = """{"schema_version": 1, "run": "r", "findings": [
 {"step": 1, "check": "solvable", "status": "ok", "evidence": "7 of 7", "threshold": "all", "source": "article",
  "confidence": "high", "action": "", "named": [], "figures": {"solved": 7}},
 {"step": 3, "check": "extremes", "status": "broken", "evidence": "all at 0", "threshold": "", "source": "convention",
  "confidence": "low", "action": "patchgym score RUN", "named": ["round-1.demo-1.0", "demo-9"]},
 {"check": "drift", "status": "unknown", "evidence": "no value model"}],
 "left": ["trend"], "verdict": "Mend the rewards."}"""


def test_a_diagnosis_is_read_with_what_it_names(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [graded(0)])
    (path / "diagnosis.json").write_text(_DIAGNOSIS.replace("\n", ""))
    (found,) = kept_checklists(RunFiles(path))
    assert [(check.name, check.status) for check in found.checks] == [
        ("solvable", "ok"),
        ("extremes", "broken"),
        ("drift", "unknown"),
    ]
    assert found.checks[0].threshold == "all (article)"
    assert found.first_broken is found.checks[1]
    assert found.left == ("trend",)
    with looking_at(path, index=tmp_path / "index") as (client, _):
        text = page(client, "/run/run/checklist")
    for told in ("Mend the rewards.", "patchgym score RUN", "attempt?id=round-1.demo-1.0", "task?id=demo-9", "trend"):
        assert told in text


def test_gates_of_stages_are_read_in_order(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [])
    (path / "gates.jsonl").write_text(
        '{"place": "stage-1", "passed": true, "checklist": {"findings": [], "verdict": "Go on."}}\n'
        'nonsense\n{"stage": 2, "verdict": "Stop."}\n'
    )
    found = kept_checklists(RunFiles(path))
    assert [(one.title, one.verdict) for one in found] == [
        ("Gate 1 after stage-1, passed", "Go on."),
        ("Gate 2 after 2", "Stop."),
    ]


def test_anything_else_is_no_checklist() -> None:
    found = read_checklist({"findings": [3, None, {"check": 4}], "verdict": ["a", "b"]}, "x")
    assert [check.name for check in found.checks] == ["4"]
    assert found.verdict == "a; b"


def test_a_run_without_one_says_so(tmp_path: Path) -> None:
    with looking_at(write_run(tmp_path / "run", []), index=tmp_path / "index") as (client, _):
        assert "No checklist was kept" in page(client, "/run/run/checklist")
