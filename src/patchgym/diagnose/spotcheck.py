"""Does the reward mean what a person means? Attempts of high and of low reward, shown blind, and how labels agree.

The person sees what was asked, what the agent did and the patch; no reward, no verdict, no report, no name that tells
them. Items come in an order that the seed shuffles. Agreement is Cohen's kappa of "solved" by the person and "high" by
the reward.
"""

import hashlib
import math
import random
from collections.abc import Iterable, Mapping, Sequence
from statistics import NormalDist
from typing import Literal

from patchgym.errors import DataError
from patchgym.records import Record, Trajectory

Answer = Literal["yes", "no", "unsure"]
"""Whether the attempt solves its task, honestly."""

EACH = 30
"""How many of high and how many of low reward are shown."""

_LEVEL = 0.95


class BlindStep(Record):
    """One turn, as the agent and its tools wrote it."""

    said: str
    action: str
    shown: str


class Item(Record):
    """An attempt without anything that tells its reward."""

    id: str
    """Says nothing of the trajectory to whoever does not have the run."""
    instruction: str
    """What was asked; empty where the run does not hold the task."""
    steps: tuple[BlindStep, ...]
    patch: str


class Label(Record):
    """A person's answer to one item; one JSON line each."""

    item: str
    label: Answer
    notes: str = ""


class Chosen(Record):
    """What is shown, and what it is (which whoever labels must not see)."""

    items: tuple[Item, ...]
    """In the order in which they are shown."""
    trajectories: dict[str, str]
    """The trajectory's id, by the item's."""
    rewards: dict[str, float]
    """Its reward, likewise."""
    high: tuple[str, ...]
    """The items of high reward; all others are of low."""
    wanted: int
    """How many were asked for; there are fewer where the run has no more with a reward."""


class Difference(Record):
    """An attempt of which the reward and the person say other things."""

    item: str
    trajectory: str
    reward: float
    label: Answer
    notes: str
    distance: float
    """Between the reward and the label as a number (yes is 1)."""


class Agreed(Record):
    """How far the reward and the person agree."""

    labelled: int
    unsure: int
    """Left out of what follows."""
    high_yes: int
    high_no: int
    low_yes: int
    low_no: int
    agreement: float | None
    """The share of sure labels that the reward agrees with."""
    kappa: float | None
    """Cohen's kappa: agreement beyond chance, over the most that it could be. None where both say one thing of all."""
    low: float | None
    """The ends of its 95% interval: Wilson's interval of the agreement, carried over with chance agreement as it is."""
    high: float | None
    differences: tuple[Difference, ...]
    """The worst first."""


def choose(
    trajectories: Iterable[Trajectory], instructions: Mapping[str, str], *, each: int = EACH, seed: int = 0
) -> Chosen:
    """The ``each`` highest and lowest rewarded attempts; those of equal reward in an order drawn by ``seed``, and never
    one attempt on both sides. ``instructions`` are the tasks', by their id.

    Raises:
        DataError: fewer than two attempts have a reward that may be trusted.
    """
    dice = random.Random(seed)
    rewarded = [
        (one.reward.value, one)
        for one in trajectories
        if one.reward is not None and one.reward.value is not None and one.reward_trusted
    ]
    if len(rewarded) < 2:
        raise DataError(
            f"{len(rewarded)} attempts have a reward: there is nothing to compare",
            mend="Give a run with graded trajectories.",
        )
    dice.shuffle(rewarded)
    rewarded.sort(key=lambda pair: pair[0])
    size = min(each, len(rewarded) // 2)
    low, high = rewarded[:size], rewarded[len(rewarded) - size :]
    pairs = [(item_id(one, seed), value, one) for value, one in (*low, *high)]
    top = tuple(item for item, _, _ in pairs[size:])
    dice.shuffle(pairs)
    return Chosen(
        items=tuple(_blind(item, one, instructions.get(one.task_id, "")) for item, _, one in pairs),
        trajectories={item: one.id for item, _, one in pairs},
        rewards={item: value for item, value, _ in pairs},
        high=tuple(sorted(top)),
        wanted=2 * each,
    )


def item_id(trajectory: Trajectory, seed: int) -> str:
    """The name of an attempt in a spot check: the same whenever it is made again with the seed."""
    return hashlib.sha256(f"{seed}/{trajectory.id}".encode()).hexdigest()[:12]


def agreed(chosen: Chosen, labels: Sequence[Label]) -> Agreed:
    """Compare labels with rewards. Of several labels of one item the last one counts.

    Raises:
        DataError: a label is of an item that was not shown.
    """
    last = {label.item: label for label in labels}
    strange = sorted(last.keys() - chosen.trajectories.keys())
    if strange:
        raise DataError(
            f"There is no item {strange[0]}",
            why="It was labelled, but not among what was chosen.",
            mend="Use one seed.",
        )
    high = set(chosen.high)
    counts = {(side, answer): 0 for side in (True, False) for answer in ("yes", "no", "unsure")}
    differences = []
    for item, label in last.items():
        counts[item in high, label.label] += 1
        if label.label != "unsure" and (label.label == "yes") != (item in high):
            differences.append(
                Difference(
                    item=item,
                    trajectory=chosen.trajectories[item],
                    reward=chosen.rewards[item],
                    label=label.label,
                    notes=label.notes,
                    distance=abs(chosen.rewards[item] - (label.label == "yes")),
                )
            )
    table = (counts[True, "yes"], counts[True, "no"], counts[False, "yes"], counts[False, "no"])
    share = (table[0] + table[3]) / sum(table) if sum(table) else None
    kappa, ends = cohen_kappa(*table)
    return Agreed(
        labelled=len(last),
        unsure=counts[True, "unsure"] + counts[False, "unsure"],
        high_yes=table[0],
        high_no=table[1],
        low_yes=table[2],
        low_no=table[3],
        agreement=share,
        kappa=kappa,
        low=ends[0],
        high=ends[1],
        differences=tuple(sorted(differences, key=lambda one: (-one.distance, one.trajectory))),
    )


def cohen_kappa(
    high_yes: int, high_no: int, low_yes: int, low_no: int
) -> tuple[float | None, tuple[float | None, float | None]]:
    """Kappa of a two by two table (Cohen, 1960) with its 95% interval; None where it is not defined: of no labels, and
    where chance alone would agree on all."""
    total = high_yes + high_no + low_yes + low_no
    if not total:
        return None, (None, None)
    observed = (high_yes + low_no) / total
    chance = ((high_yes + high_no) * (high_yes + low_yes) + (low_yes + low_no) * (high_no + low_no)) / total**2
    if chance == 1:
        return None, (None, None)
    low, high = _wilson(observed, total)
    return (observed - chance) / (1 - chance), ((low - chance) / (1 - chance), (high - chance) / (1 - chance))


def _wilson(share: float, total: int) -> tuple[float, float]:
    z = NormalDist().inv_cdf((1 + _LEVEL) / 2)
    middle = (share + z * z / (2 * total)) / (1 + z * z / total)
    half = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / (1 + z * z / total)
    return middle - half, min(1.0, middle + half)


def _blind(item: str, one: Trajectory, instruction: str) -> Item:
    return Item(
        id=item,
        instruction=instruction,
        steps=tuple(
            BlindStep(
                said=step.message.content,
                action=step.action.model_dump_json(exclude={"call_id"}) if step.action is not None else "",
                shown=step.observation.shown if step.observation is not None else "",
            )
            for step in one.steps
        ),
        patch=one.final_patch or "",
    )
