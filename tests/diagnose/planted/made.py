"""Making a run out of phases: who acts, on which tasks, how often. Everything but the policy is the real thing."""

import asyncio
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from patchgym.content import ObjectStore
from patchgym.records import RunManifest, Task, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicySource, RolloutSettings
from patchgym.sandbox import SandboxFactory
from patchgym.store import RunDirectory
from tests.diagnose.planted.drawn import Drawn
from tests.diagnose.planted.kit import TRAIN, make_tasks
from tests.records_for_tests import make_manifest
from tests.workshop import here, sandboxes

EACH_GRADED = RolloutSettings(concurrency=4)
"""For what is about grading: every attempt has one of its own."""
Tasks = Callable[[ObjectStore], list[Task]]


@dataclass
class Part:
    """One phase of a run. ``tasks`` are names of the kit; ``factory`` may wrap the sandboxes. Attempts at a task that
    made the same patch share one grading, which is most of a run's time, unless ``settings`` say otherwise."""

    name: str = "rollout"
    source: PolicySource = field(default_factory=Drawn)
    tasks: Sequence[str] = tuple(TRAIN[:3])
    samples: int = 4
    settings: RolloutSettings = field(default_factory=lambda: RolloutSettings(concurrency=4, grade_once=True))
    factory: Callable[[SandboxFactory], SandboxFactory] = lambda factory: factory


def make_run(
    path: Path,
    parts: Sequence[Part],
    *,
    command: str = "rollout",
    change: Callable[[Task, ObjectStore], Task] = lambda task, objects: task,
    sparse: bool = False,
    seed: int = 7,
    rewards: RewardSettings | None = None,
) -> Path:
    """A run directory with these phases; ``change`` is what is done to every task."""
    how = rewards or RewardSettings()
    run = RunDirectory.open_for_writing(path, manifest(command, path.name, how))
    try:
        names = list(dict.fromkeys(name for part in parts for name in part.tasks))
        tasks = {
            name: change(task, run.objects)
            for name, task in zip(names, make_tasks(run.objects, names, sparse=sparse), strict=True)
        }
        run.keep_tasks(tasks.values())
        with sandboxes(run.objects, path.parent / "sandboxes") as real:
            for part in parts:
                collector = Collector(run, part.factory(real), here, how, seed)
                phase = Phase(part.name, [tasks[name] for name in part.tasks], part.samples)
                asyncio.run(collector.collect(phase, part.source, part.settings))
    finally:
        run.close()
    return path


def rewrite(base: Path, path: Path, change: Callable[[Trajectory], Sequence[Trajectory]], *, command: str = "") -> Path:
    """A copy of a run whose recorder had a defect: what it wrote of each trajectory is what ``change`` makes of it."""
    old = RunDirectory.read(base)
    made = old.manifest.model_copy(update={"id": path.name, "command": command or old.manifest.command})
    shutil.copytree(base / "objects", path / "objects")
    (path / "run.json").write_text(made.to_line() + "\n", encoding="utf-8")
    new = RunDirectory.open_for_writing(path, made)
    try:
        new.keep_tasks(old.tasks().values())
        for one in old.trajectories:
            for changed in change(one):
                new.append(changed)
    finally:
        new.close()
    return path


def manifest(command: str, name: str, rewards: RewardSettings) -> RunManifest:
    """The manifest of a run, with the settings of its rewards."""
    config: Mapping[str, object] = {"reward": rewards.model_dump(mode="json")}
    return make_manifest(id=name, command=command, config=config)
