"""Rewards become advantages: who counts, who does not, and nothing goes missing on the way."""

import pytest

from patchgym.records import (
    Action,
    Leaf,
    PolicyRef,
    Reward,
    Step,
    StepTokens,
    StopReason,
    Timing,
    Trajectory,
    Tree,
    TreeNode,
)
from patchgym.train import PolicyGradientSettings, Reason, RowSet
from patchgym.train.groups import policy_gradient_rows, updates_behind
from tests.records_for_tests import make_reward, make_step
from tests.train.tiny import graded, rewarded

pytestmark = pytest.mark.train


def steps(prompt: int = 2) -> list[Step]:
    made = StepTokens(prompt_ids=(1,) * prompt, sampled_ids=(3,), logprobs=(-1.0,), mask=(1,))
    return [make_step(0, tokens=made)]


def advantages(rows: RowSet) -> dict[str, float]:
    """The one advantage of each row whose ids all have the same."""
    found = {}
    for row in rows.rows:
        assert row.advantages is not None
        (found[row.trajectory_id],) = {value for value, bit in zip(row.advantages, row.trainable, strict=True) if bit}
    return found


def made(*trajectories: Trajectory, **settings: object) -> RowSet:
    return policy_gradient_rows(trajectories, PolicyGradientSettings.model_validate({"max_row_tokens": 20, **settings}))


def test_advantages_are_relative_to_the_group() -> None:
    first = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    second = [graded(steps(), reward, at, "h") for at, reward in enumerate((0.3, 0.0, 0.0))]
    rows = made(*first, *second)
    assert advantages(rows) == pytest.approx({"g.0": 0.5, "g.1": -0.5, "h.0": 0.2, "h.1": -0.1, "h.2": -0.1})
    assert (rows.groups, rows.zero_variance_groups) == (2, 0)


def test_infrastructure_failures_shift_nobodys_baseline() -> None:
    sound = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    lost = graded(steps(), None, 2)
    unscored = rewarded(graded(steps(), 0.0, 3), reward=None)
    rows = made(*sound, lost, unscored)
    assert advantages(rows) == {"g.0": 0.5, "g.1": -0.5}
    assert rows.left_out == {Reason.NOT_TRUSTED: 1, Reason.NOT_SCORED: 1}


def test_who_may_not_enter_the_baseline_is_trained_against_it() -> None:
    sound = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0))]
    apart = rewarded(graded(steps(), 0.0, 2), in_baseline=False)
    assert advantages(made(*sound, apart)) == {"g.0": 0.5, "g.1": -0.5, "g.2": -0.5}


def test_rewards_are_settled_in_their_group_before_they_are_compared() -> None:
    def shaped(first: float, gate: str, style: float, at: int, group: str) -> Trajectory:
        reward = make_reward(first, gate=gate, steps=style)
        return graded(steps(), 0.0, at, group).model_copy(update={"reward": reward})

    solved = [shaped(1.0, "solved", style, at, "g") for at, style in enumerate((-0.04, 0.0))]
    partial = [shaped(0.3, "partial", style, at, "h") for at, style in enumerate((-0.04, 0.0))]
    rows = made(*solved, *partial)
    assert advantages(rows) == pytest.approx({"g.0": -0.02, "g.1": 0.02})
    assert rows.left_out == {Reason.ZERO_VARIANCE: 2}


def test_an_over_long_member_stays_in_the_baseline() -> None:
    rows = made(graded(steps(), 1.0, 0), graded(steps(prompt=99), 0.0, 1))
    assert advantages(rows) == {"g.0": 0.5}
    assert rows.left_out == {Reason.TOO_LONG: 1}


def test_groups_without_signal_are_counted() -> None:
    flat = [graded(steps(), 0.1 + 0.2, 0), graded(steps(), 0.3, 1)]
    alone = [graded(steps(), 1.0, 0, "alone"), graded(steps(), None, 1, "alone")]
    mixed = [graded(steps(), reward, at, "mixed") for at, reward in enumerate((1.0, 0.0, 0.5))]
    rows = made(*flat, *alone, *mixed)
    assert advantages(rows) == {"mixed.0": 0.5, "mixed.1": -0.5}
    assert rows.left_out == {
        Reason.ZERO_VARIANCE: 2,
        Reason.SMALL_GROUP: 1,
        Reason.NOT_TRUSTED: 1,
        Reason.ZERO_ADVANTAGE: 1,
    }
    assert (rows.groups, rows.zero_variance_groups) == (3, 1)
    assert rows.flat_groups == ("g",)


def test_advantages_can_be_divided_by_the_groups_deviation_or_leave_one_out() -> None:
    group = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0, 0.5))]
    assert advantages(made(*group, divide_by_std=True)) == pytest.approx({"g.0": 1.0, "g.1": -1.0}, abs=1e-4)
    assert advantages(made(*group, algorithm="rloo")) == pytest.approx({"g.0": 0.75, "g.1": -0.75})


