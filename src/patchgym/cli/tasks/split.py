"""``patchgym tasks split``: training and held-out tasks, with what belongs together on one side."""

from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line, show_table, stage
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Where the split task set is written.")
@click.option(
    "--heldout",
    "share",
    default=0.2,
    show_default=True,
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="The share of tasks to hold out.",
)
@click.option(
    "--by",
    default="function",
    show_default=True,
    type=click.Choice(["function", "repository", "time"]),
    help="What is drawn: functions, or repositories; or hold out the newest.",
)
@click.option("--seed", default=0, show_default=True, help="Decides the draw.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(taskset: Path, out: Path, share: float, by: str, seed: int, as_json: bool) -> None:
    """Write the tasks of a set again, some for training and some held out.

    Near-duplicates and versions of one function are always on one side. Tasks of benchmarks are always held out.
    """
    from patchgym.tasks.overlap.resplit import split_task_set

    tasks = TaskSet.load(taskset)
    with stage("Split"):
        done = split_task_set(tasks, out, share, by=by, seed=seed)
    heldout = len(done.heldout)
    largest = max(map(len, done.components))
    if as_json:
        show_json(
            {
                "train": len(tasks.tasks) - heldout,
                "heldout": heldout,
                "components": len(done.components),
                "largest_component": largest,
            }
        )
        return
    rows = [
        ("train", str(len(tasks.tasks) - heldout), f"{1 - heldout / len(tasks.tasks):.0%}"),
        ("heldout", str(heldout), f"{heldout / len(tasks.tasks):.0%}"),
    ]
    show_table(f"{taskset.name} split by {by}", ("side", "tasks", "share"), rows)
    show_line(f"\n{len(done.components)} groups that stay together, of at most {largest} tasks. Written to {out}.")
