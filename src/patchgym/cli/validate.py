"""``patchgym validate``: prove a task set again."""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import click

from patchgym.cli.console import show_json, show_table, stage
from patchgym.cli.workshop import copy_task_objects, sandboxes
from patchgym.content import ObjectStore
from patchgym.records import Task
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1), help="Fresh runs of base and gold each.")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
def command(taskset: Path, runs: int, as_json: bool) -> None:
    """Prove every task again: nothing done fails, the gold patch passes, every time.

    Exit code 1 when a task does not prove.
    """
    tasks = TaskSet.load(taskset)
    failed = _validate(tasks, runs)
    proved = len(tasks.tasks) - len(failed)
    if as_json:
        show_json({"tasks": len(tasks.tasks), "runs": runs, "proved": proved, "failed": dict(failed)})
    else:
        rows = [("proved", str(proved)), *((task, reason) for task, reason in failed.items())]
        show_table(f"{taskset.name}, {runs} runs each", ("task", "result"), rows)
    sys.exit(1 if failed else 0)


def _validate(tasks: TaskSet, runs: int) -> dict[str, str]:
    """Why each task that does not prove does not."""
    from patchgym.tasks.funnel import Dropped
    from patchgym.tasks.proof.bench import Bench
    from patchgym.tasks.proof.prove import prove_task

    with tempfile.TemporaryDirectory(prefix="patchgym-validate-") as scratch:
        objects = ObjectStore(Path(scratch))
        copy_task_objects(tasks.tasks, tasks.objects, objects)
        with sandboxes(objects) as factory, stage("Prove tasks", len(tasks.tasks)) as shown:
            failed: dict[str, str] = {}
            done = 0

            async def one(bench: Bench, task: Task) -> None:
                nonlocal done
                try:
                    proved = await prove_task(task, bench, runs)
                    if proved.tests != task.tests:
                        failed[task.id] = "unstable"
                except Dropped as dropped:
                    failed[task.id] = dropped.reason
                done += 1
                shown.update(done, len(tasks.tasks), f"{done - len(failed)} proved, {len(failed)} not")

            async def every() -> None:
                bench = Bench(factory, objects, build_environment, len(os.sched_getaffinity(0)))
                async with asyncio.TaskGroup() as group:
                    for task in tasks.tasks:
                        group.create_task(one(bench, task))

            asyncio.run(every())
    return failed
