"""An evaluation of trajectories: what counts, what does not, and what is said of it."""

import pytest

from patchgym.errors import DataError
from patchgym.evaluate import EvalReport, FailureType, evaluate
from patchgym.records import Fault, StopReason, Timing, Trajectory, Usage, Verdict
from tests.records_for_tests import make_report, make_step, make_task, make_trajectory

TASKS = [make_task(f"demo-{number}") for number in range(1, 5)]


def attempt(task: int, sample: int = 0, *, solved: bool = False, steps: int = 1) -> Trajectory:
    report = make_report(Verdict.RESOLVED if solved else Verdict.UNRESOLVED)
    made = [make_step(index) for index in range(steps)]
    return make_trajectory(sample, task_id=f"demo-{task}", report=report, reward=float(solved), steps=made, patch="")


def test_an_infrastructure_failure_is_in_no_denominator() -> None:
    lost = make_trajectory(1, task_id="demo-1")
    report = evaluate([attempt(1, solved=True), lost], TASKS)
    assert (report.infra_failures, report.failures) == (1, {FailureType.INFRASTRUCTURE: 1})
    assert report.pass_at_1 is not None
    assert report.pass_at_1.value == 1.0
    assert report.mean_steps == 1.0


def test_an_evaluation_that_infrastructure_lost_whole_measures_nothing() -> None:
    report = evaluate([make_trajectory(task_id="demo-1"), make_trajectory(task_id="demo-2")], TASKS)
    assert (report.tasks, report.trajectories, report.infra_failures) == (2, 2, 2)
    unknown = (report.pass_at_1, report.mean_steps, report.mean_reward, report.steps, report.power, report.stability)
    assert unknown == (None,) * 6
    assert report.pass_at_k == {}
    assert report.notes[0] == "No attempt is valid: nothing was measured."


def test_an_evaluation_of_nothing_measures_nothing() -> None:
    report = evaluate([], [])
    assert (report.tasks, report.pass_at_1, report.valid_action_rate) == (0, None, None)
    assert report.notes == ("There is no attempt.",)


def test_one_task_has_an_interval_that_says_how_little_it_says() -> None:
    report = evaluate([attempt(1, solved=True)], TASKS)
    assert report.pass_at_1 is not None
    assert [report.pass_at_1.low, report.pass_at_1.high] == pytest.approx([0.025, 1.0])
    assert any("Fewer than 30 tasks" in note for note in report.notes)


def test_an_attempt_that_nobody_graded_is_told_apart_from_one_that_was_lost() -> None:
    imported = attempt(1).model_copy(update={"report": None, "reward": None})
    report = evaluate([imported, attempt(2, solved=True)], TASKS)
    assert (report.ungraded, report.infra_failures, report.failures) == (1, 0, {})
    assert report.pass_at_1 is not None
    assert report.pass_at_1.tasks == 1
    assert [one.solved for one in report.attempts] == [None, True]


def test_time_that_a_slow_endpoint_used_up_is_not_the_policys() -> None:
    slow = Timing(total_seconds=900, sampling_seconds=800, acting_seconds=10)
    update = {"stop": StopReason.TIME_LIMIT, "timing": slow}
    failed, solved = attempt(1).model_copy(update=update), attempt(2, solved=True).model_copy(update=update)
    report = evaluate([failed, solved, attempt(3)], TASKS)
    assert report.timeouts == {"endpoint": 2}
    assert report.infra_failures == 2  # the solved one as well: to leave out failures alone would flatter the policy
    assert report.solved == {"demo-3": (False,)}


def test_time_that_the_policys_own_commands_used_up_is_its_failure() -> None:
    own = Timing(total_seconds=900, sampling_seconds=10, acting_seconds=800)
    step = make_step()
    assert step.observation is not None
    slow = step.model_copy(update={"observation": step.observation.model_copy(update={"seconds": 790.0})})
    update = {"stop": StopReason.TIME_LIMIT, "timing": own, "steps": (slow,)}
    report = evaluate([attempt(1).model_copy(update=update)], TASKS)
    assert report.timeouts == {"policy": 1}
    assert report.failures == {FailureType.TIMEOUT: 1}


def test_time_that_the_machine_did_not_give_to_the_tests_is_not_the_policys() -> None:
    graded = make_report(Verdict.INFRA_ERROR).model_copy(update={"timeout_of": "machine"})
    one = attempt(1).model_copy(
        update={"report": graded, "faults": (Fault(kind="SandboxError", where="grading", message="slow"),)}
    )
    report = evaluate([one], TASKS)
    assert report.timeouts == {"machine": 1}
    assert report.infra_failures == 1


def test_what_no_step_says_of_tokens_is_not_0() -> None:
    known = attempt(1, steps=2)
    unknown = attempt(2).model_copy(update={"steps": (make_step().model_copy(update={"usage": None}),)})
    report = evaluate([known, unknown], TASKS)
    assert report.mean_tokens == 4.0
    assert [one.tokens for one in report.attempts] == [4, None]
    assert evaluate([unknown], TASKS).mean_tokens is None


