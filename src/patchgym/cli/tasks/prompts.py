"""``patchgym tasks prompts``: the data set that another trainer starts from."""

from pathlib import Path

import click

from patchgym.cli.console import show_json, show_line
from patchgym.cli.workshop import chosen_tasks
from patchgym.tasks import TaskSet
from patchgym.trainers.prompts import COLUMNS, task_prompts, write_prompts


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--for", "trainer", required=True, type=click.Choice([*COLUMNS]), help="Whose columns the file has.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The Parquet file to write.")
@click.option(
    "--split",
    type=click.Choice(["train", "heldout", "all"]),
    default="train",
    show_default=True,
    help="Which tasks; held-out ones are for a validation file.",
)
@click.option("--task", "names", multiple=True, metavar="ID", help="Only this task; may be given more than once.")
@click.option("--json", "as_json", is_flag=True, help="Print what was written as JSON.")
def command(taskset: Path, trainer: str, out: Path, split: str, names: tuple[str, ...], as_json: bool) -> None:
    """Write a row for each task into a Parquet file, as trl, verl or skyrl read it: the task's id, and what the agent
    is told first."""
    tasks = chosen_tasks(TaskSet.load(taskset), split, names)
    write_prompts(task_prompts(tasks, trainer), trainer, out)
    if as_json:
        show_json({"out": str(out), "trainer": trainer, "tasks": [task.id for task in tasks]})
    else:
        show_line(f"{len(tasks)} prompts written to {out} for {trainer}.")
