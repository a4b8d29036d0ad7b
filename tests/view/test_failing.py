"""Why attempts failed: counts, and shares with the intervals of an evaluation."""

from pathlib import Path

import pytest

from patchgym.evaluate import evaluate
from patchgym.evaluate.bootstrap import mean_estimate
from patchgym.records import Fault, Task, Trajectory, Verdict
from patchgym.view.failing import Failing, failing_phases, failing_run, failure_chart, failure_kinds
from patchgym.view.figures import Spread
from patchgym.view.opened import OpenedRun
from tests.records_for_tests import make_report, make_task, make_trajectory
from tests.view.making import graded, looking_at, page, write_run

TASKS = [make_task(f"demo-{at}") for at in range(4)]


def gave_up(task: Task, sample: int, phase: str = "round-1") -> Trajectory:
    """An attempt that changed nothing."""
    return make_trajectory(sample, task_id=task.id, phase=phase, report=make_report(), reward=0.0)


def mixed(phase: str = "round-1") -> list[Trajectory]:
    """Two attempts at each task: of the first both gave up, of the others one is wrong and one right."""
    first = [gave_up(TASKS[0], sample, phase) for sample in range(2)]
    others = [
        graded(sample, solved=bool(sample), task_id=task.id, phase=phase) for task in TASKS[1:] for sample in range(2)
    ]
    return [*first, *others]


def opened(folder: Path, attempts: list[Trajectory]) -> OpenedRun:
    run = OpenedRun(write_run(folder / "run", attempts, TASKS), "run", folder / "index")
    run.index.catch_up()
    return run


def of_phases(folder: Path, attempts: list[Trajectory]) -> list[Failing]:
    with opened(folder, attempts).index.open() as connection:
        return failing_phases(connection)


def test_types_are_counted_as_an_evaluation_counts_them(tmp_path: Path) -> None:
    (found,) = of_phases(tmp_path, mixed())
    assert found.counts == {kind.value: count for kind, count in evaluate(mixed(), TASKS).failures.items()}
    assert found.attempts == 8


def test_a_share_is_a_mean_over_tasks_with_the_bootstraps_interval(tmp_path: Path) -> None:
    (found,) = of_phases(tmp_path, mixed())
    wanted = mean_estimate([1.0, 0.0, 0.0, 0.0], (0.0, 1.0), draws=2000)
    assert found.shares["gave_up"] == Spread(0.25, wanted.low, wanted.high, 4)
    assert found.shares["wrong_logic"].value == pytest.approx(3 * 0.5 / 4)
    assert 0 <= wanted.low < 0.25 < wanted.high <= 1


def test_what_infrastructure_lost_is_counted_and_in_no_share(tmp_path: Path) -> None:
    fault = Fault(kind="SandboxError", where="sandbox", message="gone")
    lost = make_trajectory(7, task_id=TASKS[1].id).model_copy(update={"faults": (fault,)})
    (found,) = of_phases(tmp_path, [*mixed(), lost])
    assert found.counts["infrastructure"] == 1
    assert "infrastructure" not in found.shares
    assert found.shares["wrong_logic"].value == pytest.approx(3 * 0.5 / 4)


def test_a_run_is_told_without_its_demonstrations(tmp_path: Path) -> None:
    shown = [gave_up(task, 0, "demonstrate") for task in TASKS]
    with opened(tmp_path, [*shown, *mixed()]).index.open() as connection:
        assert failing_run(connection, "run") == Failing("run", *failing_phases(connection)[1][1:])


def test_over_rounds_they_are_a_chart_and_of_one_round_none(tmp_path: Path) -> None:
    found = of_phases(tmp_path, [*mixed("round-1"), *[graded(0, phase="round-2", task_id=task.id) for task in TASKS]])
    assert failure_kinds(found) == ["wrong_logic", "gave_up"]
    assert failure_chart(found[:1]) is None
    chart = failure_chart(found)
    assert chart is not None
    assert [name for name, _ in chart.legend] == ["wrong logic", "gave up"]
    assert chart.rows[1][2].startswith("0%")


def test_a_phase_of_which_nothing_is_told_has_no_share(tmp_path: Path) -> None:
    (found,) = of_phases(tmp_path, [make_trajectory(0, task_id=TASKS[0].id)])
    assert found.shares == {}
    assert found.counts == {"infrastructure": 1}


def test_pages_show_shares_with_their_intervals(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", [*mixed("round-1"), *mixed("round-2")], TASKS)
    (share,) = of_phases(tmp_path / "other", mixed())
    low, high = share.shares["gave_up"].low, share.shares["gave_up"].high
    assert low is not None
    assert high is not None
    with looking_at(path, index=tmp_path / "index") as (client, _):
        text = page(client, "/run/run/")
    assert f"25% <small>{low:.0%} to {high:.0%}</small>" in text
    assert "Why attempts failed" in text


def test_a_verdict_of_tampering_is_hacked_on_pages_too(tmp_path: Path) -> None:
    tampered = make_trajectory(0, task_id=TASKS[0].id, report=make_report(Verdict.TAMPERED), reward=0.0)
    (found,) = of_phases(tmp_path, [tampered])
    assert found.counts == {"hacked": 1}
