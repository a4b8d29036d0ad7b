"""``patchgym traces select``: rejection sampling."""

import sys
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.config import assigned
from patchgym.records import RunManifest


@click.command()
@click.argument("paths", metavar="RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the chosen ones are written, a run.")
@click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="verdicts, min_reward, most_steps, per_task, prefer."
)
@click.option("--json", "as_json", is_flag=True, help="Print what was chosen as JSON.")
def command(paths: tuple[Path, ...], out: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Choose the trajectories that are worth learning from, out of samples and search trees, by a rule.

    Without --set: every different one that solves its task, the shortest first. The rule stands in the run.json of the
    new run.
    """
    from patchgym.store import RunDirectory
    from patchgym.store.whole import beside
    from patchgym.traces.selecting import AcceptanceRule, select

    rule = assigned(AcceptanceRule, overrides, "--set")
    runs = [RunDirectory.read(path) for path in paths]
    with beside(out) as scratch, stage("Select") as shown:
        manifest = RunManifest(
            id=out.name,
            command="traces select",
            config={"accept": rule.model_dump(mode="json"), "runs": [run.manifest.id for run in runs]},
            versions={"patchgym": version("patchgym")},
            task_hashes={name: value for run in runs for name, value in run.manifest.task_hashes.items()},
            seed=0,
            created_at=datetime.now(UTC),
        )
        new = RunDirectory.open_for_writing(scratch / "run", manifest)
        try:
            found = select(runs, new, rule, lambda count: shown.update(count, note=f"{count} read"))
        finally:
            new.close()
        if found.accepted:
            (scratch / "run").rename(out)
    if as_json:
        show_json({"read": found.read, "accepted": list(found.accepted), "refused": dict(found.refused)})
    else:
        rows = [("accepted", str(len(found.accepted)))]
        rows += [(reason.replace("_", " "), str(count)) for reason, count in found.refused.items()]
        show_table(f"{found.read} trajectories", ("", "count"), rows)
        show_line(f"\nWritten to {out}." if found.accepted else "\nNone is accepted: nothing was written.")
    sys.exit(0 if found.accepted else 1)
