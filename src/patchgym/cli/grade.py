"""``patchgym grade``: verdicts on patches from a file."""

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from pydantic import JsonValue

from patchgym.cli.console import show_json, show_table, stage
from patchgym.cli.workshop import copy_task_objects, sandbox_options, sandboxes
from patchgym.content import ObjectStore
from patchgym.errors import DataError, UsageError
from patchgym.grading import Grader
from patchgym.records import Task, TestReport, Verdict
from patchgym.sandbox.environments import build_environment
from patchgym.tasks import TaskSet


@click.command()
@click.argument("taskset", type=click.Path(path_type=Path))
@click.option("--patches", type=click.Path(path_type=Path), required=True, help='JSONL of {"task_id", "patch"}.')
@click.option("--json", "as_json", is_flag=True, help="Print every report as JSON.")
@sandbox_options
def command(taskset: Path, patches: Path, as_json: bool) -> None:
    """Grade patches in fresh sandboxes with pristine tests."""
    tasks = TaskSet.load(taskset)
    pairs = _read(patches, tasks)
    reports = _grade(tasks, pairs)
    if as_json:
        rows: list[JsonValue] = [
            {"task_id": task.id, **report.model_dump(mode="json")}
            for (task, _), report in zip(pairs, reports, strict=True)
        ]
        counts = {verdict.value: sum(r.verdict is verdict for r in reports) for verdict in Verdict}
        show_json({"graded": len(reports), **counts, "reports": rows})
    else:
        shown = [
            (
                task.id,
                report.verdict.value,
                f"{report.fail_to_pass.passed}/{report.fail_to_pass.total}",
                f"{report.hidden.passed}/{report.hidden.total}",
                f"{report.pass_to_pass.passed}/{report.pass_to_pass.total}",
            )
            for (task, _), report in zip(pairs, reports, strict=True)
        ]
        show_table(f"{patches.name}", ("task", "verdict", "fail-to-pass", "hidden", "pass-to-pass"), shown)
    sys.exit(1 if any(report.verdict is Verdict.INFRA_ERROR for report in reports) else 0)


def _read(path: Path, tasks: TaskSet) -> list[tuple[Task, str]]:
    if not path.is_file():
        raise UsageError(f"There is no file {path}")
    pairs: list[tuple[Task, str]] = []
    for line_number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = json.loads(line)
        except ValueError as error:
            raise DataError(f"{path}, line {line_number}: not JSON", why=str(error)) from error
        match row:
            case {"task_id": str(task_id), "patch": str(patch)}:
                pairs.append((tasks.task(task_id), patch))
            case _:
                raise DataError(f"{path}, line {line_number}: not an object with task_id and patch, both text")
    return pairs


def _grade(tasks: TaskSet, pairs: Sequence[tuple[Task, str]]) -> list[TestReport]:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="patchgym-grade-") as scratch:
        objects = ObjectStore(Path(scratch))
        copy_task_objects(list({task.id: task for task, _ in pairs}.values()), tasks.objects, objects)
        with sandboxes(objects) as factory, stage("Grade patches", len(pairs)) as shown:
            grader = Grader(factory, objects, build_environment)
            slots = asyncio.Semaphore(len(os.sched_getaffinity(0)))
            done = 0

            async def one(task: Task, patch: str) -> TestReport:
                nonlocal done
                async with slots:
                    report = await grader.grade(task, patch)
                done += 1
                shown.update(done, len(pairs), f"{done} of {len(pairs)}")
                return report

            async def every() -> list[TestReport]:
                return list(await asyncio.gather(*(one(task, patch) for task, patch in pairs)))

            return asyncio.run(every())
