"""``patchgym traces import``: logs of other agents as a run."""

import sys
from collections import Counter
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.records import RunManifest
from patchgym.traces.formats import READERS

if TYPE_CHECKING:
    from patchgym.traces.importing import FileImport

_EXAMPLES = 10
_LONGEST_NAME = 32


@click.command(epilog="Formats: " + "; ".join(f"{name}: {reader.ABOUT}" for name, reader in READERS.items()))
@click.argument("format_name", metavar="FORMAT", type=click.Choice(["auto", *READERS]))
@click.argument("paths", metavar="PATH...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the run is written.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of each file as JSON.")
def command(format_name: str, paths: tuple[Path, ...], out: Path, as_json: bool) -> None:
    """Import logs of other agents as a run: files, or folders of them.

    What a log does not say stays empty. Exit code 1 means that something could not be read; it is counted by its kind.
    """
    done = _imported(format_name, paths, out)
    if as_json:
        show_json({"out": str(out), "files": [_document(one) for one in done]})
    else:
        _show(done, out)
    if not done or any(one.broken or not one.trajectories for one in done):
        sys.exit(1)


def _imported(format_name: str, paths: tuple[Path, ...], out: Path) -> "list[FileImport]":
    from patchgym.store import RunDirectory
    from patchgym.store.whole import beside
    from patchgym.traces.importing import import_logs

    with beside(out) as scratch, stage("Import") as shown:
        manifest = RunManifest(
            id=out.name,
            command="traces import",
            config={"format": format_name, "paths": [path.name for path in paths]},
            versions={"patchgym": version("patchgym")},
            task_hashes={},
            seed=0,
            created_at=datetime.now(UTC),
        )
        run = RunDirectory.open_for_writing(scratch / "run", manifest)
        try:
            done = import_logs(
                paths, format_name, run, lambda one: shown.update(len(run.ids), note=f"{len(run.ids)} trajectories")
            )
        finally:
            run.close()
        if run.ids:
            (scratch / "run").rename(out)
    return done


def _show(done: "list[FileImport]", out: Path) -> None:
    rows = [
        (
            _short(one.path.name),
            one.format or "unknown",
            str(one.trajectories),
            str(one.steps),
            str(sum(one.broken.values())),
        )
        for one in done
    ]
    show_table("Imported", ("file", "format", "trajectories", "steps", "broken"), rows)
    for title, counted in (("Could not be read", "broken"), ("Left out: no part of a trajectory", "left_out")):
        counts: Counter[str] = sum((Counter(getattr(one, counted)) for one in done), Counter())
        if counts:
            show_table(title, ("what", "count"), [(kind.replace("_", " "), str(n)) for kind, n in counts.most_common()])
    problems = [problem for one in done for problem in one.problems]
    for problem in problems[:_EXAMPLES]:
        say(problem)
    if len(problems) > _EXAMPLES:
        say(f"... and {len(problems) - _EXAMPLES} more; --json lists them")
    if any(one.trajectories for one in done):
        show_line(f"\nWritten to {out}. Next: patchgym show {out}")
    else:
        show_line("\nNo trajectory was found: nothing was written.")


def _short(name: str) -> str:
    """A file's name, its middle left out where it would push the figures off the terminal."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:14]}...{name[-(_LONGEST_NAME - 17) :]}"


def _document(one: "FileImport") -> dict[str, JsonValue]:
    return {
        "path": str(one.path),
        "format": one.format,
        "trajectories": one.trajectories,
        "steps": one.steps,
        "broken": dict(one.broken),
        "left_out": dict(one.left_out),
        "problems": list(one.problems),
    }
