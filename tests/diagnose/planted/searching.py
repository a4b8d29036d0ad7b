"""Search trees valued by a model of their steps, in two rounds."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, RolloutSettings
from patchgym.rollout.strategies import SearchSettings
from patchgym.store import RunDirectory
from tests.diagnose.planted.drawn import Drawn
from tests.diagnose.planted.kit import TRAIN, make_tasks
from tests.diagnose.planted.made import manifest
from tests.workshop import here, sandboxes

if TYPE_CHECKING:
    from tests.diagnose.planted.faults import Bases


def searched(path: Path, *sources: Drawn) -> Path:
    """A run of one searched round a policy. The value model says that more than one step is worth more."""
    from tests.reward.value.test_model import by_hand

    value = path.with_name(f"{path.name}-value.json")
    by_hand().save(value)
    how = SearchSettings(strategy="best_first", branches=1, nodes=8, value=f"model:{value}", merge=False)
    run = RunDirectory.open_for_writing(path, manifest("loop", path.name, RewardSettings()))
    try:
        tasks = make_tasks(run.objects, TRAIN[:2])
        run.keep_tasks(tasks)
        with sandboxes(run.objects, path.parent / "sandboxes") as factory:
            for number, source in enumerate(sources, start=1):
                collector = Collector(run, factory, here, RewardSettings(), 7)
                phase = Phase(f"round-{number}", tasks, 11)
                asyncio.run(collector.search(phase, source, RolloutSettings(concurrency=4, grade_once=True), how))
    finally:
        run.close()
    return path


def drifting_value(path: Path, bases: "Bases") -> Path:
    """Short attempts failed and long ones solved while the model was right; then failures become as long."""
    before = Drawn({"whole": 0.5, "nothing": 0.5}, looks=(0, 0))
    after = Drawn({"whole": 0.5, "wander": 0.5}, looks=(0, 0), version="drawn-2")
    return searched(path, before, after)


def steady_value(path: Path, bases: "Bases") -> Path:
    """The model goes on being right."""
    ways = {"whole": 0.5, "half": 0.2, "nothing": 0.3}
    return searched(path, Drawn(ways, looks=(0, 0)), Drawn(ways, looks=(0, 0), version="drawn-2"))
