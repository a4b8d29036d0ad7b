"""``patchgym tasks import``: a benchmark's rows or folders as a task set."""

import sys
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.records import TaskSetManifest
from patchgym.tasks.formats import FORMATS

if TYPE_CHECKING:
    from patchgym.tasks.formats.importing import Import, Refusal

_EXAMPLES = 3


@click.command()
@click.argument("format_name", metavar="FORMAT", type=click.Choice(["auto", *FORMATS]))
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the task set is written.")
@click.option("--repos", type=click.Path(path_type=Path), help="A folder of git clones: the files of the commits.")
@click.option("--strict", is_flag=True, help="Stop at the first row that is no task, and write nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what became of the rows as JSON.")
def command(format_name: str, path: Path, out: Path, repos: Path | None, strict: bool, as_json: bool) -> None:
    """Import a benchmark as a held-out task set.

    FORMAT is swe-bench, swe-smith or r2e-gym (a JSONL, JSON or Parquet file, or a folder of them), swe-bench-5 or
    harbor (a folder), or auto. A clone of owner/name is looked for in --repos as owner/name, owner__name or name.
    """
    found = _imported(format_name, path, out, repos, strict)
    if as_json:
        show_json(_document(found, out))
    else:
        _show(found, out)
    if found.refused:
        sys.exit(1)


def _imported(format_name: str, path: Path, out: Path, repos: Path | None, strict: bool) -> "Import":
    from patchgym.content import ObjectStore
    from patchgym.store.whole import beside
    from patchgym.tasks.formats.clones import Clones
    from patchgym.tasks.formats.importing import import_tasks
    from patchgym.tasks.taskset import write_task_set

    with beside(out) as scratch, stage("Import") as shown:
        objects = ObjectStore(scratch / "work")
        clones = Clones(repos, objects) if repos is not None else None
        found = import_tasks(
            path,
            format_name,
            objects,
            clones=clones,
            strict=strict,
            on_progress=lambda count: shown.update(count, note=f"{count} read"),
        )
        if found.tasks:
            finished = scratch / "set"
            finished.mkdir(mode=0o755)
            manifest = TaskSetManifest(
                name=out.name,
                recipe={"import": found.format, "path": str(path), "repos": str(repos) if repos else None},
                funnel=found.funnel,
                created_at=datetime.now(UTC),
            )
            write_task_set(finished, manifest, found.tasks, objects)
            finished.rename(out)
    return found


def _show(found: "Import", out: Path) -> None:
    rows = [(name.replace("_", " "), str(count)) for name, count in found.funnel.items()]
    show_table(f"What became of the {found.format} tasks", ("outcome", "count"), rows)
    if found.refused:
        show_refusals(found.refused, "place")
    for note, count in sorted(found.notes.items()):
        say(f"{count} x {note}")
    if not found.tasks:
        show_line("\nNo task was found: nothing was written.")
        return
    if found.without_files:
        show_line(
            f"\n{found.without_files} of {len(found.tasks)} tasks have no files. They serve for looking,"
            " decontamination and export, not for running.\nA row names a commit: import it with"
            " --repos DIR, a folder of git clones."
        )
    if found.without_environment:
        show_line(
            f"\n{found.without_environment} of {len(found.tasks)} tasks have files and no locked environment: they run"
            " in a container of theirs only."
        )
    held = sum(task.split == "heldout" for task in found.tasks)
    # A Harbor directory that patchgym wrote says by itself on which side its task is.
    split = "all held out" if held == len(found.tasks) else f"{held} of {len(found.tasks)} held out"
    show_line(f"\nWritten to {out}, {split}. Next: patchgym tasks show {out}")


def show_refusals(refused: "Sequence[Refusal]", place: str) -> None:
    """A table of what was refused: every reason with its count and its first few places."""
    counts = Counter(refusal.reason for refusal in refused)
    rows: list[tuple[str, str, str]] = []
    for reason, count in counts.most_common():
        examples = [refusal for refusal in refused if refusal.reason == reason][:_EXAMPLES]
        for position, refusal in enumerate(examples):
            first = position == 0
            text = f"{refusal.where}: {refusal.why}" if refusal.why else refusal.where
            rows.append((reason.replace("_", " ") if first else "", str(count) if first else "", text))
    show_table("Refused", ("reason", "count", f"{place}, the first {_EXAMPLES} of each"), rows)


def _document(found: "Import", out: Path) -> dict[str, JsonValue]:
    return {
        "format": found.format,
        "out": str(out) if found.tasks else None,
        "funnel": dict(found.funnel),
        "without_files": found.without_files,
        "without_environment": found.without_environment,
        "notes": dict(sorted(found.notes.items())),
        "refused": [{"where": one.where, "reason": one.reason, "why": one.why} for one in found.refused],
    }
