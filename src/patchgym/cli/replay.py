"""``patchgym replay``: proof that a run's steps reproduce."""

import asyncio
import random
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from patchgym.cli.again import again_from_clones
from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.cli.executing import asked_afar, executor_options, refuse_afar
from patchgym.cli.workshop import check_sandbox, sandbox_options, sandboxes
from patchgym.errors import UsageError

if TYPE_CHECKING:
    from patchgym.records import Task, Trajectory
    from patchgym.rollout.replay import Certificate, Replayed
    from patchgym.store import RunDirectory

_SHOWN = 10
_WANTED = 0.99


@click.command()
@click.argument("path", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--sample", type=click.IntRange(1), metavar="N", help="Only N trajectories, drawn by --seed.")
@click.option("--seed", default=0, show_default=True)
@click.option("--task", "ids", multiple=True, metavar="ID", help="Only trajectories of this task; may be repeated.")
@click.option("--repos", type=click.Path(path_type=Path), help="Git clones: imported logs are done again from them.")
@click.option("--out", type=click.Path(path_type=Path), help="With --repos: write them with their states, a new run.")
@click.option("--concurrency", type=click.IntRange(1), help="Trajectories at once. [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="Print the certificate as JSON.")
@sandbox_options
@executor_options
def command(
    path: Path,
    sample: int | None,
    seed: int,
    ids: tuple[str, ...],
    repos: Path | None,
    out: Path | None,
    concurrency: int | None,
    as_json: bool,
) -> None:
    """Do every recorded step of a run again in a fresh sandbox, and compare state, exit code and output.

    A step is exact, equal after normalising (durations, dates, addresses, temporary paths), or diverged, with the
    difference and its likely reason. Patches are graded again. The certificate is written to RUN/replay.json; exit code
    1 means that fewer than 99% of the steps or not all verdicts came out the same.

    An imported log holds no states. With --repos its commands and edits are done again from the commit that it began
    at, as far as the log names one that is there.
    """
    from patchgym.rollout.replay import certificate
    from patchgym.store import RunDirectory

    if asked_afar() is None:
        check_sandbox()
    run = RunDirectory.read(path)
    for problem in run.problems:
        say(problem)
    tasks = run.tasks()
    if repos is not None:
        refuse_afar("Replay from clones")
        able = [one.id for one in run.trajectories if one.origin is not None and one.final_state is None]
    else:
        able = [
            one.id
            for one in run.trajectories
            if one.task_id in tasks and one.final_state is not None and (not ids or one.task_id in ids)
        ]
    if not able:
        raise UsageError(
            f"Nothing in {path} can be replayed",
            why="It has no trajectory with states whose task the run keeps.",
            mend="Replay a run of patchgym rollout, eval or loop; imported logs need --repos DIR.",
        )
    chosen = sorted(random.Random(seed).sample(able, sample)) if sample and sample < len(able) else able
    done = again_from_clones(run, repos, chosen, out) if repos else _replay(run, tasks, chosen, concurrency)
    found = certificate(run.manifest.id, len(able), seed if len(chosen) < len(able) else None, done)
    run.write_report("replay.json", found.model_dump_json(indent=1))
    if as_json:
        show_json(found)
    else:
        _show(found, path)
    share = found.share
    sys.exit(0 if (share is None or share >= _WANTED) and found.verdicts_same == found.verdicts else 1)


def _replay(
    run: "RunDirectory", tasks: "Mapping[str, Task]", chosen: Sequence[str], concurrency: int | None
) -> "list[Replayed]":
    from patchgym.cli.bench import cluster_asked_for, replaying_over
    from patchgym.content import ObjectStore
    from patchgym.tasks.proof.bench import together

    with tempfile.TemporaryDirectory(prefix="patchgym-replay-") as scratch:
        objects = ObjectStore(Path(scratch), run.objects)  # the run itself is not written to
        with (
            cluster_asked_for() as cluster,
            sandboxes(objects) as factory,
            stage("Replay", len(chosen)) as shown,
        ):
            done: list[Replayed] = []

            async def one(replay: "Callable[[Callable[[], Trajectory]], Awaitable[Replayed]]", name: str) -> None:
                done.append(await replay(lambda: run.trajectory(name)))
                diverged = sum(each.diverged for each in done)
                shown.update(len(done), len(chosen), f"{len(done)} of {len(chosen)}, {diverged} steps diverged")

            async def every() -> None:
                async with replaying_over(objects, factory, cluster, tasks, concurrency) as replay:
                    await together(one(replay, name) for name in chosen)

            asyncio.run(every())
    return sorted(done, key=lambda each: each.trajectory)


def _show(found: "Certificate", path: Path) -> None:
    share = f"{found.share:.2%}" if found.share is not None else "-"
    rows = [
        ("trajectories", f"{found.trajectories} of {found.of}"),
        ("steps", str(found.steps)),
        ("exact", str(found.exact)),
        ("equal after normalising", str(found.normalised)),
        ("diverged", str(found.diverged)),
        ("the same", share),
        ("without an action", str(found.skipped)),
        ("verdicts the same", f"{found.verdicts_same} of {found.verdicts}"),
    ]
    show_table(f"Replay of {path.name}", ("", "count"), rows)
    for divergence in found.divergences[:_SHOWN]:
        place = f"{divergence.trajectory}, step {divergence.step} ({divergence.tool})"
        show_line(f"\n{place}: {divergence.reason}\n{divergence.diff}")
    if found.diverged > _SHOWN:
        show_line(f"\n... and {found.diverged - min(_SHOWN, len(found.divergences))} more in replay.json")
    for name, change in found.verdict_changes.items():
        show_line(f"{name}: verdict {change}")
    show_line(f"\nThe certificate is in {path / 'replay.json'}.")
