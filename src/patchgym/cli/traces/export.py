"""``patchgym traces export``: a run in another format."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.traces.exporting import ONLY
from patchgym.traces.writers import WRITERS

if TYPE_CHECKING:
    from patchgym.traces.exporting import Export

_EXAMPLES = 10


@click.command(epilog="Formats: " + "; ".join(f"{name}: {writer.ABOUT}" for name, writer in WRITERS.items()))
@click.argument("format_name", metavar="FORMAT", type=click.Choice([*WRITERS]))
@click.argument("run_path", metavar="RUN", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="Where it is written: a file that ends in .jsonl or .parquet; for atif also a folder.",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    type=click.Choice([*ONLY]),
    help="Only trajectories of which this is true; may be given more than once, and then all must be.",
)
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this trajectory; may be given more than once.")
@click.option("--phase", "phases", multiple=True, metavar="PHASE", help="Only this phase of the run; likewise.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written and dropped as JSON.")
def command(
    format_name: str,
    run_path: Path,
    out: Path,
    only: tuple[str, ...],
    ids: tuple[str, ...],
    phases: tuple[str, ...],
    as_json: bool,
) -> None:
    """Write the trajectories of a run in another format, and say what the format does not hold.

    chat and article give rows of text; atif documents that give the same trajectories back when they are imported; trl,
    verl, skyrl and verifiers token ids as they were sampled, for training. What a format cannot hold at all is counted
    by the reason. Exit code 1 means that nothing was written.
    """
    done = _exported(format_name, run_path, out, only, ids, phases)
    if as_json:
        show_json(_document(done))
    else:
        _show(done)
    if not done.rows:
        sys.exit(1)


def _exported(
    format_name: str, run_path: Path, out: Path, only: tuple[str, ...], ids: tuple[str, ...], phases: tuple[str, ...]
) -> "Export":
    from patchgym.store import RunDirectory
    from patchgym.traces.exporting import chosen, export_run

    run = RunDirectory.read(run_path)
    for problem in run.problems[:_EXAMPLES]:
        say(problem)
    if len(run.problems) > _EXAMPLES:
        say(f"... and {len(run.problems) - _EXAMPLES} more")
    wanted = list(chosen(run, only, ids, phases))
    with stage("Export", total=len(wanted)) as shown:
        return export_run(
            run,
            wanted,
            format_name,
            out,
            lambda done: shown.update(
                done.trajectories + sum(done.refused.values()), note=f"{done.trajectories} trajectories"
            ),
        )


def _show(done: "Export") -> None:
    if done.dropped:
        rows = [(part, str(count)) for part, count in sorted(done.dropped.items())]
        show_table(f"What {done.format} does not hold", ("part of a trajectory", "trajectories"), rows)
    if done.refused:
        rows_of_refused = [
            (reason.value, reason.meaning, str(count), done.examples[reason][0])
            for reason, count in done.refused.most_common()
        ]
        show_table("Left out", ("reason", "meaning", "trajectories", "such as"), rows_of_refused)
    if not done.rows:
        why = "could be written as this format" if done.refused else "is chosen"
        show_line(f"No trajectory {why}: nothing was written.")
        return
    many = "1 trajectory" if done.trajectories == 1 else f"{done.trajectories} trajectories"
    in_rows = "" if done.rows == done.trajectories else f" ({done.rows} rows)"
    nothing = "" if done.dropped else ", with nothing dropped"
    show_line(f"{many}{in_rows} written to {done.path} as {done.format}{nothing}.")


def _document(done: "Export") -> dict[str, JsonValue]:
    return {
        "format": done.format,
        "out": str(done.path) if done.rows else None,
        "trajectories": done.trajectories,
        "rows": done.rows,
        "dropped": dict(sorted(done.dropped.items())),
        "refused": {
            reason.value: {"count": count, "meaning": reason.meaning, "such_as": list(done.examples[reason])}
            for reason, count in done.refused.items()
        },
    }