def test_a_group_below_the_least_size_is_left_out() -> None:
    group = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.0, 0.5))]
    outside = rewarded(graded(steps(), 0.0, 3), in_baseline=False)
    assert made(*group, outside, min_group=4).left_out == {Reason.SMALL_GROUP: 4}
    assert len(made(*group, outside, min_group=3).rows) == 3


def test_a_group_that_differs_only_by_style_does_not_carry_a_step_of_its_own() -> None:
    style = [graded(steps(), reward, at) for at, reward in enumerate((1.0, 0.95))]
    outcome = [graded(steps(), reward, at, "h") for at, reward in enumerate((0.06, 0.0))]
    rows = made(*style, *outcome, algorithm="grpo")
    assert set(advantages(rows)) == {"h.0", "h.1"}
    assert rows.left_out == {Reason.SMALL_SPREAD: 2}
    assert (rows.flat_groups, rows.zero_variance_groups) == (("g",), 0)
    assert len(made(*style).rows) == 2  # not divided by a deviation, it weighs what it is worth
    assert made(*style, *outcome, min_spread=0.2).left_out == {Reason.SMALL_SPREAD: 4}


@pytest.mark.parametrize("stop", ["turn_limit", "token_limit", "time_limit", "context_limit"])
def test_a_row_that_a_limit_cut_off_is_masked_where_asked_and_stays_in_the_baseline(stop: str) -> None:
    cut = rewarded(graded(steps(), 0.0, 1), stop=StopReason(stop))
    group = [graded(steps(), 1.0, 0), cut]
    assert advantages(made(*group)) == {"g.0": 0.5, "g.1": -0.5}
    masked = made(*group, mask_overlong=True)
    assert (advantages(masked), masked.left_out) == ({"g.0": 0.5}, {Reason.OVERLONG: 1})


def test_rows_of_versions_too_far_behind_are_left_out() -> None:
    def by(version: str, sample: int, reward: float) -> Trajectory:
        changed = [step.model_copy(update={"policy_version": version}) for step in steps()]
        return graded(changed, reward, sample)

    group = [by("base@0f", 0, 1.0), by("grpo-3-0123abcd", 1, 0.0), by("sft-4-0123abcd", 2, 0.2)]

    def kept(most: int | None) -> set[str]:
        settings = PolicyGradientSettings(max_row_tokens=20, max_staleness=most)
        rows = policy_gradient_rows(group, settings, updates=4)
        assert rows.left_out[Reason.STALE] == 3 - len(rows.rows)
        return {row.trajectory_id for row in rows.rows}

    assert (kept(None), kept(4)) == ({"g.0", "g.1", "g.2"}, {"g.0", "g.1", "g.2"})
    assert (kept(3), kept(1), kept(0)) == ({"g.1", "g.2"}, {"g.1", "g.2"}, {"g.2"})


def test_the_step_of_a_version_is_read_from_its_name() -> None:
    names = "dr_grpo-12-0123abcd", "grpo-2-0123abcd@fp_1", "smollm2@0123abcd", "qwen-7b", None
    assert [updates_behind(name, 12) for name in names] == [0, 10, 12, 12, 12]


def test_a_learned_baseline_needs_no_group() -> None:
    rows = made(graded(steps(), 0.25, 0), graded(steps(), None, 1), algorithm="ppo")
    (row,) = rows.rows
    assert (row.reward, set(row.advantages or ())) == (0.25, {0.0})


def turn(index: int, parent: int | None = None) -> Step:
    tokens = StepTokens(prompt_ids=(1, 1), sampled_ids=(3,), logprobs=(-1.0,), mask=(1,))
    return make_step(index, tokens=tokens).model_copy(update={"parent": parent})


def by_turn(rows: RowSet) -> dict[str, dict[int, float]]:
    return {
        row.trajectory_id: {
            at: value for at, value, bit in zip(row.turns, row.advantages or (), row.trainable, strict=True) if bit
        }
        for row in rows.rows
    }


def fork() -> Tree:
    """A trunk (0), two branches below it (1 and 4), and a fork in the first (2 and 3); 5 goes on from 4."""
    parents = (None, 0, 1, 1, 0, 4)
    rewards = {2: 1.0, 3: 0.0, 5: 0.2}
    leaves = (
        Leaf(
            node=node,
            stop=StopReason.SUBMITTED,
            final_state="",
            final_patch="",
            reward=Reward(value=reward, gate="", terms={}),
        )
        for node, reward in rewards.items()
    )
    return Tree(
        id="tree",
        phase="p",
        task_id="t",
        task_hash="0",
        policy=PolicyRef(spec="s", version="v"),
        sandbox="namespace",
        search={},
        nodes=tuple(TreeNode(step=turn(at, parent)) for at, parent in enumerate(parents)),
        leaves=tuple(leaves),
        timing=Timing(),
    )


