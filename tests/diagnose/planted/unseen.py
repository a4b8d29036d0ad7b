"""Further faults, written when the checks stood: nothing was tuned on them."""

from collections.abc import Mapping
from pathlib import Path

from patchgym.content import Entry, ObjectStore
from patchgym.records import Task, Trajectory
from patchgym.rollout import PolicyOptions, open_policy
from tests.diagnose.planted.drawn import Drawn
from tests.diagnose.planted.faults import Bases, Fault
from tests.diagnose.planted.kit import TRAIN, make_task
from tests.diagnose.planted.made import Part, make_run, rewrite

MIXED = {"whole": 0.2, "half": 0.4, "nothing": 0.4}


def _readable(path: Path, bases: Bases) -> Path:
    """The hidden tests lie in a folder of the workspace."""

    def change(task: Task, objects: ObjectStore) -> Task:
        text = objects.get(next(iter(task.tests.hidden_files.values())))
        kept = {"docs/old_tests.py": Entry(0o100644, objects.put(text))}
        return task.model_copy(update={"workspace": objects.update_tree(task.workspace, kept)})

    return make_run(path, [Part(tasks=TRAIN[:1], samples=2)], change=change)


def _other_version(path: Path, bases: Bases) -> Path:
    """A held-out task of the same functions, with one of the bugs mended already."""

    def change(task: Task, objects: ObjectStore) -> Task:
        if "again" not in task.id:
            return task
        other = make_task(objects, "words", sparse=True)
        return other.model_copy(update={"id": "words-later", "split": "heldout"})

    return make_run(path, [Part(tasks=["words", "words_again"], samples=2)], change=change)


def _tight(path: Path, bases: Bases) -> Path:
    """Two turns, in which nobody can hand in two edits."""

    def change(task: Task, objects: ObjectStore) -> Task:
        return task.model_copy(update={"limits": task.limits.model_copy(update={"turns": 2})})

    gold = open_policy("gold", PolicyOptions())
    return make_run(path, [Part(tasks=TRAIN[:2], samples=1, source=gold)], change=change)


def _swapped(path: Path, bases: Bases) -> Path:
    """The final state that is written down is that of the attempt before."""
    last: list[str | None] = []

    def change(one: Trajectory) -> list[Trajectory]:
        other = last[-1] if last else one.final_state
        last.append(one.final_state)
        return [one.model_copy(update={"final_state": other})]

    return rewrite(bases.rollout, path, change)


def _rounds(path: Path, *sources: Drawn) -> Path:
    parts = [Part(f"round-{at}", source, TRAIN[:2], 4) for at, source in enumerate(sources, start=1)]
    return make_run(path, parts, command="loop")


def _swinging(path: Path, bases: Bases) -> Path:
    good, bad = {"whole": 0.9, "half": 0.1}, {"nothing": 0.8, "half": 0.2}
    return _rounds(path, *(Drawn(bad if at % 2 else good, version=f"drawn-{at}") for at in range(1, 5)))


def _weakened(path: Path, bases: Bases) -> Path:
    """It solves the task, and makes the tests demand nothing on the way."""
    source = Drawn({"marked": 0.6, "half": 0.2, "nothing": 0.2})
    return make_run(path, [Part(tasks=TRAIN[:3], samples=4, source=source)])


def _late_chatter(path: Path, bases: Bases) -> Path:
    """Only the newest round has lost the format."""
    return _rounds(path, Drawn(MIXED), Drawn({"chatter": 0.9, "half": 0.1}, version="drawn-2"))


def _repeating(path: Path, bases: Bases) -> Path:
    """Every sample of a task does the same in the second round."""
    return _rounds(path, Drawn(MIXED), Drawn(MIXED, same=True, version="drawn-2"))


UNSEEN: Mapping[str, Fault] = {
    "readable-hidden-tests": Fault("leaks", "hidden tests lie in the workspace", _readable),
    "other-version": Fault("split", "a held-out task is another version of a training task", _other_version),
    "tight-limits": Fault("solvable", "too few turns for any solution", _tight),
    "swapped-states": Fault("states", "final states are those of other attempts", _swapped),
    "swinging-reward": Fault("reward trend", "every update undoes the one before", _swinging),
    "weakened-tests": Fault("hacks", "tests are made to demand nothing", _weakened),
    "late-chatter": Fault("protocol", "the newest round has lost the format", _late_chatter),
    "repeating": Fault("diversity", "all samples of a task do the same after an update", _repeating),
}
"""By name."""
