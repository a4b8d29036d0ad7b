"""Each cause is found where it is planted, and named first where it comes first."""

import asyncio
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from patchgym.diagnose import RewardJudgement, judge_rewards
from patchgym.diagnose.regrade import graded_again, to_regrade
from patchgym.grading import Grader
from patchgym.records import Finding, Outcome, Reward, Task, Term, Trajectory, Verdict
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.reward.attempts_for_tests import rewarded
from tests.workshop import calc_task, here, sandboxes

FLAKY = """

import random


def test_far_above():
    assert clamp(1000, -3, 7) == 7
    assert random.SystemRandom().random() < 0.5
"""


def made(task: int, sample: int, fixed: int, *, turns: int = 1, total: int = 4) -> Trajectory:
    verdict = Verdict.RESOLVED if fixed == total else Verdict.UNRESOLVED
    one = rewarded(sample, verdict, fixed=(fixed, total), turns=turns, task_id=f"task-{task}")
    return one.model_copy(update={"final_patch": f"patch {task} {fixed} {sample}"})


def some(tasks: int, samples: int, kinds: Sequence[int], seed: int = 0) -> list[Trajectory]:
    dice = random.Random(seed)
    return [
        made(task, sample, dice.choice(list(kinds)), turns=dice.randint(1, 12))
        for task in range(tasks)
        for sample in range(samples)
    ]


def finding(judged: RewardJudgement, check: str) -> Finding:
    return next(found for found in judged.findings if found.check == check)


def up(judged: RewardJudgement) -> list[str]:
    return [found.check for found in judged.findings if found.status == "broken"]


def collected(folder: Path, policy: str, samples: int) -> list[Trajectory]:
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    try:
        task = calc_task(run.objects)
        with sandboxes(run.objects, folder) as factory:
            collector = Collector(run, factory, here, RewardSettings(), 7)
            source = open_policy(policy, PolicyOptions())
            phase = Phase("rollout", [task], samples)
            return asyncio.run(collector.collect(phase, source, RolloutSettings(concurrency=2)))
    finally:
        run.close()


@pytest.mark.slow
def test_a_real_run_in_which_everybody_solves_has_no_process_signal(tmp_path: Path) -> None:
    judged = judge_rewards(collected(tmp_path, "gold", 10))
    assert judged.alarm
    assert judged.verdict.startswith("Do not train on these rewards yet: process signal.")
    assert "harder" in judged.verdict
    assert finding(judged, "grading").status == "ok"


@pytest.mark.slow
def test_a_real_run_in_which_nobody_does_anything_wants_easier_tasks(tmp_path: Path) -> None:
    judged = judge_rewards(collected(tmp_path, "noop", 10))
    assert up(judged) == ["process signal"]
    assert "easier" in judged.verdict


@pytest.mark.parametrize(("tasks", "most"), [(10, "26%"), (100, "3%")], ids=["20", "200"])
def test_all_at_the_extremes_is_said_with_what_the_sample_still_allows(tasks: int, most: str) -> None:
    judged = judge_rewards(some(tasks, 2, (0, 4)))
    assert "process signal" in up(judged)
    assert most in finding(judged, "process signal").evidence


def test_a_few_tasks_that_are_solved_or_not_are_too_little_to_tell_however_often_they_are_tried() -> None:
    judged = judge_rewards(some(6, 5, (0, 4)))
    found = finding(judged, "process signal")
    assert found.status == "unknown"
    assert "at 6 tasks: too little to tell, 10 tasks would be enough" in found.evidence
    assert not judged.alarm


def test_parts_that_are_not_paid_are_found_however_few_the_tasks() -> None:
    found = [made(task, sample, 4 * sample) for task in range(5) for sample in range(2)]
    part = made(0, 0, 2)
    assert part.reward is not None
    unpaid = part.model_copy(update={"reward": Reward(value=0.0, gate="failed", terms={})})
    judged = judge_rewards([unpaid, *found[1:]])
    assert up(judged) == ["process signal"]
    assert "1 attempts mend a part of their tests and get nothing for it" in judged.verdict


