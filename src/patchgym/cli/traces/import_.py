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
    from patchgym.traces.cleaning import Cleaning
    from patchgym.traces.importing import FileImport

_EXAMPLES = 10
_LONGEST_NAME = 32


_FORMATS = "".join(f"\n{name:15} {reader.ABOUT}" for name, reader in READERS.items())


@click.command(epilog=f"\b\nFormats:\n{'auto':15} told by what a file holds{_FORMATS}")
@click.argument("format_name", metavar="FORMAT", type=click.Choice(["auto", *READERS]))
@click.argument("paths", metavar="PATH...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the run is written.")
@click.option("--raw", is_flag=True, help="Import as it is: no cleaning, secrets and empty trajectories included.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of each file as JSON.")
def command(format_name: str, paths: tuple[Path, ...], out: Path, raw: bool, as_json: bool) -> None:
    """Import logs of other agents as a run: files, or folders of them.

    What a log does not say stays empty. The run is cleaned as by ``patchgym traces clean``, unless ``--raw``. Exit code
    1 means that something could not be read; it is counted by its kind.
    """
    done, cleaning = _imported(format_name, paths, out, raw)
    if as_json:
        redacted: JsonValue = dict(cleaning.redacted) if cleaning is not None else None
        show_json({"out": str(out), "redacted": redacted, "files": [_document(one) for one in done]})
    else:
        _show(done, cleaning, out)
    if not done or any(one.broken or not one.trajectories + one.empty for one in done):
        sys.exit(1)


def _imported(
    format_name: str, paths: tuple[Path, ...], out: Path, raw: bool
) -> "tuple[list[FileImport], Cleaning | None]":
    from patchgym.content import ObjectStore
    from patchgym.store import RunDirectory
    from patchgym.store.whole import beside
    from patchgym.traces.cleaning import Cleaner
    from patchgym.traces.importing import import_logs

    with beside(out) as scratch, stage("Import") as shown:
        manifest = RunManifest(
            id=out.name,
            command="traces import",
            config={"format": format_name, "paths": [path.name for path in paths], "raw": raw},
            versions={"patchgym": version("patchgym")},
            task_hashes={},
            seed=0,
            created_at=datetime.now(UTC),
        )
        run = RunDirectory.open_for_writing(scratch / "run", manifest)
        cleaner = None if raw else Cleaner(ObjectStore(scratch / "raw"), run.objects)
        try:
            done = import_logs(
                paths,
                format_name,
                run,
                lambda one: shown.update(len(run.ids), note=f"{len(run.ids)} trajectories"),
                cleaner,
            )
        finally:
            run.close()
        if run.ids:
            (scratch / "run").rename(out)
    return done, cleaner.done if cleaner is not None else None


def _show(done: "list[FileImport]", cleaning: "Cleaning | None", out: Path) -> None:
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
    if cleaning is not None and cleaning.redacted:
        taken = [(kind.replace("_", " "), str(n)) for kind, n in cleaning.redacted.most_common()]
        show_table("Taken out", ("what", "count"), taken)
    if empty := sum(one.empty for one in done):
        show_line(f"\n{empty} empty trajectories were left out.")
    problems = [problem for one in done for problem in one.problems]
    for problem in problems[:_EXAMPLES]:
        say(problem)
    if len(problems) > _EXAMPLES:
        say(f"... and {len(problems) - _EXAMPLES} more; --json lists them")
    if renamed := sum(one.renamed for one in done):
        show_line(f"\n{renamed} trajectories have a number after their name, which another one had.")
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
        "empty": one.empty,
        "renamed": one.renamed,
        "broken": dict(one.broken),
        "left_out": dict(one.left_out),
        "problems": list(one.problems),
    }
