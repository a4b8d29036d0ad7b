"""Each term measures one thing, and says nothing where nothing was measured."""

import pytest

from patchgym.records import Outcome, Quality, Step, Tally, Verdict
from patchgym.reward import Attempt, RewardSettings, TermWeights, score
from patchgym.reward.terms import TERMS, names
from tests.records_for_tests import make_report, make_step, make_task
from tests.reward.attempts_for_tests import call, facts, make_attempt

READ = {"path": "src/calc.py"}


def raw(name: str, attempt: Attempt) -> float | None:
    measured = TERMS[name].measure(attempt)
    return measured.raw if measured is not None else None


def cost(name: str, attempt: Attempt) -> float:
    measured = TERMS[name].measure(attempt)
    assert measured is not None
    assert measured.why
    return measured.cost


def test_every_term_of_the_second_layer_has_a_weight_and_no_other() -> None:
    assert {name for name, kind in TERMS.items() if kind.layer != "told"} == set(TermWeights.model_fields)


def test_visible_and_hidden_tests_are_told_apart() -> None:
    report = make_report(fixed=(3, 5)).model_copy(update={"hidden": Tally(passed=0, total=2)})
    assert (raw("visible_fixed", make_attempt(report)), raw("hidden_fixed", make_attempt(report))) == (1.0, 0.0)


def test_the_share_of_tests_kept() -> None:
    assert raw("kept", make_attempt(make_report(kept=(3, 4)))) == 0.75


def test_a_skipped_test_is_not_kept_and_not_failing_either() -> None:
    tests = {"a": Outcome.SKIPPED, "b": Outcome.FAILED, "c": Outcome.PASSED}
    report = make_report(kept=(1, 3)).model_copy(update={"tests": tests})
    attempt = make_attempt(report, task=facts(pass_to_pass=("a", "b", "c")))
    assert (raw("new_failing", attempt), raw("kept", attempt)) == (1, 1 / 3)


@pytest.mark.parametrize("name", ["visible_fixed", "hidden_fixed", "kept", "new_failing"])
def test_without_a_test_run_nothing_is_said_of_tests(name: str) -> None:
    assert raw(name, make_attempt(make_report(Verdict.INVALID).model_copy(update={"tests": {}}))) is None


def test_turns_cost_by_the_share_of_the_limit() -> None:
    attempt = make_attempt(steps=[make_step(index) for index in range(3)])
    assert (raw("steps", attempt), cost("steps", attempt)) == (3, 0.25)


def test_tokens_are_counted_once_for_a_message_with_two_calls() -> None:
    first, second = call(0, "a", {}, sampled=40), call(1, "b", {}, sampled=40).model_copy(update={"continues": True})
    attempt = make_attempt(steps=[first, second])
    assert (raw("tokens", attempt), cost("tokens", attempt)) == (40, 0.4)


def test_tokens_that_one_step_does_not_tell_are_not_measured() -> None:
    untold = make_step(1).model_copy(update={"usage": None})
    assert raw("tokens", make_attempt(steps=[make_step(0), untold])) is None


@pytest.mark.parametrize(
    ("wasted", "why"),
    [
        (make_step(1, readable=False), "1 invalid"),
        (call(1, "read_file", {"path": "b"}, ok=False), "1 invalid"),
        (call(1, "read_file", READ), "1 repeated"),
        (call(1, "write_file", {"path": "b", "content": ""}), "1 edits without effect"),
    ],
)
def test_a_wasted_call_is_counted_by_its_kind(wasted: Step, why: str) -> None:
    measured = TERMS["tool_effectiveness"].measure(make_attempt(steps=[call(0, "read_file", READ), wasted]))
    assert measured is not None
    assert measured.raw == 0.5
    assert why in measured.why


def test_the_same_call_in_another_state_is_no_repetition() -> None:
    steps = [call(0, "run_tests", {}), call(1, "run_tests", {}, before="b", after="b")]
    assert raw("tool_effectiveness", make_attempt(steps=steps)) == 1.0


def test_a_log_that_does_not_tell_whether_calls_could_be_done_has_no_effectiveness() -> None:
    assert raw("tool_effectiveness", make_attempt(steps=[call(0, "Bash", {"command": "ls"}, ok=None)])) is None


def test_a_patch_as_large_as_the_gold_one_costs_nothing() -> None:
    assert (cost("patch_size", make_attempt(lines=2)), cost("patch_size", make_attempt(lines=12))) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"path": "src/calc.py"}, True),
        ({"path": "./src/calc.py"}, True),
        ({"file_path": "/testbed/src/calc.py"}, True),
        ({"command": "sed -n '1,9p' src/calc.py | head"}, True),
        ({"command": "cat tests/src/calc.py"}, False),
        ({"command": "cat src/calc.pyc"}, False),
        ({"pattern": "calc"}, False),
        ({"start": 1}, False),
    ],
)
def test_a_call_names_a_file_by_its_whole_path(arguments: dict[str, str | int], named: bool) -> None:
    assert names(dict(arguments), "src/calc.py") is named


def test_a_key_file_is_read_where_the_call_could_be_done() -> None:
    assert raw("key_files_read", make_attempt(steps=[call(0, "read_file", READ)])) == 1.0
    assert raw("key_files_read", make_attempt(steps=[call(0, "read_file", READ, ok=False)])) == 0.0


def test_a_key_file_is_edited_where_the_patch_touches_it() -> None:
    assert raw("key_files_edited", make_attempt(touched=("src/calc.py", "x"))) == 1.0
    assert raw("key_files_edited", make_attempt(touched=("x",))) == 0.0


def test_what_is_not_known_of_the_patch_gives_no_term() -> None:
    attempt = make_attempt(lines=None)
    assert (raw("patch_size", attempt), raw("key_files_edited", attempt)) == (None, None)


@pytest.mark.parametrize("quality", [None, Quality()])
def test_quality_that_nobody_measured_gives_no_term(quality: Quality | None) -> None:
    attempt = make_attempt(make_report().model_copy(update={"quality": quality}))
    terms = score(attempt, RewardSettings()).terms
    assert not {"compiles", "lint", "coverage"} & terms.keys()


def test_new_findings_of_the_linter_cost_up_to_five() -> None:
    reports = [make_report().model_copy(update={"quality": Quality(lint_added=count)}) for count in (0, 2, 5, 50)]
    assert [cost("lint", make_attempt(report)) for report in reports] == [0.0, 0.4, 1.0, 1.0]


def test_a_patch_that_does_not_parse_has_no_size() -> None:
    attempt = Attempt.of(make_task(), make_report(), [], "--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n")
    assert (attempt.patch, attempt.touched) == (None, None)
