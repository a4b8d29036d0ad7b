"""Tree search: nothing is run twice, the record is whole, and every strategy keeps its budget."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from patchgym.agent import Conversation, EpisodeSettings, Surroundings
from patchgym.cli.drawing import drawn
from patchgym.content import ObjectStore
from patchgym.policy.scripted import ScriptedPolicy
from patchgym.records import Leaf, Reward, Sampling, StopReason, Tree, sibling_labels
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.rollout.strategies import STRATEGIES, Node, SearchSettings, credit
from patchgym.store import RunDirectory
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here, sandboxes


def searched(folder: Path, search: SearchSettings, policy: str = "noisy:0.6") -> Tree:
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    try:
        task = calc_task(run.objects)
        with sandboxes(run.objects, folder) as factory:
            collector = Collector(run, factory, here, RewardSettings(), 7)
            source = open_policy(policy, PolicyOptions())
            (tree,) = asyncio.run(collector.search(Phase("s", [task], 1), source, RolloutSettings(), search))
            return tree
    finally:
        run.close()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_tree_is_whole_and_its_paths_are_trajectories(tmp_path: Path, strategy: str) -> None:
    tree = searched(tmp_path, SearchSettings.model_validate({"strategy": strategy, "nodes": 24}))
    assert len(tree.nodes) == 24
    objects = RunDirectory.read(tmp_path / "run").objects
    for index, node in enumerate(tree.nodes):
        parent = node.step.parent
        assert node.step.index == index
        assert parent is None or (parent < index and tree.nodes[parent].step.state_after == node.step.state_before)
        assert objects.entries(str(node.step.state_after))
    run = RunDirectory.read(tmp_path / "run")
    finished = [leaf for leaf in tree.leaves if leaf.stop is not None]
    assert len(list(run.trajectories)) == len(run.ids) == len(finished)
    for trajectory, leaf in zip(run.trajectories, finished, strict=True):
        assert trajectory.final_state == leaf.final_state == trajectory.steps[-1].state_after
        assert run.trajectory(trajectory.id) == trajectory
        assert leaf.report is not None


def test_branches_share_a_beginning_and_go_apart(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=20, branches=2, strategy="beam", merge=False))
    roots = [node.step for node in tree.nodes if node.step.parent is None]
    assert len(roots) == 2
    assert len({step.message.content for step in roots}) == 2
    assert all(sum(node.step.parent == index for node in tree.nodes) <= 2 for index in range(20))


def test_a_search_goes_on_from_where_more_tests_pass(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=40), policy="noisy:0.5")
    solved = [leaf for leaf in tree.leaves if leaf.report is not None and leaf.report.verdict == "resolved"]
    assert solved
    assert tree.nodes[tree.path(solved[0])[-1].index].value == 1.0


def test_a_path_that_leads_where_another_led_is_cut_off(tmp_path: Path) -> None:
    script = tmp_path / "same.json"
    script.write_text('{"*": [{"tool": "list_files"}, {"tool": "list_files"}]}')
    tree = searched(tmp_path, SearchSettings(nodes=9, branches=2), policy=f"scripted:{script}")
    assert [node.pruned for node in tree.nodes[:3]].count("duplicate_state") >= 1
    cut = [index for index, node in enumerate(tree.nodes) if node.pruned]
    assert not any(node.step.parent in cut for node in tree.nodes)


def test_branching_only_where_it_is_asked_for(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=20, branches=3, branch_at=(1,), strategy="beam", merge=False))
    depth: dict[int | None, int] = {None: -1}
    for index, node in enumerate(tree.nodes):
        depth[index] = depth[node.step.parent] + 1
    children = {index: sum(node.step.parent == index for node in tree.nodes) for index in range(20)}
    assert sum(node.step.parent is None for node in tree.nodes) == 1
    assert children[0] == 3
    assert all(count <= 1 for index, count in children.items() if depth[index] > 0)


def test_a_tree_is_drawn_with_its_states_and_ends(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=16))
    lines = drawn(tree)
    assert len(lines) == 17
    assert "16 steps" in lines[0]
    assert any("state 1" in line for line in lines)


def test_a_search_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    first = searched(tmp_path, SearchSettings(nodes=6))
    assert searched(tmp_path, SearchSettings(nodes=6)) == first


def node(value: float | None = None, parent: Node | None = None, tried: int = 0) -> Node:
    around = Surroundings.__new__(Surroundings)
    conversation = Conversation(around, "", ())
    made = Node(conversation, parent.depth + 1 if parent else 0, parent, value=value, tried=tried)
    if parent is not None:
        parent.children.append(made)
    return made


def test_best_first_takes_the_highest_value_and_of_equal_ones_the_deepest() -> None:
    root = node(0.2)
    low, high = node(0.1, root), node(0.5, root)
    deep = node(0.5, high)
    assert STRATEGIES["best_first"](root, SearchSettings()) is deep
    deep.stop = StopReason.SUBMITTED
    assert STRATEGIES["best_first"](root, SearchSettings()) is high
    high.tried = root.tried = 3
    assert STRATEGIES["best_first"](root, SearchSettings()) is low


def test_the_beam_keeps_the_best_of_a_depth() -> None:
    root = node(0.0, tried=3)
    for value in (0.1, 0.9, 0.5):
        node(value, root)
    found = []
    while (chosen := STRATEGIES["beam"](root, SearchSettings(width=2, branches=3))) is not None:
        chosen.tried += 1
        found.append(chosen.value)
    assert found == [0.9] * 3 + [0.5] * 3


def test_uct_prefers_what_was_worth_more_until_it_was_seen_often() -> None:
    root = node(0.0, tried=2)
    good, poor = node(1.0, root), node(0.0, root)
    for _ in range(2):
        credit(good, 1.0)
        credit(poor, 0.0)
    settings = SearchSettings(branches=2, exploration=0.5)
    assert STRATEGIES["uct"](root, settings) is good
    for _ in range(200):
        credit(good, 0.0)
    assert STRATEGIES["uct"](root, settings) is poor


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from(sorted(STRATEGIES)))
def test_every_strategy_ends(values: list[float], strategy: str) -> None:
    root = node(0.0)
    settings = SearchSettings(branches=2)
    for value in values:
        chosen = STRATEGIES[strategy](root, settings)
        assert chosen is not None
        chosen.tried += 1
        child = node(value, chosen)
        credit(child, value)
    for at in root.walk():
        at.tried = 2
    assert STRATEGIES[strategy](root, settings) is None


def test_siblings_are_compared_by_the_leaves_below_them(tmp_path: Path) -> None:
    tree = searched(tmp_path, SearchSettings(nodes=30, branches=2, strategy="beam", merge=False), policy="noisy:0.3")
    leaves = tuple(
        Leaf(
            node=leaf.node,
            stop=StopReason.SUBMITTED,
            final_state="",
            final_patch="",
            reward=Reward(value=float(place % 2), gate="", terms={}),
        )
        for place, leaf in enumerate(tree.leaves)
    )
    labels = sibling_labels(tree.model_copy(update={"leaves": leaves}))
    assert labels
    by_parent: dict[int | None, list[float]] = {}
    for label in labels:
        by_parent.setdefault(tree.nodes[label.node].step.parent, []).append(label.advantage * label.leaves)
    assert all(abs(sum(weighted)) < 1e-9 for weighted in by_parent.values())


def test_an_episode_that_repeats_itself_is_ended_where_that_is_asked_for(tmp_path: Path) -> None:
    run = RunDirectory.open_for_writing(tmp_path / "run", make_manifest())
    task = calc_task(run.objects)
    script = tmp_path / "loop.json"
    script.write_text('{"*": [' + ", ".join(['{"tool": "list_files"}'] * 8) + "]}")
    with sandboxes(run.objects, tmp_path) as factory:
        collector = Collector(run, factory, here, RewardSettings(), 7)
        source = open_policy(f"scripted:{script}", PolicyOptions())
        settings = RolloutSettings(hopeless_after=3)
        (trajectory,) = asyncio.run(collector.collect(Phase("r", [task], 1), source, settings))
    run.close()
    assert (trajectory.stop, len(trajectory.steps)) == (StopReason.HOPELESS_LOOP, 3)


def test_a_forked_conversation_goes_on_by_itself(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path)
    view = calc_task(objects).view()
    around = Surroundings(view, ScriptedPolicy([], "s"), objects, EpisodeSettings(Sampling()))
    first = Conversation.begun(around)
    second = first.forked()
    second.messages.append(second.pending[0])
    assert first.messages == []
