"""Imported logs done again on clones of their repositories."""

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from patchgym.cli.console import say, stage
from patchgym.cli.workshop import sandboxes
from patchgym.errors import UsageError
from patchgym.records import RunManifest, Trajectory

if TYPE_CHECKING:
    from patchgym.rollout.replay import Replayed
    from patchgym.store import RunDirectory
    from patchgym.tasks.formats.clones import Clones


def again_from_clones(run: "RunDirectory", repos: Path, chosen: Sequence[str], out: Path | None) -> "list[Replayed]":
    """Replay imported trajectories from the commits that they began at; with ``out``, write them there as a run, with
    their states and final patches.

    Raises:
        UsageError: there is no such folder, or none of the commits is in it.
        PrerequisiteError, StorageError: nothing can be replayed on this machine.
    """
    from patchgym.content import ObjectStore
    from patchgym.rollout.foreign import ForeignReplayer
    from patchgym.store.copying import copy_objects
    from patchgym.tasks.formats.clones import Clones

    done: list[Replayed] = []
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="patchgym-replay-")))
        objects = ObjectStore(scratch, run.objects)
        clones = Clones(repos, objects)
        factory = stack.enter_context(sandboxes(objects))
        new = stack.enter_context(_written(run, out)) if out is not None else None
        shown = stack.enter_context(stage("Replay", len(chosen)))
        replayer = ForeignReplayer(objects, factory)
        for number, name in enumerate(chosen, start=1):
            trajectory = run.trajectory(name)
            start = _start(trajectory, clones)
            if start is not None:
                replayed, whole = asyncio.run(replayer.replay(trajectory, start))
                done.append(replayed)
                if new is not None:
                    copy_objects(whole, objects, new.objects)
                    new.append(whole)
            shown.update(number, len(chosen), f"{len(done)} of {number} have their repository")
    for missing, count in clones.missing.items():
        say(f"{count} x {missing}")
    if not done:
        raise UsageError(
            f"No log of {run.path} can be done again",
            why="None names a repository and a commit that are there.",
            mend="Put clones into --repos as owner/name, owner__name or name.",
        )
    return done


@contextmanager
def _written(run: "RunDirectory", out: Path) -> "Iterator[RunDirectory]":
    """A new run for what is replayed, which is there once all of it is."""
    from patchgym.store import RunDirectory
    from patchgym.store.whole import beside

    with beside(out) as scratch:
        manifest = RunManifest(
            id=out.name,
            command="replay",
            config={"of": run.manifest.id},
            versions={"patchgym": version("patchgym")},
            task_hashes={},
            seed=0,
            created_at=datetime.now(UTC),
        )
        new = RunDirectory.open_for_writing(scratch / "run", manifest)
        try:
            yield new
        finally:
            new.close()
        if new.ids:
            (scratch / "run").rename(out)


def _start(trajectory: Trajectory, clones: "Clones") -> str | None:
    origin = trajectory.origin
    if origin is None or not origin.repo or not origin.base_commit:
        return None
    repo = origin.repo.removesuffix(".git").rstrip("/")
    name = "/".join(repo.replace(":", "/").split("/")[-2:])
    return clones.tree(name, origin.base_commit)