def test_steps_are_compared_with_their_siblings_down_to_the_next_fork() -> None:
    tree = fork()
    settings = PolicyGradientSettings(baseline="siblings")
    rows = policy_gradient_rows(tree.trajectories(), settings, trees=[tree])
    # All leaves: mean 0.4. Below 1: mean 0.5; below 4: 0.2, which 5 carries on. Below 1 they split into 1 and 0.
    assert by_turn(rows) == {
        "tree.0": pytest.approx({0: 0.0, 1: 0.1, 2: 0.5}),
        "tree.1": pytest.approx({0: 0.0, 1: 0.1, 3: -0.5}),
        "tree.2": pytest.approx({0: 0.0, 4: -0.2, 5: -0.2}),
    }


def test_a_leaf_that_may_not_enter_the_baseline_shifts_no_siblings() -> None:
    tree = fork()
    paths = [one.model_copy(update={"in_baseline": one.id != "tree.1"}) for one in tree.trajectories()]
    rows = policy_gradient_rows(paths, PolicyGradientSettings(baseline="siblings"), trees=[tree])
    # Below 1 only the leaf of 2 counts: it has no sibling left to be compared with, and carries on what 1 has.
    assert by_turn(rows)["tree.0"] == pytest.approx({0: 0.0, 1: 0.4, 2: 0.4})
    assert by_turn(rows)["tree.2"] == pytest.approx({0: 0.0, 4: -0.4, 5: -0.4})


def test_without_its_tree_a_path_has_no_siblings() -> None:
    rows = policy_gradient_rows(fork().trajectories(), PolicyGradientSettings(baseline="siblings"))
    assert (rows.rows, rows.left_out) == ((), {Reason.NO_TREE: 3})


def test_process_credits_move_the_steps_of_a_trajectory_apart() -> None:
    def worked(reward: float, sample: int, *, wasteful: bool) -> Trajectory:
        commands = ("true", "true" if wasteful else "false")
        said = [Action(tool="run_command", arguments={"command": command}) for command in commands]
        first, second = turn(0), turn(1, 0)
        acted = [step.model_copy(update={"action": one}) for step, one in zip((first, second), said, strict=True)]
        return graded(acted, reward, sample)

    group = worked(1.0, 0, wasteful=True), worked(0.0, 1, wasteful=False)
    whole = by_turn(made(*group))
    assert whole == {"g.0": {0: 0.5, 1: 0.5}, "g.1": {0: -0.5, 1: -0.5}}
    moved = by_turn(made(*group, step_credit=0.5))
    # Only the repetition costs; 0.005 of bound * tanh(0.05), of which a quarter is the mean over four steps.
    assert moved["g.0"][1] == pytest.approx(0.5 - 0.005 * 3 / 4, abs=1e-5)
    assert moved["g.0"][0] == moved["g.1"][0] + 1 == pytest.approx(0.5 + 0.005 / 4, abs=1e-5)


def test_key_files_pay_where_they_are_known() -> None:
    def read(sample: int, reward: float) -> Trajectory:
        action = Action(tool="read_file", arguments={"path": "a.py" if sample == 0 else "b.py"})
        return graded([turn(0).model_copy(update={"action": action})], reward, sample)

    group = [read(0, 1.0), read(1, 0.0)]
    settings = PolicyGradientSettings(step_credit=0.5)
    plain = by_turn(policy_gradient_rows(group, settings))
    paid = by_turn(policy_gradient_rows(group, settings, key_files={"g": ("a.py",)}))
    assert paid["g.0"][0] > plain["g.0"][0] == 0.5


def test_a_row_names_the_version_of_every_turn() -> None:
    first, second = turn(0), turn(1, 0).model_copy(update={"policy_version": "dr_grpo-1-0123abcd"})
    rows = made(graded([first, second], 1.0, 0), graded(steps(), 0.0, 1))
    assert rows.rows[0].versions == ((0, "test"), (1, "dr_grpo-1-0123abcd"))


def test_a_row_that_fails_the_integrity_check_is_named_with_its_turn() -> None:
    wrong = turn(1, 0)
    assert wrong.tokens is not None
    wrong = wrong.model_copy(update={"tokens": wrong.tokens.model_copy(update={"logprobs": (0.5,)})})
    rows = made(graded([turn(0), wrong], 1.0, 0), graded(steps(), 0.0, 1))
    (mismatch,) = rows.mismatches
    assert (mismatch.trajectory, mismatch.turn, mismatch.reason) == ("g.0", 1, Reason.BAD_LOGPROBS)
    assert "0.5" in mismatch.why
    assert set(advantages(rows)) == {"g.1"}
