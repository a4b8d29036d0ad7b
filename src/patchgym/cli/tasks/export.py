"""``patchgym tasks export``: tasks in another format."""

import sys
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table
from patchgym.tasks import TaskSet
from patchgym.tasks.formats import FORMATS


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.argument("format_name", metavar="FORMAT", type=click.Choice(FORMATS))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The file or folder to write.")
@click.option("--task", "names", multiple=True, metavar="ID", help="Only this task; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written and dropped as JSON.")
def command(taskset: Path, format_name: str, out: Path, names: tuple[str, ...], as_json: bool) -> None:
    """Write the tasks of a set as swe-bench, swe-smith or r2e-gym rows (JSONL, or JSON where --out ends so), as a
    swe-bench-5 task repository or as harbor task directories, and say what the format could not hold."""
    from patchgym.cli.tasks.import_ import show_refusals
    from patchgym.tasks.formats.exporting import export_tasks, why_dropped

    found = TaskSet.load(taskset)
    tasks = [found.task(name) for name in dict.fromkeys(names)] if names else list(found.tasks)
    done = export_tasks(found, tasks, format_name, out)
    if as_json:
        show_json(
            {
                "format": done.format,
                "out": str(out) if done.written else None,
                "written": list(done.written),
                "dropped": dict(sorted(done.dropped.items())),
                "refused": [{"where": one.where, "reason": one.reason, "why": one.why} for one in done.refused],
            }
        )
    else:
        if done.dropped:
            rows = [(part, str(count), why_dropped(part)) for part, count in sorted(done.dropped.items())]
            show_table(f"What {format_name} does not hold", ("part of a task", "tasks", "why"), rows)
        if done.refused:
            show_refusals(done.refused, "task")
        show_line(_last_line(len(done.written), format_name, out, lossless=not done.dropped))
    if done.refused:
        sys.exit(1)


def _last_line(written: int, format_name: str, out: Path, *, lossless: bool) -> str:
    if not written:
        return "No task could be written as this format: nothing was written."
    tasks = "1 task" if written == 1 else f"{written} tasks"
    return f"{tasks} written to {out} as {format_name}{', with nothing dropped' if lossless else ''}."
