"""Rejection sampling: the rule decides, its record stays, and what is chosen is whole."""

from pathlib import Path

from patchgym.records import Action, Trajectory, Verdict
from patchgym.store import RunDirectory
from patchgym.traces.selecting import AcceptanceRule, Selection, select
from tests.records_for_tests import make_manifest, make_report, make_step, make_trajectory


def solved(sample: int, steps: int, reward: float = 1.0, verdict: Verdict = Verdict.RESOLVED) -> Trajectory:
    """A trajectory whose actions are its own."""
    made = [make_step(index) for index in range(steps)]
    made[0] = made[0].model_copy(update={"action": Action(tool="read_file", arguments={"path": f"{sample}.py"})})
    return make_trajectory(sample, report=make_report(verdict), reward=reward, steps=made)


def chosen(folder: Path, rule: AcceptanceRule, *made: Trajectory) -> tuple[Selection, RunDirectory]:
    old = RunDirectory.open_for_writing(folder / "old", make_manifest())
    empty = old.objects.write_tree({})
    for one in made:
        states = {"state_before": empty, "state_after": empty}
        steps = tuple(step.model_copy(update=states) for step in one.steps)
        old.append(one.model_copy(update={"steps": steps, "final_state": empty}))
    old.close()
    new = RunDirectory.open_for_writing(folder / "new", make_manifest())
    found = select([RunDirectory.read(folder / "old")], new, rule)
    new.close()
    return found, RunDirectory.read(folder / "new")


def test_only_solutions_are_accepted_and_the_shortest_come_first(tmp_path: Path) -> None:
    made = [solved(0, 3), solved(1, 1), solved(2, 2, verdict=Verdict.UNRESOLVED)]
    found, new = chosen(tmp_path, AcceptanceRule(), *made)
    assert new.ids == found.accepted == [made[1].id, made[0].id]
    assert found.refused == {"verdict": 1}


def test_of_a_task_no_more_than_asked_for(tmp_path: Path) -> None:
    made = [solved(0, 3, 0.9), solved(1, 2, 0.8), solved(2, 4, 1.0)]
    found, _ = chosen(tmp_path, AcceptanceRule(per_task=1, prefer="reward"), *made)
    assert found.accepted == [made[2].id]
    assert found.refused == {"enough_of_its_task": 2}


def test_the_same_actions_are_taken_once(tmp_path: Path) -> None:
    first = solved(0, 2)
    again = solved(1, 2).model_copy(update={"steps": first.steps})
    found, _ = chosen(tmp_path, AcceptanceRule(), first, again)
    assert found.refused == {"the_same_actions": 1}


def test_a_reward_or_a_length_can_be_asked_for(tmp_path: Path) -> None:
    made = [solved(0, 1, 0.5), solved(1, 3), solved(2, 2)]
    found, _ = chosen(tmp_path, AcceptanceRule(min_reward=0.9, most_steps=2), *made)
    assert len(found.accepted) == 1
    assert found.refused == {"reward": 1, "too_long": 1}


def test_what_is_chosen_brings_its_states(tmp_path: Path) -> None:
    _, new = chosen(tmp_path, AcceptanceRule(), solved(0, 1))
    (one,) = new.trajectories
    assert new.objects.entries(str(one.final_state)) == {}
