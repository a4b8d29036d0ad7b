"""Labels say what became of attempts that passed through the same place."""

import pytest

from patchgym.records import Leaf, PolicyRef, StopReason, Timing, Tree, TreeNode, Verdict
from patchgym.reward.value import label_paths, outcome_of
from tests.records_for_tests import EMPTY_TREE, make_report, make_step, make_trajectory
from tests.reward.value.made import attempt, edited, ran_tests, step


def test_a_place_that_several_attempts_passed_is_labelled_by_all_of_them() -> None:
    begin = [step(0, "read_file", path="a"), edited(1, "a", "s0", "s1")]
    won = attempt(
        0, [*begin, edited(2, "a", "s1", "good"), step(3, "submit", before="good", after="good")], solved=True
    )
    lost = attempt(1, [*begin, edited(2, "a", "s1", "bad"), step(3, "submit", before="bad", after="bad")], solved=False)
    first, second = label_paths([won, lost])
    assert first.labels == (0.5, 0.5, 1.0, 1.0)
    assert second.labels == (0.5, 0.5, 0.0, 0.0)
    assert first.counts == (2, 2, 1, 1)
    assert first.source == "group"


def test_the_same_state_at_a_much_later_turn_is_another_place() -> None:
    slow = attempt(0, [step(at, "read_file", path=str(at)) for at in range(10)], solved=False)
    quick = attempt(1, [step(0), edited(1, "a", "s0", "s1"), step(2, "submit", before="s1", after="s1")], solved=True)
    labels = label_paths([slow, quick])[0].labels
    assert labels[0] == 0.5
    assert labels[5:] == (0.0,) * 5


def test_where_an_attempt_ends_nobody_goes_on() -> None:
    gives_up = attempt(0, [step(0), step(1, "submit")], solved=False)
    goes_on = attempt(1, [step(0), step(1), edited(2, "a", "s0", "s1")], solved=True)
    assert label_paths([gives_up, goes_on])[0].labels == (0.5, 0.0)


def test_attempts_of_other_groups_do_not_count() -> None:
    one = attempt(0, [step(0), step(1)], solved=True, task="a")
    other = attempt(0, [step(0), step(1)], solved=False, task="b")
    assert [path.labels for path in label_paths([one, other])] == [(1.0, 1.0), (0.0, 0.0)]


def test_an_attempt_whose_states_are_not_recorded_has_its_own_outcome() -> None:
    blind = [step(at, before=None, after=None) for at in range(2)]
    paths = label_paths([attempt(0, blind, solved=True), attempt(1, blind, solved=False)])
    assert [path.labels for path in paths] == [(1.0, 1.0), (0.0, 0.0)]
    assert {path.source for path in paths} == {"outcome"}


def test_own_outcomes_alone_can_be_asked_for() -> None:
    both = [attempt(at, [step(0), step(1)], solved=at == 0) for at in range(2)]
    assert [path.labels for path in label_paths(both, own_outcome=True)] == [(1.0, 1.0), (0.0, 0.0)]


@pytest.mark.parametrize("verdict", [Verdict.INFRA_ERROR, Verdict.ABSTAINED])
def test_what_grading_could_not_tell_is_no_label(verdict: Verdict) -> None:
    unclear = make_trajectory(0, steps=[make_step()], report=make_report(verdict), reward=0.0)
    assert outcome_of(unclear) is None
    assert label_paths([unclear, make_trajectory(1, steps=[make_step()])]) == []


def test_a_reward_that_is_not_trusted_is_no_label() -> None:
    lost = attempt(0, [step(0)], solved=True).model_copy(update={"reward_trusted": False})
    assert outcome_of(lost) is None


def test_a_tampered_attempt_is_not_solved() -> None:
    assert outcome_of(make_trajectory(0, report=make_report(Verdict.TAMPERED), reward=0.0)) == 0.0


def forked() -> Tree:
    """A root step, from which one branch solves the task and two do not; one path was cut off."""
    parents = [None, 0, 0, 0, 0]
    nodes = tuple(
        TreeNode(step=ran_tests(at, passing=0, failing=1).model_copy(update={"parent": parent}))
        for at, parent in enumerate(parents)
    )
    verdicts = [Verdict.RESOLVED, Verdict.UNRESOLVED, Verdict.UNRESOLVED]
    leaves = [
        Leaf(
            node=at + 1,
            stop=StopReason.SUBMITTED,
            final_state=EMPTY_TREE,
            final_patch="",
            report=make_report(verdict),
        )
        for at, verdict in enumerate(verdicts)
    ]
    cut_off = Leaf(node=4, stop=None, final_state=EMPTY_TREE, final_patch="")
    return Tree(
        id="tree",
        phase="s",
        task_id="demo-1",
        task_hash="0",
        policy=PolicyRef(spec="noisy", version="noisy"),
        sandbox="namespace",
        search={},
        nodes=nodes,
        leaves=(*leaves, cut_off),
        timing=Timing(),
    )


def test_a_step_of_a_tree_is_labelled_by_the_finished_leaves_below_it() -> None:
    paths = label_paths([], [forked()])
    assert paths[0].labels == (1 / 3, 1.0)
    assert paths[0].counts == (3, 1)
    assert {path.source for path in paths} == {"tree"}


def test_a_step_that_paths_share_is_learned_from_once() -> None:
    labels = [path.labels for path in label_paths([], [forked()])]
    assert [label[0] is None for label in labels] == [False, True, True]


def test_paths_of_trees_among_the_trajectories_are_not_labelled_twice() -> None:
    tree = forked()
    assert len(label_paths(tree.trajectories(), [tree])) == 3
