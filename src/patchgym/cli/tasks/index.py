"""``patchgym tasks index``: an index of benchmarks, and what of a task set stands in it."""

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import click
from pydantic import JsonValue
from rich.console import Console
from rich.table import Table
from rich.text import Text

from patchgym.cli.console import say, show_json, show_line, show_table, stage
from patchgym.content import disk_errors
from patchgym.errors import UsageError
from patchgym.tasks import TaskSet

if TYPE_CHECKING:
    from patchgym.tasks.overlap.files import Reading
    from patchgym.tasks.overlap.index import Index, Match

_SHOWN, _SHOWN_LINES, _LINE_CHARS = 10, 14, 300


@click.command()
@click.argument("benchmarks", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Write the index to this file.")
@click.option("--check", "checked", metavar="SET", type=click.Path(path_type=Path), help="A task set to look up in it.")
@click.option("--html", type=click.Path(path_type=Path), help="With --check: write the matches as one HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(
    benchmarks: tuple[Path, ...], out: Path | None, checked: Path | None, html: Path | None, as_json: bool
) -> None:
    """Index BENCHMARKS, and find what of a task set stands in them.

    BENCHMARKS are files of records (JSON, JSON lines or Parquet, also packed by gzip: SWE-bench and its relatives,
    HumanEval, anything with texts or code), task sets, or indexes that were written before.

    Exit code 1 when a task matches, or when rows had to be left out.
    """
    from patchgym.tasks.overlap.index import build_index, write_index

    if out is None and checked is None:
        raise UsageError(
            "Nothing to do", mend="Give --out FILE to keep the index, --check SET to look a set up, or both."
        )
    if html is not None and checked is None:
        raise UsageError("--html shows matches, and there is no set to look up", mend="Give --check SET.")
    tasks = TaskSet.load(checked) if checked is not None else None
    with stage("Index"):
        index, reading = build_index(benchmarks)
    _tell_refused(reading)
    if out is not None:
        write_index(index, out)
    matches = _look_up(index, tasks) if tasks is not None else []
    if html is not None and tasks is not None:
        _write_page(html, tasks, index, matches)
    if as_json:
        show_json(_document(index, reading, tasks, matches))
    else:
        _show(index, tasks, matches, out, html)
    sys.exit(1 if matches or reading.refused else 0)


def _look_up(index: "Index", tasks: TaskSet) -> list["Match"]:
    from patchgym.tasks.overlap.material import task_material

    found: list[Match] = []
    with stage("Look up", len(tasks.tasks)) as shown:
        for number, task in enumerate(tasks.tasks, start=1):
            found += index.matches(task_material(task, tasks.objects, origin=tasks.path.name))
            shown.update(number, len(tasks.tasks), f"{len(found)} matches")
    return found


def _tell_refused(reading: "Reading") -> None:
    for reason, count in sorted(reading.refused.items()):
        say(f"Left out {count} row{'s' if count > 1 else ''}: {reason} (first: {reading.examples[reason]})")


def _show(index: "Index", tasks: TaskSet | None, matches: list["Match"], out: Path | None, html: Path | None) -> None:
    counts = Counter(material.origin for material in index.materials)
    show_table("Index", ("from", "records"), [(origin, str(count)) for origin, count in counts.items()])
    if out is not None:
        show_line(f"\nWritten to {out}. Next: patchgym tasks index {out} --check SET")
    if tasks is None:
        return
    if not matches:
        show_line(f"\nNone of the {len(tasks.tasks)} tasks of {tasks.path} stands in it.")
        return
    show_line()
    by_pair: dict[tuple[str, str, str], list[Match]] = {}
    for match in matches:
        by_pair.setdefault((match.task, match.record, match.origin), []).append(match)
    rows = [
        (*pair, ", ".join(f"{match.kind} {match.similarity:.0%}" for match in found)) for pair, found in by_pair.items()
    ]
    show_table(f"{tasks.path.name}: what stands in it", ("task", "record", "from", "what, and how much of it"), rows)
    for found in list(by_pair.values())[:_SHOWN]:
        match = max(found, key=lambda match: match.kind != "commit")  # the first that has passages
        show_line()
        _show_passages(match)
    if len(by_pair) > _SHOWN:
        say(f"The passages of {len(by_pair) - _SHOWN} more are not shown. --html FILE or --json shows all.")
    if html is not None:
        show_line(f"\nAll passages, side by side: {html}")


def _show_passages(match: "Match") -> None:
    """Both passages beside each other, each on half of the terminal. Text is never markup."""
    sides = Table(title=match.kind, title_justify="left", title_style="bold", header_style="", expand=True)
    for head in (f"task {match.task}", f"record {match.record}"):
        sides.add_column(Text(head), ratio=1, overflow="fold")
    sides.add_row(Text(_cut(match.ours)), Text(_cut(match.theirs)))
    Console(highlight=False).print(sides)


def _cut(text: str) -> str:
    """The head of a passage, for a terminal: no control characters, and so many lines at the most."""
    lines = ["".join(char if char.isprintable() else " " for char in line[:_LINE_CHARS]) for line in text.split("\n")]
    kept = lines[:_SHOWN_LINES]
    return "\n".join([*kept, f"... and {len(lines) - len(kept)} more lines"] if len(lines) > len(kept) else kept)


def _write_page(path: Path, tasks: TaskSet, index: "Index", matches: list["Match"]) -> None:
    from patchgym.tasks.overlap.report import html_report

    page = html_report(f"{tasks.path.name}: what stands in the index", matches, len(tasks.tasks), len(index.materials))
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page, encoding="utf-8")


def _document(index: "Index", reading: "Reading", tasks: TaskSet | None, matches: list["Match"]) -> JsonValue:
    found: list[JsonValue] = [
        {
            "task": match.task,
            "record": match.record,
            "from": match.origin,
            "by": match.kind,
            "similarity": round(match.similarity, 4),
            "ours": match.ours,
            "theirs": match.theirs,
        }
        for match in matches
    ]
    return {
        "records": len(index.materials),
        "refused": dict(reading.refused),
        "tasks": len(tasks.tasks) if tasks is not None else None,
        "matches": found if tasks is not None else None,
    }
