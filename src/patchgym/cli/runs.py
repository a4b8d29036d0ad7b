"""``patchgym runs``: the runs at hand, one a line."""

from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import click
from pydantic import JsonValue

from patchgym.cli.console import number, say, show_json, show_line, show_table, stage
from patchgym.store.looking import find_runs
from patchgym.view.figures import Summary, summary
from patchgym.view.opened import OpenedRun, Progress, open_runs

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


class _Line(NamedTuple):
    run: OpenedRun
    progress: Progress
    figures: Summary
    touched: datetime


@click.command()
@click.argument("folder", metavar="[DIR]", default="runs", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print them as JSON.")
def command(folder: Path, as_json: bool) -> None:
    """List the runs in a folder, the latest first: what made them, how they stand, what they came to.

    pass@1 is that of the last evaluation, and where a run has none, of all its attempts; figures are means over tasks.
    """
    paths = find_runs(folder)
    if not paths:
        say(f"There is no run in {folder}. patchgym loop makes one.")
    lines = sorted((_line(run) for run in open_runs(paths)), key=lambda line: line.touched, reverse=True)
    if as_json:
        show_json([_told(line) for line in lines])
        return
    if lines:
        columns = ("run", "by", "state", "tasks", "tries", "reward", "pass@1", "age")
        show_table(f"{folder}: {len(lines)} runs", columns, [_row(line, folder) for line in lines])
    for line in lines:
        if line.run.files.trouble:
            show_line(f"{line.run.name}: {line.run.files.trouble}")
        elif line.progress.problems:
            first = next(iter(line.run.problems(1)), "")
            show_line(f"{line.run.name}: {line.progress.problems} lines cannot be read; the first: {first}")


def _line(run: OpenedRun) -> _Line:
    behind = run.index.behind()
    if behind > 0:
        with stage(f"Read {run.name}", behind) as shown:
            while run.index.step():
                shown.update(behind - run.index.behind(), behind)
    with run.index.open() as connection:
        figures = summary(connection)
    times = [path.stat().st_mtime for path in run.path.iterdir() if path.suffix in (".json", ".jsonl")]
    return _Line(run, run.progress(), figures, datetime.fromtimestamp(max(times), UTC))


def _row(line: _Line, folder: Path) -> tuple[str, ...]:
    state = line.progress.state
    if line.progress.problems and state in ("done", "interrupted"):
        state = "damaged"
    manifest = line.run.files.manifest
    path = line.run.path
    return (
        str(path.relative_to(folder)) if path != folder else path.resolve().name,
        manifest.command if manifest is not None else "?",
        state,
        str(line.figures.tasks),
        str(line.figures.attempts),
        number(line.figures.reward.value if line.figures.reward else None, 3),
        number(line.figures.solved.value if line.figures.solved else None),
        _age(line.touched),
    )


def _age(then: datetime) -> str:
    seconds = max(0.0, (datetime.now(UTC) - then).total_seconds())
    if seconds < _HOUR:
        return f"{seconds / _MINUTE:.0f} min"
    return f"{seconds / _HOUR:.0f} h" if seconds < 2 * _DAY else f"{seconds / _DAY:.0f} d"


def _told(line: _Line) -> dict[str, JsonValue]:
    manifest, figures, progress = line.run.files.manifest, line.figures, line.progress
    return {
        "path": str(line.run.path),
        "id": manifest.id if manifest is not None else None,
        "command": manifest.command if manifest is not None else None,
        "state": progress.state,
        "unreadable_lines": progress.problems,
        "in_the_making": progress.in_the_making,
        "tasks": figures.tasks,
        "attempts": figures.attempts,
        "mean_reward": figures.reward.value if figures.reward else None,
        "pass_at_1": figures.solved.value if figures.solved else None,
        "mean_steps": figures.steps.value if figures.steps else None,
        "hacked": figures.hacked,
        "changed_at": line.touched.isoformat(timespec="seconds"),
    }
