"""The checklist: its order, its stop, and what it says of runs that hold little or are damaged."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from patchgym.cli.diagnose import command
from patchgym.diagnose import DiagnoseSettings, diagnose, read_facts
from patchgym.diagnose.checks import CHECKS
from patchgym.errors import ConfigError, DataError, UsageError
from patchgym.records import Checklist, Origin, Status
from patchgym.store import RunDirectory
from tests.diagnose.test_alarms import attempt, opened
from tests.records_for_tests import make_manifest


def looked_at(path: Path, *, whole: bool = True) -> Checklist:
    return diagnose(read_facts(RunDirectory.read(path)), whole=whole)


def status(found: Checklist, check: str) -> Status:
    return next(one.status for one in found.findings if one.check == check)


def asked(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [str(path), *arguments], env={"COLUMNS": "80"})


def test_it_stops_at_the_first_broken_link_and_names_what_is_left(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.0)).close()
    short, whole = looked_at(tmp_path / "run", whole=False), looked_at(tmp_path / "run")
    assert short.first == whole.first
    assert short.first == short.findings[-1]
    assert short.left[0] == "groups"
    assert whole.left == ()
    assert [*(one.check for one in short.findings), *short.left] == [name for check in CHECKS for name in check.names]


def test_findings_stand_in_the_order_of_the_steps_and_say_their_threshold_and_source(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.3, 1.0)).close()
    found = looked_at(tmp_path / "run").findings
    assert [one.step for one in found] == sorted(one.step for one in found)
    assert all(one.threshold and one.evidence for one in found)
    assert {one.step for one in found} == {1, 2, 3, 4, 5, 6}


def test_it_is_a_record_that_reads_back(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.3, 1.0)).close()
    found = looked_at(tmp_path / "run")
    assert Checklist.from_line(found.to_line()) == found
    assert DiagnoseSettings.model_validate(found.thresholds) == DiagnoseSettings()


def test_the_exit_code_and_the_words_for_a_person_and_a_program(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.0)).close()
    shown, told = asked(tmp_path / "run"), asked(tmp_path / "run", "--json")
    assert (shown.exit_code, told.exit_code) == (1, 1)
    assert "Stop here: step 3, reward distribution: process signal." in shown.stdout
    assert json.loads(told.stdout)["findings"][-1]["status"] == "broken"
    table = [line for line in shown.stdout.splitlines() if line[:1] in "┏┃┡│└"]
    assert max(map(len, table)) <= 80


def test_a_sound_run_ends_with_0_and_says_what_it_does_not_tell(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.3, 1.0)).close()
    shown = asked(tmp_path / "run")
    assert shown.exit_code == 0
    assert "Nothing is broken in" in shown.stdout
    assert "It does not tell of" in shown.stdout


def test_a_threshold_can_be_set_and_an_unknown_one_is_refused_with_the_nearest(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.0)).close()
    assert asked(tmp_path / "run", "--set", "diagnose.few=50").exit_code == 1
    assert "process signal" not in asked(tmp_path / "run", "--set", "diagnose.few=50").stdout.split("Stop here")[1]
    refused = asked(tmp_path / "run", "--set", "diagnose.fev=50").exception
    assert isinstance(refused, ConfigError)
    assert "diagnose.few" in refused.mend
    assert isinstance(asked(tmp_path / "run", "--set", "few=5").exception, UsageError)


def test_an_empty_run_tells_nothing_and_is_not_broken(tmp_path: Path) -> None:
    RunDirectory.open_for_writing(tmp_path / "run", make_manifest()).close()
    found = looked_at(tmp_path / "run")
    assert found.first is None
    assert found.verdict.startswith("This run does not tell anything yet")


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 0.3, 1.0)).close()
    with (tmp_path / "run" / "trajectories.jsonl").open("a") as file:
        file.write('{"schema_version": 2, "id": \n')
    found = looked_at(tmp_path / "run", whole=False)
    assert found.first is not None
    assert found.first.check == "complete"
    assert "line 19" in found.first.evidence


def test_a_trajectory_of_another_schema_is_named_with_its_version(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    run.close()
    path = tmp_path / "run" / "trajectories.jsonl"
    path.write_text(path.read_text().replace('"schema_version":2', '"schema_version":1', 1))
    found = looked_at(tmp_path / "run", whole=False)
    assert found.first is not None
    assert "schema version 1" in found.first.evidence


def test_an_update_of_another_release_is_unknown_and_the_rest_is_looked_at(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    run.log_metrics({"kind": "update", "name": "round-1", "report": {"algorithm": "grpo"}})
    run.close()
    found = looked_at(tmp_path / "run")
    assert status(found, "rows") is Status.UNKNOWN
    assert status(found, "process signal") is Status.OK


def test_metrics_that_are_no_json_are_an_error_with_a_mend(tmp_path: Path) -> None:
    opened(tmp_path, (0.0, 1.0)).close()
    (tmp_path / "run" / "metrics.jsonl").write_text("{nonsense\n")
    refused = asked(tmp_path / "run").exception
    assert isinstance(refused, DataError)
    assert refused.mend


def test_a_run_in_progress_is_looked_at_as_it_stands(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    try:
        assert "still being written" in looked_at(tmp_path / "run").verdict
    finally:
        run.close()


def test_no_run_is_a_usage_error(tmp_path: Path) -> None:
    assert isinstance(asked(tmp_path / "nothing here").exception, UsageError)


def test_names_with_spaces_markup_and_marks_that_turn_lines_are_shown_as_text(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    run.append(attempt(0, 7, 0.0).model_copy(update={"id": "a [red]b[/red] <b>\u202ec", "final_patch": None}))
    run.close()
    shown = asked(tmp_path / "run")
    assert "a [red]b[/red] <b>\\u202ec" in shown.stdout
    assert "\u202e" not in shown.stdout


def test_what_an_imported_log_does_not_hold_is_unknown(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest(command="import"))
    origin = Origin(format="article", file="log.jsonl")
    bare = [step.model_copy(update={"state_before": None, "state_after": None}) for step in attempt(0, 0, 0.0).steps]
    changes = {"origin": origin, "steps": tuple(bare), "final_state": None, "reward": None, "report": None}
    run.append(attempt(0, 0, 0.0).model_copy(update=changes))
    run.close()
    found = looked_at(tmp_path / "run")
    assert found.first is None
    assert status(found, "complete") is Status.UNKNOWN
    assert status(found, "computed") is Status.UNKNOWN


def test_against_an_earlier_run_what_became_longer_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    opened(tmp_path / "a", (0.0, 0.3, 1.0)).close()
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest(id="later"))
    run.objects.write_tree({})
    run.keep_tasks(RunDirectory.read(tmp_path / "a" / "run").tasks().values())
    for task in range(6):
        for sample, value in enumerate((0.0, 0.3, 1.0)):
            run.append(attempt(task, sample, value, phase="rollout", steps=7))
    run.close()
    before = read_facts(RunDirectory.read(tmp_path / "a" / "run"))
    found = diagnose(read_facts(RunDirectory.read(tmp_path / "run"), against=before))
    assert found.against == "run"
    assert found.first is not None
    assert found.first.check == "step count"


@pytest.mark.parametrize("check", [name for check in CHECKS for name in check.names])
def test_every_check_says_something_of_a_run_with_nothing_in_it(check: str, tmp_path: Path) -> None:
    RunDirectory.open_for_writing(tmp_path / "run", make_manifest()).close()
    assert status(looked_at(tmp_path / "run"), check) is Status.UNKNOWN