def test_a_few_flat_groups_are_too_little_to_tell_and_more_of_the_same_are_enough() -> None:
    def judged(groups: int) -> Finding:
        flat = [made(task, sample, 2) for task in range(groups - groups // 6) for sample in range(2)]
        varied = [made(100 + task, sample, 4 * sample) for task in range(groups // 6) for sample in range(2)]
        return finding(judge_rewards([*flat, *varied]), "groups")

    few = judged(6)
    assert few.status == "unknown"
    enough = int(few.evidence.partition("too little to tell, ")[2].partition(" ")[0])
    assert judged(6 * -(-enough // 6)).status == "broken"


@pytest.mark.parametrize("tasks", [3, 50], ids=["12", "200"])
def test_rewards_that_tell_attempts_apart_can_be_trained_on(tasks: int) -> None:
    judged = judge_rewards(some(tasks, 4, (0, 1, 2, 3, 4)))
    assert (judged.alarm, judged.enough) == (False, True)
    assert judged.verdict == "These rewards can be trained on."


def test_tasks_with_one_failing_test_are_named_as_the_cause() -> None:
    found = [made(task, sample, (task + sample) % 2, total=1) for task in range(6) for sample in range(2)]
    assert "Every task has one failing test" in judge_rewards(found).verdict


def test_too_few_samples_raise_no_alarm_and_say_so() -> None:
    judged = judge_rewards(some(2, 2, (0, 4)))
    assert (judged.alarm, judged.enough) == (False, False)
    assert judged.verdict.startswith("Too few samples to say")


def test_one_patch_with_two_verdicts_is_an_unstable_environment_and_comes_first() -> None:
    found = some(10, 2, (0, 4))
    solved, failed = made(0, 0, 4), made(0, 1, 0)
    assert failed.report is not None
    tests = failed.report.model_copy(update={"tests": {"t.py::a": Outcome.FAILED}})
    apart = failed.model_copy(update={"final_patch": solved.final_patch, "report": tests})
    judged = judge_rewards([solved, apart, *found[2:]])
    assert up(judged)[0] == "grading"
    assert "environment of task-0 is not stable" in judged.verdict
    assert "1 tests differ, first t.py::a" in finding(judged, "grading").evidence


@pytest.mark.slow
def test_grading_again_finds_a_flaky_test_and_splits_the_variance(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    try:
        task = flaky(calc_task(run.objects), run)
        with sandboxes(run.objects, tmp_path) as factory:
            collector = Collector(run, factory, here, RewardSettings(), 7)
            source = open_policy("gold", PolicyOptions())
            found = asyncio.run(collector.collect(Phase("rollout", [task], 3), source, RolloutSettings(concurrency=2)))
            chosen = to_regrade(found, 5)
            grader = Grader(factory, run.objects, here)
            again = [
                grading for _ in range(5) for grading in asyncio.run(graded_again(grader, {task.id: task}, chosen))
            ]
    finally:
        run.close()
    judged = judge_rewards(found, again)
    assert (len(chosen), len(again)) == (1, 10)
    assert "grading" in up(judged)
    assert judged.variance.grading is not None
    assert judged.variance.grading > 0
    assert "test_far_above" in finding(judged, "grading").evidence


def flaky(task: Task, run: RunDirectory) -> Task:
    """The task with a hidden test that fails every other time."""
    whole = run.objects.get(task.tests.hidden_files["tests/test_calc.py"]).decode()
    text = whole[: whole.index("\n\ndef test_far_above")] + FLAKY
    blob = run.objects.put(text.encode())
    tests = task.tests.model_copy(update={"hidden_files": {"tests/test_calc.py": blob}})
    return task.model_copy(update={"tests": tests})


def test_patches_to_grade_again_go_turn_by_turn_through_the_tasks() -> None:
    found = [made(task, sample, 4 - sample) for task in range(2) for sample in range(3)]
    chosen = to_regrade([*found, found[0].model_copy(update={"id": "the same patch"})], 4)
    assert [one.id for one in chosen] == [found[0].id, found[3].id, found[1].id, found[4].id]


def test_groups_without_variance_are_an_alarm_above_the_share() -> None:
    flat = [made(task, sample, 2) for task in range(9) for sample in range(2)]
    varied = [made(9, 0, 4), made(9, 1, 0)]
    judged = judge_rewards([*flat, *varied])
    assert up(judged) == ["groups"]
    assert "9 of 10 groups have no variance" in finding(judged, "groups").evidence


def planted(found: Sequence[Trajectory], style: Sequence[float], gate: str = "partial") -> list[Trajectory]:
    """The trajectories with rewards from elsewhere: their first layer and a term of this size, never gated."""
    out = []
    for one, value in zip(found, style, strict=True):
        assert one.reward is not None
        first = one.reward.value or 0.0
        terms = {
            "outcome": Term(raw=first, weight=1.0, value=first, why="", layer="outcome"),
            "style": Term(raw=value, weight=1.0, value=value, why="", layer="quality"),
        }
        out.append(one.model_copy(update={"reward": Reward(value=first + value, gate=gate, terms=terms)}))
    return out


def test_rewards_that_differ_by_style_where_all_failed_are_phantom_advantages() -> None:
    found = [made(task, sample, 2) for task in range(6) for sample in range(2)]
    judged = judge_rewards(planted(found, [0.01 * (place % 2) for place in range(12)]))
    assert "phantom advantages" in up(judged)


def test_a_term_above_half_of_the_variance_dominates() -> None:
    found = [made(task, sample, (2, 3)[sample]) for task in range(6) for sample in range(2)]
    judged = judge_rewards(planted(found, [0.4 * (place % 2) for place in range(12)]))
    assert up(judged) == ["terms"]
    assert "trained for style" in judged.verdict


def test_an_exploding_term_is_named() -> None:
    found = some(6, 2, (0, 2, 4))
    judged = judge_rewards(planted(found, [50.0, *[0.0] * 11]))
    assert "by style" in finding(judged, "bounds").evidence
    assert up(judged)[0] == "bounds"


def test_every_finding_states_its_threshold() -> None:
    assert all(found.threshold for found in judge_rewards(some(6, 2, (0, 2, 4))).findings)


def test_what_is_not_scored_is_counted_and_no_failure() -> None:
    lost = [one.model_copy(update={"report": None, "reward": None}) for one in some(3, 2, (0,))]
    judged = judge_rewards([*some(6, 2, (0, 2, 4)), *lost])
    assert "6 not (6 lost to infrastructure)" in finding(judged, "samples").evidence
