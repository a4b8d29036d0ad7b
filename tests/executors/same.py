"""The same work by an executor and here, to be compared."""

import asyncio
from pathlib import Path
from typing import Any

from patchgym.executors.crew import Crew
from patchgym.executors.fleet import Fleet
from patchgym.records import Task, Trajectory
from patchgym.reward import RewardSettings
from patchgym.rollout import Collector, Phase, PolicyOptions, RolloutSettings, open_policy
from patchgym.rollout.likeness import normalised
from patchgym.rollout.sent import attempt_spec
from patchgym.sandbox import NamespaceSandboxes
from patchgym.sandbox.environments import build_environment
from patchgym.store import RunDirectory
from tests.executors.cluster import hermetic
from tests.records_for_tests import make_manifest
from tests.workshop import calc_task, here

UNTIMED = {"started_at", "seconds", "sampling_seconds", "timing", "validated_at", "test_seconds"}
DRAWN = {"log"}  # it shows the canaries, which every grading draws anew


def untimed(value: Any) -> Any:
    """A record's JSON without its times, those that programs print included, and without what is drawn."""
    if isinstance(value, dict):
        return {key: untimed(inner) for key, inner in value.items() if key not in UNTIMED | DRAWN}
    if isinstance(value, list):
        return [untimed(inner) for inner in value]
    return normalised(value) if isinstance(value, str) else value


def rollouts(
    fleet: Fleet | None, folder: Path, policy: str, samples: int, cache: Path | None = None
) -> tuple[list[Trajectory], Task]:
    """A phase of a run in a folder, made by a fleet or (None) here. Environments are this interpreter's, or those of a
    cache."""
    run = RunDirectory.open_for_writing(folder / "run", make_manifest())
    task = hermetic(run.objects, cache) if cache is not None else calc_task(run.objects)
    build = here if cache is None else build_environment
    factory = NamespaceSandboxes(run.objects, cache=folder / "cache")
    settings, rewards, options = RolloutSettings(), RewardSettings(), PolicyOptions()
    collector, phase = Collector(run, factory, build, rewards, 7), Phase("rollout", [task], samples)

    async def work() -> list[Trajectory]:
        if fleet is None:
            return await collector.collect(phase, open_policy(policy, options), settings)
        spec = attempt_spec("rollout", policy, options, settings, rewards, 7, sandbox="namespace")
        async with Crew(fleet, spec, run.objects) as crew:
            return await collector.collect_by(crew, phase, policy)

    try:
        found = asyncio.run(work())
        for one in found:
            assert all(step.state_after in run.objects for step in one.steps if step.state_after is not None)
        return found, task
    finally:
        factory.close()
        run.close()