def test_tokens_of_an_answer_with_several_calls_count_once() -> None:
    first = make_step().model_copy(update={"usage": Usage(prompt_tokens=3, sampled_tokens=40)})
    second = make_step(1).model_copy(update={"usage": None, "continues": True})
    report = evaluate([attempt(1).model_copy(update={"steps": (first, second)})], TASKS)
    assert report.mean_tokens == 40.0


def test_the_mean_of_steps_has_an_interval_by_tasks() -> None:
    found = [attempt(1, sample, steps=2) for sample in range(3)] + [attempt(2, sample, steps=8) for sample in range(3)]
    report = evaluate([*found, attempt(3, solved=True, steps=5)], TASKS)
    assert report.steps is not None
    assert report.steps.value == report.mean_steps == pytest.approx(35 / 7)
    assert (report.steps.low, report.steps.high, report.steps.tasks) == (2.0, 8.0, 3)


def test_steps_to_a_solution_are_of_solved_attempts_alone() -> None:
    report = evaluate([attempt(1, steps=9), attempt(2, solved=True, steps=3), attempt(3, solved=True, steps=5)], TASKS)
    assert report.steps_to_solve is not None
    assert report.steps_to_solve.value == 4.0


def test_every_pass_at_k_is_told() -> None:
    report = evaluate([attempt(1, sample, solved=sample == 0) for sample in range(3)], TASKS)
    assert report.pass_at_k == {1: pytest.approx(1 / 3), 2: pytest.approx(2 / 3), 3: 1.0}
    assert [one.k for one in report.pass_at] == [1, 2, 3]


def test_a_frozen_policy_has_one_version() -> None:
    first, other = attempt(1), attempt(2)
    other = other.model_copy(update={"policy": other.policy.model_copy(update={"version": "later"})})
    assert any("2 policy versions" in note for note in evaluate([first, other], TASKS).notes)


def test_paths_of_one_tree_are_not_taken_for_independent_samples() -> None:
    paths = [attempt(1, sample, solved=True).model_copy(update={"tree_id": "tree"}) for sample in range(4)]
    report = evaluate(paths, TASKS)
    assert (list(report.pass_at_k), report.stability) == ([1], None)
    assert any("search trees" in note for note in report.notes)


def test_the_order_of_attempts_does_not_matter() -> None:
    found = [attempt(task, sample, solved=(task + sample) % 2 == 0) for task in (1, 2, 3) for sample in (0, 1)]
    assert evaluate(found, TASKS) == evaluate(found[::-1], TASKS)


def test_a_report_reads_itself_back() -> None:
    report = evaluate([attempt(1, solved=True), attempt(1, 1), attempt(2), make_trajectory(task_id="demo-3")], TASKS)
    assert EvalReport.from_line(report.to_line()) == report


def test_a_report_of_another_version_is_refused() -> None:
    line = evaluate([], []).to_line().replace('"schema_version":1', '"schema_version":99')
    with pytest.raises(DataError, match="schema version 99"):
        EvalReport.from_line(line)


def test_what_was_measured_under_is_told_from_the_attempts() -> None:
    report = evaluate([attempt(1)], TASKS)
    assert report.conditions["temperature"] == ("1",)
    assert report.conditions["sandbox"] == ("namespace",)
    assert "format" not in report.conditions
    assert report.task_hashes == {"demo-1": "0" * 64}


def test_repeats_tell_their_spread_and_the_tasks_that_flip() -> None:
    outcomes = {1: (True, True), 2: (True, False), 3: (False, False), 4: (True, False)}
    found = [attempt(task, sample, solved=row[sample]) for task, row in outcomes.items() for sample in (0, 1)]
    stable = evaluate(found, TASKS).stability
    assert stable is not None
    assert (stable.repeats, stable.tasks, stable.pass_at_1, stable.spread) == (2, 4, (0.75, 0.25), 0.5)
    assert stable.flipping == ("demo-2", "demo-4")
    assert stable.alike == 0.5
    # Within tasks the variance is 1/2 for the two that flip (unbiased), 1/4 in the mean; of a mean of 4 tasks 1/16.
    assert stable.expected_deviation == pytest.approx(0.25)


def test_a_task_that_lacks_a_repeat_is_in_none() -> None:
    found = [
        attempt(1, 0, solved=True),
        attempt(1, 1, solved=True),
        attempt(2, 0),
        make_trajectory(1, task_id="demo-2"),
    ]
    stable = evaluate(found, TASKS).stability
    assert stable is not None
    assert (stable.tasks, stable.pass_at_1) == (1, (1.0, 1.0))


def test_one_sample_tells_no_stability() -> None:
    assert evaluate([attempt(1), attempt(2)], TASKS).stability is None
