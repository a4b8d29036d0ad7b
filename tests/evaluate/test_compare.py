"""Two evaluations against each other: paired by task, refused or noted where they do not belong together."""

import pytest

from patchgym.errors import UsageError
from patchgym.evaluate import Comparison, EvalReport, FailureType, compare, evaluate
from patchgym.records import Sampling, Verdict
from tests.records_for_tests import make_report, make_step, make_task, make_trajectory


def evaluation(
    outcomes: dict[str, list[bool]],
    *,
    steps: int = 1,
    hashed: str = "0" * 64,
    temperature: float = 1.0,
    version: str = "a",
) -> EvalReport:
    found = []
    for task, row in outcomes.items():
        for sample, solved in enumerate(row):
            made = make_trajectory(
                sample,
                task_id=task,
                report=make_report(Verdict.RESOLVED if solved else Verdict.UNRESOLVED),
                reward=float(solved),
                patch="",
                steps=[
                    make_step(index).model_copy(update={"sampling": Sampling(temperature=temperature)})
                    for index in range(steps)
                ],
            )
            policy = made.policy.model_copy(update={"version": version})
            found.append(made.model_copy(update={"task_hash": hashed, "policy": policy}))
    return evaluate(found, [make_task(task) for task in outcomes])


def compared(before: EvalReport, after: EvalReport) -> Comparison:
    return compare(before, after, ("old", "new"))


EIGHT = [f"t{number}" for number in range(8)]


def test_a_difference_is_called_one_where_interval_and_exact_test_agree() -> None:
    found = compared(
        evaluation({task: [False] for task in EIGHT}), evaluation({task: [True] for task in EIGHT}, version="b")
    )
    assert found.difference.value == 1.0
    assert found.p_value == 2 / 2**8
    assert found.verdict.startswith("new solves more: +100.0 points")
    assert (found.better, found.worse) == (tuple(EIGHT), ())


def test_a_worse_policy_is_named_as_such() -> None:
    found = compared(evaluation({task: [True] for task in EIGHT}), evaluation({task: [False] for task in EIGHT}))
    assert found.verdict.startswith("old solves more: -100.0 points")


def test_what_few_tasks_show_is_called_no_difference() -> None:
    before = {task: [False] for task in EIGHT}
    after = {**before, "t0": [True], "t1": [True], "t2": [True]}
    found = compared(evaluation(before), evaluation(after, version="b"))
    assert found.verdict.startswith("No difference shows: +37.5 points")
    assert any("Only 3 tasks came out otherwise" in note for note in found.notes)


def test_an_interval_without_0_is_not_enough_where_the_exact_test_says_chance() -> None:
    before = {task: [False] for task in EIGHT}
    after = {**before, **{task: [True] for task in EIGHT[:5]}}
    found = compared(evaluation(before), evaluation(after, version="b"))
    assert found.difference.low > 0
    assert found.p_value == 2 / 2**5
    assert found.verdict.startswith("No difference shows")


def test_the_same_evaluation_does_not_differ_from_itself() -> None:
    report = evaluation({task: [number % 2 == 0, True] for number, task in enumerate(EIGHT)})
    found = compared(report, report)
    assert (found.difference.value, found.p_value, found.better, found.worse) == (0.0, 1.0, (), ())
    assert any("the same version of the policy" in note for note in found.notes)


def test_only_tasks_in_common_count_and_the_others_are_told() -> None:
    found = compared(
        evaluation({"a": [True], "b": [False], "c": [True]}), evaluation({"b": [True], "c": [True], "d": [True]})
    )
    assert (found.tasks, found.only_before, found.only_after) == (2, 1, 1)
    assert (found.pass_at_1_before.value, found.pass_at_1_after.value) == (0.5, 1.0)
    assert any("1 and 1 more are on one side alone" in note for note in found.notes)


def test_disjoint_tasks_are_refused() -> None:
    with pytest.raises(UsageError, match="no task in common"):
        compared(evaluation({"a": [True]}), evaluation({"b": [True]}))


def test_a_task_of_the_same_id_and_another_content_is_left_out() -> None:
    before, after = evaluation({"a": [True], "b": [True]}), evaluation({"a": [True]}, hashed="1" * 64)
    both = after.model_copy(
        update={"solved": {**after.solved, "b": (False,)}, "task_hashes": {**after.task_hashes, "b": "0" * 64}}
    )
    found = compared(before, both)
    assert (found.changed, found.tasks, found.difference.value) == (("a",), 1, -1.0)
    with pytest.raises(UsageError, match="no task in common") as refused:
        compared(before, after)
    assert "another content" in refused.value.why


def test_an_evaluation_that_was_lost_whole_is_refused_by_its_name() -> None:
    lost = evaluate([make_trajectory(task_id="a")], [make_task("a")])
    with pytest.raises(UsageError, match="new has no valid attempt"):
        compared(evaluation({"a": [True]}), lost)


def test_settings_that_differ_are_named() -> None:
    found = compared(evaluation({"a": [True]}), evaluation({"a": [True]}, temperature=0.0))
    assert found.differing == {"temperature": (("1",), ("0",))}
    assert any("sampling temperature: 1 and 0" in note for note in found.notes)


def test_another_grader_is_said_to_be_able_to_make_the_difference() -> None:
    before = evaluation({"a": [True]})
    after = before.model_copy(update={"conditions": {**before.conditions, "grader": ("3",)}})
    assert any("grader: test and 3; a difference may be due to that" in note for note in compared(before, after).notes)


def test_steps_are_paired_by_task() -> None:
    found = compared(evaluation({"a": [True], "b": [False]}, steps=3), evaluation({"a": [True], "b": [False]}, steps=5))
    assert found.steps is not None
    assert (found.steps.value, found.steps.low, found.steps.high) == (2.0, 2.0, 2.0)


def test_the_shift_of_failures_is_counted_on_the_tasks_in_common() -> None:
    found = compared(evaluation({"a": [False, False], "x": [False]}), evaluation({"a": [True, False]}))
    assert found.failures == {FailureType.GAVE_UP: (2, 1)}


def test_a_comparison_reads_itself_back() -> None:
    found = compared(evaluation({"a": [True], "b": [False]}), evaluation({"a": [True], "b": [True]}))
    assert Comparison.from_line(found.to_line()) == found
