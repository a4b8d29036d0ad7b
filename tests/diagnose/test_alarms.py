"""Alarms keep what they find, pause where they should, and go on past what was said, and nothing else."""

import time
from pathlib import Path

import pytest

from patchgym.diagnose import Alarms, AlarmSettings, DiagnoseSettings
from patchgym.errors import PausedError
from patchgym.records import Action, Message, PolicyRef, Sampling, Step, Tally, Trajectory, Verdict
from patchgym.store import RunDirectory
from patchgym.train import StepReport
from tests.records_for_tests import make_manifest, make_report, make_reward, make_step, make_task, make_trajectory


def attempt(task: int, sample: int, value: float, *, phase: str = "round-1", steps: int = 2) -> Trajectory:
    """An attempt at a task with a seed of its own: nothing, half or all of its tests pass."""
    taken = [_step(at, f"{phase} {task} {sample} {at}", sample) for at in range(steps)]
    verdict = Verdict.RESOLVED if value == 1 else Verdict.UNRESOLVED
    report = make_report(verdict, fixed=(2 if value == 1 else 1 if value else 0, 2))
    report = report.model_copy(update={"hidden": Tally(passed=int(value > 0), total=1)})
    patch = f"--- a/src.py\n+++ b/src.py\n@@ -0,0 +1 @@\n+{phase} {task} {value} {sample}\n"
    one = make_trajectory(sample, task_id=f"demo-{task}", phase=phase, steps=taken, report=report, patch=patch)
    gate = "solved" if value == 1 else "partial" if value else "failed"
    reward = make_reward(value, gate=gate, steps=-0.01 * steps if value else 0.0)
    return one.model_copy(update={"reward": reward, "policy": PolicyRef(spec="openai:model", version="1")})


def _step(index: int, text: str, seed: int) -> Step:
    action = Action(tool="list_files", arguments={"path": text})
    message = Message(role="assistant", content=text)
    return make_step(index).model_copy(update={"action": action, "message": message, "sampling": Sampling(seed=seed)})


def opened(folder: Path, values: tuple[float, ...], *, tasks: int = 6) -> RunDirectory:
    """A run of a round in which these are the rewards of each task's samples, in turn."""
    run = RunDirectory.open_for_writing(folder / "run", make_manifest(command="loop"))
    run.objects.write_tree({})
    run.keep_tasks([make_task(f"demo-{at}") for at in range(tasks)])
    for task in range(tasks):
        for sample, value in enumerate(values):
            run.append(attempt(task, sample, value))
    return run


def watch(run: RunDirectory, *, pause: bool = True, go_on: bool = False) -> Alarms:
    return Alarms(run, DiagnoseSettings(), AlarmSettings(pause=pause), go_on=go_on)


def test_nothing_broken_is_kept_as_a_gate_that_was_passed(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    gate = watch(run).after("round-1")
    assert gate.passed, gate.checklist.verdict
    assert [kept.place for kept in run.gates()] == ["round-1"]


def test_something_broken_pauses_with_what_it_is_and_how_to_go_on(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.0))
    with pytest.raises(PausedError, match="Paused after round-1: process signal") as raised:
        watch(run).after("round-1")
    assert "--go-on" in raised.value.mend
    assert "12 at 0" in raised.value.why
    assert [kept.passed for kept in run.gates()] == [False]


def test_alarms_that_only_tell_do_not_pause_but_gates_do(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.0))
    assert not watch(run, pause=False).after("round-1").passed
    with pytest.raises(PausedError):
        watch(run, pause=False).after("stage-1", stop=True)


def test_going_on_passes_what_was_said_and_pauses_at_what_is_new(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.0))
    with pytest.raises(PausedError):
        watch(run).after("round-1")
    again = watch(run, go_on=True)
    assert again.after("round-1").passed
    lost = attempt(0, 9, 0.0).model_copy(update={"final_patch": None})
    run.append(lost)
    with pytest.raises(PausedError, match="complete"):
        again.after("round-2", [lost])


def test_the_same_verdict_at_the_same_place_is_kept_once(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 0.3, 1.0))
    for _ in range(2):
        watch(run).after("round-1")
    assert len(run.gates()) == 1


def report(gap: float) -> StepReport:
    return StepReport(
        rows=1, trained_tokens=1, total_tokens=1, read_tokens=1, loss=0.1, gradient_norm=1.0, mean_logprob=-1.0,
        sampler_gap=gap, seconds=0.1,
    )  # fmt: skip


def test_a_step_that_goes_too_far_pauses_the_update(tmp_path: Path) -> None:
    run = opened(tmp_path, (0.0, 1.0))
    alarm = watch(run).steps("round-1", imitation=False)
    alarm(1, report(0.0))
    alarm(2, report(0.3))
    with pytest.raises(PausedError, match="round-1, step 3: step size"):
        alarm(3, report(1.8))
    again = watch(run, go_on=True).steps("round-1", imitation=False)
    again(3, report(0.0))
    again(4, report(1.8))


def test_a_round_of_a_thousand_attempts_is_looked_at_in_well_under_a_second(tmp_path: Path) -> None:
    """No timing is asserted beyond a wide bound: the attempts are read once, and what is known is not read again."""
    run = opened(tmp_path, (0.0, 0.3, 1.0), tasks=5)
    alarms = watch(run)
    alarms.after("round-1")
    values = (0.0, 0.3, 1.0)
    more = [attempt(at // 200, at % 200, values[at % 3], phase="round-2") for at in range(1000)]
    for one in more:
        run.append(one)
    began = time.process_time()
    alarms.after("round-2", more)
    assert time.process_time() - began < 5
