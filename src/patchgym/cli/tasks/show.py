"""``patchgym tasks show``: the tasks of a set, or one of them."""

from pathlib import Path

import click

from patchgym.cli.console import say, show_json, show_line, show_table
from patchgym.records import Task
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.argument("task_id", required=False)
@click.option("--whole", is_flag=True, help="With TASK_ID: also the hidden tests, the gold patch and the proof.")
@click.option("--json", "as_json", is_flag=True, help="Print as JSON.")
def command(taskset: Path, task_id: str | None, whole: bool, as_json: bool) -> None:
    """List the tasks of a set, or show one as the agent sees it."""
    found = TaskSet.load(taskset)
    if task_id is not None:
        task = found.task(task_id)
        if as_json:
            show_json(task if whole else task.view())
        else:
            _show_task(task, whole)
    elif as_json:
        show_json([task.view().model_dump(mode="json") for task in found.tasks])
    else:
        rows = [
            (
                task.id,
                task.split,
                task.source.kind,
                f"{len(task.view().failing_tests)}+{len(task.tests.hidden)}",
                str(len(task.tests.pass_to_pass)),
                str(task.scope.lines),
                "yes" if task.validation is not None and task.validation.proved else "no",
            )
            for task in found.tasks
        ]
        show_table(taskset.name, ("task", "split", "kind", "fail+hidden", "pass", "lines", "proved"), rows)


def _show_task(task: Task, whole: bool) -> None:
    view = task.view()
    show_line(f"{task.id} ({task.source.repo} {task.source.version or ''}, {task.split})\n\n{view.instruction}\n")
    show_line("Failing tests that the agent sees:\n" + "\n".join(f"  {test}" for test in view.failing_tests))
    if not whole:
        say("The agent sees no more than this. --whole shows the rest.")
        return
    show_line("\nHidden failing tests:\n" + "\n".join(f"  {test}" for test in task.tests.hidden))
    show_line(f"\n{len(task.tests.pass_to_pass)} tests must stay passing.\nOrigin: {task.source.change}")
    proof = task.validation
    if proof is not None:
        show_line(
            f"Proof: base failed {proof.base_failed} of {proof.runs}, gold passed {proof.gold_passed} of {proof.runs}"
        )
    show_line(f"\nGold patch:\n{task.gold_patch}")
