"""One fault a run, planted in tasks, policy, settings, environment or recorder; never in a figure of the checks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.records import Reward, Task, Term, Trajectory
from patchgym.reward import first_layer
from patchgym.rollout import PolicyOptions, open_policy
from tests.diagnose.planted import updates
from tests.diagnose.planted.boxes import Failing, Lagging, Slow
from tests.diagnose.planted.drawn import Drawn
from tests.diagnose.planted.kit import HELD, TRAIN
from tests.diagnose.planted.made import EACH_GRADED, Part, make_run, rewrite
from tests.diagnose.planted.searching import drifting_value


@dataclass(frozen=True)
class Bases:
    """Runs that several others are made from: a sound one, a tiny model, and attempts of it with their ids."""

    rollout: Path
    model: Path
    cache: Path


Make = Callable[[Path, Bases], Path]


@dataclass(frozen=True)
class Fault:
    """What is planted, and the check that must be the first to find something broken. ``make`` gets the path of the run
    to make."""

    check: str
    planted: str
    make: Make


def _tasks(change: Callable[[Task, ObjectStore], Task], source: Drawn | None = None, samples: int = 2) -> Make:
    part = Part(tasks=TRAIN[:1], samples=samples, source=source or Drawn(), settings=EACH_GRADED)
    return lambda path, bases: make_run(path, [part], change=change)


def _acts(source: Drawn, names: list[str] | None = None, samples: int = 4) -> Make:
    part = Part(tasks=names or TRAIN[:2], samples=samples, source=source)
    return lambda path, bases: make_run(path, [part])


def _rounds(*sources: Drawn, names: list[str] | None = None, samples: int = 4) -> Make:
    parts = [
        Part(f"round-{number}", source, names or TRAIN[:2], samples) for number, source in enumerate(sources, start=1)
    ]
    return lambda path, bases: make_run(path, parts, command="loop")


def _recorded(change: Callable[[Trajectory], list[Trajectory]]) -> Make:
    return lambda path, bases: rewrite(bases.rollout, path, change)


def _leaking(task: Task, objects: ObjectStore) -> Task:
    told = f"{task.instruction} In halves, replace total + first by total - first in line 11."
    return task.model_copy(update={"instruction": told})


def _flaky(task: Task, objects: ObjectStore) -> Task:
    """The hidden test fails every other time."""
    return _with_first_line(task, objects, "import random; assert random.SystemRandom().random() < 0.5")


def _unsolvable(task: Task, objects: ObjectStore) -> Task:
    """The hidden test asks for something that the solution does not do."""
    return _with_first_line(task, objects, "assert 1 == 2")


def _with_first_line(task: Task, objects: ObjectStore, line: str) -> Task:
    """The task whose hidden test begins with this line."""
    (path, blob), *_ = task.tests.hidden_files.items()
    head = "def test_hidden_0():\n"
    text = objects.get(blob).decode().replace(head, f"{head}    {line}\n")
    tests = task.tests.model_copy(update={"hidden_files": {path: objects.put(text.encode())}})
    return task.model_copy(update={"tests": tests})


def _overlapping(path: Path, bases: Bases) -> Path:
    """The same bug stands on both sides, under another id."""

    def change(task: Task, objects: ObjectStore) -> Task:
        return task.model_copy(update={"split": "heldout"}) if "again" in task.id else task

    part = Part(tasks=["clamp", "clamp_again"], samples=2)
    return make_run(path, [part], change=change)


def _slow(path: Path, bases: Bases) -> Path:
    def change(task: Task, objects: ObjectStore) -> Task:
        return task.model_copy(update={"limits": task.limits.model_copy(update={"command_seconds": 2.0})})

    part = Part(tasks=TRAIN[:2], samples=2, source=Drawn({"tests": 1.0}), factory=Slow)
    return make_run(path, [part], change=change)


def _lagging(path: Path, bases: Bases) -> Path:
    return make_run(path, [Part(tasks=TRAIN[:2], samples=3, factory=Lagging, source=Drawn({"whole": 1.0}))])


def _failing(path: Path, bases: Bases) -> Path:
    return make_run(path, [Part(tasks=TRAIN[:2], samples=5, factory=Failing)])


def _gold(path: Path, bases: Bases) -> Path:
    gold = open_policy("gold", PolicyOptions())
    return make_run(path, [Part(tasks=TRAIN[:2], samples=1, source=gold)], change=_unsolvable)


def _sparse(path: Path, bases: Bases) -> Path:
    return make_run(path, [Part(source=Drawn({"whole": 0.5, "nothing": 0.5}), samples=4)], sparse=True)


def _flat(path: Path, bases: Bases) -> Path:
    names = [*TRAIN, *HELD[:4]]
    source = Drawn({"whole": 0.3, "half": 0.4, "nothing": 0.3}, fixed=True, looks=(1, 4))
    return make_run(path, [Part(tasks=names, samples=2, source=source)])


def _unhidden(task: Task, objects: ObjectStore) -> Task:
    """A grader that looks at nothing but what the agent sees."""
    seen = tuple(name for name in task.tests.fail_to_pass if name not in task.tests.hidden)
    tests = task.tests.model_copy(update={"fail_to_pass": seen, "hidden": (), "hidden_files": task.tests.visible_files})
    return task.model_copy(update={"tests": tests})


def _hacking(path: Path, bases: Bases) -> Path:
    source = Drawn({"constant": 0.6, "half": 0.2, "nothing": 0.2})
    return make_run(path, [Part(tasks=TRAIN[:3], samples=4, source=source)], change=_unhidden)


def _named_only(one: Trajectory) -> list[Trajectory]:
    """Tools are recorded without their arguments."""
    steps = tuple(
        step.model_copy(update={"action": step.action.model_copy(update={"arguments": {}})}) if step.action else step
        for step in one.steps
    )
    return [one.model_copy(update={"steps": steps})]


def _forgetful(one: Trajectory) -> list[Trajectory]:
    """Some observations and all sampling parameters are not recorded."""
    steps = tuple(step.model_copy(update={"sampling": None, "observation": None}) for step in one.steps)
    return [one.model_copy(update={"steps": steps})]


def _lossy(one: Trajectory) -> list[Trajectory]:
    """The second step of every trajectory is lost."""
    return [one.model_copy(update={"steps": (*one.steps[:1], *one.steps[2:])})]


def _twice(one: Trajectory) -> list[Trajectory]:
    """Every third attempt is written again under another number."""
    again = one.model_copy(update={"id": f"{one.id}0", "sample_index": one.sample_index + 50})
    return [one, again] if one.sample_index % 3 == 0 else [one]


def _counting(one: Trajectory) -> list[Trajectory]:
    """Attempts that infrastructure failed get a reward of 0 and enter the baseline."""
    if one.status == "completed":
        return [one]
    zero = Reward(value=0.0, gate="failed", terms={})
    return [one.model_copy(update={"reward": zero, "reward_trusted": True, "in_baseline": True})]


def _lost_and_counted(path: Path, bases: Bases) -> Path:
    lost = make_run(path.with_name(f"{path.name}-before"), [Part(tasks=TRAIN[:1], samples=6, factory=Failing)])
    return rewrite(lost, path, _counting)


def _unscored(one: Trajectory) -> list[Trajectory]:
    """The reward script gives up on every second attempt."""
    return [one.model_copy(update={"reward": None}) if one.sample_index % 2 else one]


def _exploding(one: Trajectory) -> list[Trajectory]:
    """A term without a bound: bytes of the patch."""
    if one.reward is None or one.reward.value is None:
        return [one]
    size = float(len(one.final_patch or ""))
    term = Term(raw=size, weight=1.0, value=size, why="bytes of the patch", layer="quality")
    terms = {**one.reward.terms, "patch_bytes": term}
    return [
        one.model_copy(
            update={"reward": one.reward.model_copy(update={"value": one.reward.value + size, "terms": terms})}
        )
    ]


def _stylish(path: Path, bases: Bases) -> Path:
    """Half a point for short attempts, where attempts differ in outcome by a third of one."""
    part = Part(tasks=TRAIN[:3], samples=5, source=Drawn({"half": 0.5, "nothing": 0.5}, looks=(0, 5)))
    before = make_run(path.with_name(f"{path.name}-before"), [part])

    def change(one: Trajectory) -> list[Trajectory]:
        if one.reward is None or one.reward.value is None:
            return [one]
        first, short = first_layer(one.reward) or 0.0, 0.6 * (1 - len(one.steps) / 8)
        term = Term(raw=float(len(one.steps)), weight=1.0, value=short, why="few steps", layer="efficiency")
        terms = {name: each for name, each in one.reward.terms.items() if each.layer in ("outcome", "told")}
        reward = Reward(
            value=first + short, gate=one.reward.gate, terms={**terms, "shortness": term}, second_layer="applied"
        )
        return [one.model_copy(update={"reward": reward})]

    return rewrite(before, path, change)


MIXED = {"whole": 0.2, "half": 0.4, "nothing": 0.4}
WEAK = {"half": 0.2, "nothing": 0.8}
GOOD = {"whole": 0.8, "half": 0.2}


def _heldout_flat(path: Path, bases: Bases) -> Path:
    """It learns the training tasks by heart: nothing changes on held-out ones."""
    held = {"nothing": 0.9, "whole": 0.1}
    parts = [
        Part("eval-warm", Drawn(held, version="drawn-0"), HELD, 1),
        Part("round-1", Drawn({"nothing": 0.7, "half": 0.2, "whole": 0.1}), TRAIN[:2], 5),
        Part("round-2", Drawn({"whole": 0.9, "half": 0.1}, version="drawn-2"), TRAIN[:2], 5),
        Part("eval-final", Drawn(held, version="drawn-0"), HELD, 1),
    ]
    return make_run(path, parts, command="loop")


def _next(ways: Mapping[str, float], looks: tuple[int, int] = (0, 2), *, tells: bool = False) -> Drawn:
    return Drawn(ways, looks, tells=tells, version="drawn-2")


_FALLING = _rounds(Drawn(GOOD), _next(WEAK))
_COLLAPSED = _rounds(Drawn(MIXED, tells=True), _next({"half": 0.98, "nothing": 0.02}, tells=True))
_LONGER = _rounds(Drawn(MIXED, (0, 1)), _next(MIXED, (4, 5)))
_NO_BUILD = _rounds(Drawn({"half": 0.2, "wrong": 0.8}), _next({"broken": 0.8, "half": 0.2}), samples=5)
_FOUL = _acts(Drawn({"foul": 0.4, "half": 0.3, "nothing": 0.3}))
_FITTED = _acts(Drawn({"constant": 0.7, "half": 0.1, "nothing": 0.2}), TRAIN[:3], 6)
_CHATTER = _acts(Drawn({"chatter": 0.8, "half": 0.2}))
_ALIKE = _acts(Drawn(same=True), TRAIN[:3], 4)

FAULTS: Mapping[str, Fault] = {
    "flaky-test": Fault("reproducible", "a hidden test fails at times", _tasks(_flaky, Drawn({"whole": 1.0}), 10)),
    "unsolvable-task": Fault("solvable", "a hidden test asks for what the solution does not do", _gold),
    "leaked-task": Fault("leaks", "the statement tells the edit", _tasks(_leaking)),
    "overlapping-split": Fault("split", "a training task is held out too, under another id", _overlapping),
    "missing-arguments": Fault("complete", "tools are recorded without their arguments", _recorded(_named_only)),
    "missing-fields": Fault("complete", "observations and sampling are not recorded", _recorded(_forgetful)),
    "stale-snapshots": Fault("states", "snapshots are those of one action ago", _lagging),
    "lost-steps": Fault("states", "one step of each trajectory is not recorded", _recorded(_lossy)),
    "lost-sandboxes": Fault("infrastructure", "every third sandbox cannot be made", _failing),
    "counted-infrastructure": Fault("infrastructure", "lost attempts get a reward of 0", _lost_and_counted),
    "slow-sandbox": Fault("time-outs", "commands wait longer than they may take", _slow),
    "unreadable-actions": Fault("protocol", "most messages hold no action", _CHATTER),
    "one-seed": Fault("copies", "every sample of a task draws alike", _ALIKE),
    "recorded-twice": Fault("copies", "attempts are written twice", _recorded(_twice)),
    "unscored": Fault("computed", "every second attempt gets no reward", _recorded(_unscored)),
    "exploding-term": Fault("bounds", "a term without a bound", _recorded(_exploding)),
    "sparse-reward": Fault("process signal", "one test decides, so nothing counts in part", _sparse),
    "flat-groups": Fault("groups", "all samples of a task come out alike", _flat),
    "dominating-term": Fault("terms", "style counts more than the outcome", _stylish),
    "wrong-log-probs": Fault("rows", "log-probs are cut short by one", updates.cut_logprobs),
    "stale-sampler": Fault("sampler gap", "another version sampled than is said", updates.other_sampler),
    "zero-gradients": Fault("gradients", "masks train nothing", updates.masked),
    "too-high-rate": Fault("step size", "a learning rate a hundred times too high", updates.too_fast),
    "falling-reward": Fault("reward trend", "the policy is worse after its update", _FALLING),
    "memorised": Fault("held-out", "training tasks are learned by heart", _heldout_flat),
    "drifting-reward-model": Fault("reward model", "the value model and verdicts part ways", drifting_value),
    "hackable-grader": Fault("hacks", "no test is hidden, and the policy answers in constants", _hacking),
    "foul-play": Fault("hacks", "the policy looks whether it is tested", _FOUL),
    "fitted-to-visible": Fault("hidden gap", "the policy fits the tests that it sees", _FITTED),
    "entropy-collapse": Fault("entropy", "the policy does one thing only", _COLLAPSED),
    "longer-attempts": Fault("step count", "attempts take many more tries", _LONGER),
    "does-not-build": Fault("failure types", "patches no longer build", _NO_BUILD),
}
"""By name, in the order of the checks."""
