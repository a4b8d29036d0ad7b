"""Runs of several kinds with nothing wrong in them."""

from collections.abc import Callable, Mapping
from pathlib import Path

from patchgym.rollout import PolicyOptions, PolicySource, open_policy
from tests.diagnose.planted import updates
from tests.diagnose.planted.drawn import EVEN, Drawn
from tests.diagnose.planted.faults import Bases
from tests.diagnose.planted.kit import HELD, TRAIN
from tests.diagnose.planted.made import EACH_GRADED, Part, make_run
from tests.diagnose.planted.searching import steady_value

Make = Callable[[Path, Bases], Path]


def _named(policy: str, names: list[str], samples: int) -> Make:
    source: PolicySource = open_policy(policy, PolicyOptions())
    return lambda path, bases: make_run(path, [Part(tasks=names, samples=samples, source=source)])


def _improving(path: Path, bases: Bases) -> Path:
    """Training tasks and held-out ones get better together."""
    worse, better = {"nothing": 0.6, "half": 0.3, "whole": 0.1}, {"whole": 0.8, "half": 0.2}
    parts = [
        Part("eval-warm", Drawn({"nothing": 0.95, "whole": 0.05}), HELD, 1),
        Part("round-1", Drawn(worse), TRAIN[:2], 4),
        Part("round-2", Drawn(better, version="drawn-2"), TRAIN[:2], 4),
        Part("eval-final", Drawn({"whole": 0.95, "nothing": 0.05}, version="drawn-2"), HELD, 1),
    ]
    return make_run(path, parts, command="loop")


def _level(path: Path, bases: Bases) -> Path:
    """Two rounds of which nothing can be told yet."""
    parts = [Part(f"round-{at}", Drawn(EVEN, version=f"drawn-{at}", tells=True), TRAIN[:2], 4) for at in (1, 2)]
    return make_run(path, parts, command="loop")


def _measured(path: Path, bases: Bases) -> Path:
    return make_run(path, [Part("eval-final", Drawn({"whole": 0.5, "nothing": 0.5}), HELD, 1)], command="eval")


CLEAN: Mapping[str, Make] = {
    "rollout": lambda path, bases: bases.rollout,
    "rollout-of-few": lambda path, bases: make_run(path, [Part(tasks=TRAIN[:2], samples=2, settings=EACH_GRADED)]),
    "gold": _named("gold", TRAIN[:2], 2),
    "noop": _named("noop", TRAIN[:2], 2),
    "noisy": _named("noisy:0.4", TRAIN[:3], 4),
    "evaluation": _measured,
    "improving-loop": _improving,
    "level-loop": _level,
    "searched-loop": steady_value,
    "imitation": updates.imitated,
    "update": lambda path, bases: updates.trained(path, bases),
}
"""By name."""
