"""The second layer of a group, once all of its attempts are known.

It is applied where the outcomes of the group differ, or where all of its attempts solved the task; else it is withheld.
Where everybody came to the same end short of a solution, differences in style are all that is left to learn from, and
they make advantages out of nothing: behind such a gate a published run reached a held-out exact match of 0.75, without
it 0.10.

A term counts in a group where every attempt whose first layer is above 0 has it: what was measured of some says nothing
of the others.
"""

from collections.abc import Iterable, Sequence

from patchgym.records import Reward, Term, Trajectory

SHAPING = ("efficiency", "quality")
"""The layers whose terms are the second layer."""


def first_layer(reward: Reward) -> float | None:
    """What the outcome alone is worth; of a reward that names no outcome, its value; None where it is not scored."""
    if reward.value is None:
        return None
    outcome = reward.terms.get("outcome")
    return outcome.value if outcome is not None else reward.value


def counts(trajectory: Trajectory) -> bool:
    """Whether it has a reward that may be used."""
    return trajectory.reward_trusted and trajectory.reward is not None and trajectory.reward.value is not None


def settle(trajectories: Iterable[Trajectory]) -> list[Trajectory]:
    """The trajectories in their order, each with the final reward that it has in its group. Their groups must be
    whole. Doing it again changes nothing."""
    found = list(trajectories)
    groups: dict[str, list[int]] = {}
    for place, one in enumerate(found):
        groups.setdefault(one.group_id, []).append(place)
    for places in groups.values():
        for place, settled in zip(places, settle_group([found[place] for place in places]), strict=True):
            found[place] = settled
    return found


def settled_rewards(trajectories: Iterable[Trajectory]) -> dict[str, Reward | None]:
    """The final reward of each trajectory by its id, without holding their steps in memory."""
    light = [one.model_copy(update={"steps": ()}) for one in trajectories]
    return {one.id: one.reward for one in settle(light)}


def settle_group(members: Sequence[Trajectory]) -> list[Trajectory]:
    """The members of one whole group, each with its final reward. Members without one that may be used decide nothing
    and stay as they are, and so do rewards without a second layer."""
    known = [one.reward for one in members if counts(one) and one.reward is not None]
    applied = _is_applied(known)
    above = [reward for reward in known if (first_layer(reward) or 0.0) > 0]
    common = set.intersection(*(set(reward.terms) for reward in above)) if above else set()
    return [
        one.model_copy(update={"reward": _settled(one.reward, common if applied else None)})
        if counts(one) and one.reward is not None and one.reward.second_layer is not None
        else one
        for one in members
    ]


def _is_applied(rewards: Sequence[Reward]) -> bool:
    outcomes = {first_layer(reward) for reward in rewards}
    return len(outcomes) > 1 or all(reward.gate == "solved" for reward in rewards)


def _settled(reward: Reward, common: set[str] | None) -> Reward:
    """``common`` are the terms that count, None where the layer is withheld."""
    first = first_layer(reward)
    assert first is not None
    if common is None:
        return reward.model_copy(update={"value": first, "second_layer": "withheld"})
    terms = {name: _counted(term, name in common) for name, term in reward.terms.items()}
    value = first + sum(term.value for term in terms.values() if term.layer in SHAPING)
    return reward.model_copy(update={"value": value, "terms": terms, "second_layer": "applied"})


def _counted(term: Term, counted: bool) -> Term:
    return term if counted or term.layer not in SHAPING else term.model_copy(update={"value": 0.0})
